#!/usr/bin/env python3
"""Puts small bugs into the sources, one at a time, and says which of them no test notices.

The bugs are in the *.toml files beside this script, one file for each room of the project:

    [tests]            # which programs are asked about a file; the first pattern that fits counts
    "src/core/check.cpp" = ["core_test", "refusal_test --gtest_filter=Strides*"]
    "src/core/*" = ["core_test", "OCTAVO_TILES=amx linear_test"]

    [[mutation]]
    file = "src/core/check.cpp"
    name = "the last byte of a row is not checked"
    old = "text that occurs once in the file"
    new = "what becomes of it"
    tests = ["..."]               # optional: instead of the file's
    equivalent = "a reason"       # optional: why no test can notice it

Programs are run in their order until one fails; crashes and endless loops are failures, too. The
sources of the project are not touched: this happens in copies of them below --build, one for each
core. Every program must pass before the first bug is put in.

With --check the lists are only read, and held against the sources.
"""

import argparse
import fnmatch
import os
import pathlib
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FEWEST = 150
GOAL = 0.95
KEYS = {"file", "name", "old", "new"}
OPTIONAL_KEYS = {"tests", "equivalent"}


class ListError(Exception):
    """A list that is wrong: the bug does not fit the source, or would not compile."""


def tests_of(mutation, patterns):
    if "tests" in mutation:
        return mutation["tests"]
    for pattern, programs in patterns.items():
        if fnmatch.fnmatch(mutation["file"], pattern):
            return programs
    return []


def wrong_with(mutation, root):
    """What is wrong with an entry, in words; None if nothing is."""
    keys = set(mutation)
    if not KEYS <= keys or not keys <= KEYS | OPTIONAL_KEYS:
        return f"has the keys {sorted(keys)}, but needs {sorted(KEYS)}"
    if mutation["old"] == mutation["new"]:
        return "changes nothing"
    if not (root / mutation["file"]).is_file():
        return "its file does not exist"
    count = (root / mutation["file"]).read_text().count(mutation["old"])
    if count != 1:
        return f"its old text occurs {count} times in the file, not once"
    return None


def read_lists(root):
    mutations, errors = [], []
    for path in sorted(HERE.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for mutation in content.get("mutation", []):
            where = f"{path.name}: {mutation.get('file')}: {mutation.get('name')}"
            error = wrong_with(mutation, root)
            mutation["tests"] = tests_of(mutation, content.get("tests", {}))
            if error is None and not mutation["tests"]:
                error = "no test program is named for it"
            if error is not None:
                errors.append(f"{where}: {error}")
            mutations.append(mutation)
    if errors:
        raise ListError("\n".join(errors))
    names = [(m["file"], m["name"]) for m in mutations]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ListError("\n".join(f"{file}: {name}: listed twice" for file, name in sorted(twice)))
    return mutations


class Command:
    """A line of `tests`: [NAME=value ...] program [arguments]. `pytest` is the Python module's."""

    def __init__(self, line):
        words = shlex.split(line)
        self.environment = {}
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, value = words.pop(0).split("=", 1)
            self.environment[name] = value
        self.program, self.arguments = words[0], words[1:]
        self.is_pytest = self.program == "pytest"
        self.target = "octavo_core" if self.is_pytest else self.program

    def run(self, tree, timeout):
        """Whether it passed."""
        environment = os.environ | self.environment
        if self.is_pytest:
            environment |= {
                "PYTHONPATH": str(tree.build / "python"),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            line = [tree.python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        else:
            line = [tree.build / "bin" / self.program, "--gtest_fail_fast", "--gtest_brief=1"]
        process = subprocess.Popen(
            [*line, *self.arguments],
            cwd=tree.source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            try:  # (children that a test left behind, too)
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()


class Tree:
    """A copy of the sources and what is built from it."""

    def __init__(self, directory, python):
        # Laid out as the project itself, so that ccache knows what was compiled there.
        self.source = directory
        self.build = directory / "build" / "release"
        self.python = python
        self.environment = os.environ | {
            "CCACHE_BASEDIR": str(ROOT),
            "CCACHE_NOHASHDIR": "1",
        }

    def copy(self):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        for path in list(self.source.rglob("*")):
            name = path.relative_to(self.source)
            if path.is_file() and name.parts[0] != "build" and str(name) not in wanted:
                path.unlink()
        for name in sorted(wanted):
            target = self.source / name
            if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)  # (with the time of now)

    def configure(self, with_python):
        line = ["cmake", "--preset", "release"]
        if with_python:
            line += ["-DOCTAVO_PYTHON=ON", f"-DPython_EXECUTABLE={self.python}"]
        subprocess.run(
            line, check=True, cwd=self.source, stdout=subprocess.DEVNULL, env=self.environment
        )

    def make(self, targets, jobs):
        """None, or what the compiler said."""
        result = subprocess.run(
            ["cmake", "--build", self.build, "-j", str(jobs), "--target", *sorted(targets)],
            capture_output=True,
            text=True,
            env=self.environment,
        )
        return None if result.returncode == 0 else result.stdout + result.stderr


class Run:
    def __init__(self, mutations, trees):
        self.mutations = mutations
        self.trees = trees
        self.commands = {line: Command(line) for m in mutations for line in m["tests"]}
        self.limits = {}
        self.lock = threading.Lock()
        self.done = 0
        self.noticed, self.lived, self.errors = [], [], []

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def prepare(self):
        targets = {command.target for command in self.commands.values()}
        with_python = any(command.is_pytest for command in self.commands.values())
        for tree in self.trees:
            self.say(f"== building {len(targets)} programs in {tree.build}")
            tree.copy()
            tree.configure(with_python)
            output = tree.make(targets, os.cpu_count())
            if output is not None:
                raise ListError(f"the sources do not build as they are:\n{output}")
        self.say(f"== {len(self.commands)} commands on the sources as they are")
        for line, command in sorted(self.commands.items()):
            start = time.monotonic()
            if not command.run(self.trees[0], 1800):
                raise ListError(f"fails without any bug: {line}")
            # Beside another worker, and slower for the bug.
            self.limits[line] = 30 + 4 * (time.monotonic() - start)

    def one(self, tree, mutation):
        path = tree.source / mutation["file"]
        original = path.read_text()
        start = time.monotonic()
        verdict = "lived"
        try:
            path.write_text(original.replace(mutation["old"], mutation["new"]))
            for line in mutation["tests"]:
                command = self.commands[line]
                output = tree.make({command.target}, 1)
                if output is not None:
                    verdict = f"does not build:\n{output[-3000:]}"
                    break
                if not command.run(tree, self.limits[line]):
                    verdict = f"noticed by {line}"
                    break
        finally:
            path.write_text(original)
        seconds = time.monotonic() - start
        with self.lock:
            self.done += 1
            if verdict == "lived":
                self.lived.append(mutation)
            elif verdict.startswith("noticed"):
                self.noticed.append(mutation)
            else:
                self.errors.append(mutation)
        self.say(
            f"[{self.done:3}/{len(self.mutations)}] {mutation['file']}: {mutation['name']}: "
            f"{verdict.upper() if verdict == 'lived' else verdict} ({seconds:.0f} s)"
        )

    def worker(self, tree, files):
        while True:
            try:
                group = files.get_nowait()
            except queue.Empty:
                return
            for mutation in group:
                self.one(tree, mutation)

    def all(self):
        # A file at a time, so that it is compiled anew and not another one with it.
        groups = {}
        for mutation in self.mutations:
            groups.setdefault(mutation["file"], []).append(mutation)
        files = queue.Queue()
        for group in sorted(groups.values(), key=len, reverse=True):
            files.put(group)
        threads = [threading.Thread(target=self.worker, args=(t, files)) for t in self.trees]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def summary(self):
        """The exit status."""
        unexplained = [m for m in self.lived if "equivalent" not in m]
        explained = [m for m in self.lived if "equivalent" in m]
        wrongly = [m for m in self.noticed if "equivalent" in m]
        for title, chosen in (
            ("Nobody noticed", unexplained),
            ("Could not be built, which is for the list to mend", self.errors),
            ("Called equivalent, but noticed, which is for the list to mend", wrongly),
            ("Lived, and changes nothing that a test could see", explained),
        ):
            if chosen:
                print(f"\n{title}:")
            for m in chosen:
                reason = f"\n      {m['equivalent']}" if m in explained else ""
                print(f"  {m['file']}: {m['name']}{reason}")
        total = len(self.noticed) + len(self.lived)
        share = len(self.noticed) / total if total else 0
        print(
            f"\nmutate: {len(self.noticed)} of {total} bugs noticed ({share:.1%}), "
            f"{len(explained)} equivalent, {len(unexplained)} lived"
        )
        return 1 if unexplained or self.errors or wrongly or share < GOAL else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only bugs with one of these in file or name")
    parser.add_argument("--check", action="store_true", help="read the lists, and run nothing")
    parser.add_argument("--list", action="store_true", help="print the bugs that are chosen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies of the sources")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--python", default=ROOT / "build" / "venv" / "bin" / "python")
    arguments = parser.parse_args()

    mutations = read_lists(ROOT)
    if arguments.check:
        if len(mutations) < FEWEST:
            raise ListError(f"{len(mutations)} bugs are listed, fewer than {FEWEST}")
        print(f"{len(mutations)} bugs, each of which fits its source")
        return 0
    chosen = [
        m
        for m in mutations
        if not arguments.words or any(w in f"{m['file']}: {m['name']}" for w in arguments.words)
    ]
    if not chosen:
        raise ListError(f"no bug has one of {arguments.words} in its file or name")
    if arguments.list:
        for m in chosen:
            print(f"{m['file']}: {m['name']}")
        return 0
    files = len({m["file"] for m in chosen})
    directory = arguments.build.resolve()
    trees = [Tree(directory / str(i), arguments.python) for i in range(min(arguments.jobs, files))]
    run = Run(chosen, trees)
    run.prepare()
    run.all()
    return run.summary()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ListError as error:
        sys.exit(f"mutate: {error}")
