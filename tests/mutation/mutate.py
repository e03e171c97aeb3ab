#!/usr/bin/env python3
"""Puts small bugs into the sources, one at a time, and says which of them no test notices.

The bugs are in the *.toml files beside this script, one file for each room of the project:

    [tests]            # which programs are asked about a file; the first pattern that fits counts
    "src/core/check.cpp" = ["core_test", "refusal_test --gtest_filter=Strides*"]
    "src/core/*" = ["core_test", "OCTAVO_TILES=amx linear_test"]
    "python/src/*" = ["pytest python/tests/test_arrays.py"]

    [[mutation]]
    file = "src/core/check.cpp"
    name = "the last byte of a row is not checked"
    old = "text that occurs once in the file"
    new = "what becomes of it"
    tests = ["..."]               # optional: instead of the file's
    equivalent = "a reason"       # optional: why no test can notice it

Programs are run until one fails, in their order, but first those that noticed another bug of the
file. Crashes are failures, too. One that does not end, or that passes when it is asked again, has
noticed the bug if it passes without it. The sources of the project are not touched: this happens in
copies of them below --build, one for each core. Every program must pass in every copy before the
first bug is put in, and after the last.

What is found is kept in results.jsonl below --build. A run that was cut short goes on with
--resume, which takes from there what was found with the same sources.

With --check the lists are only read, and held against the sources.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import queue
import resource
import sys
import threading
import time
import traceback

from lists import ROOT, ListError, read_lists
from trees import FAILED, PASSED, Command, Tree

FEWEST = 150
GOAL = 0.95
# Bytes of data for a program: a bug must not take the machine's memory. No test needs a half of it.
MOST_DATA = 6 << 30

NOTICED, LIVED, ERROR = "noticed", "lived", "error"
NOT_ALWAYS = "not always"


class Results:
    """Verdicts by sources and bug, a line of JSON each: none is lost when a run is cut short."""

    def __init__(self, path):
        self.path = path
        self.known = {}
        self.digest = ""
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:  # (the end of a line that was being written)
                continue
            self.known[entry["key"]] = entry

    def key(self, mutation):
        told = [self.digest, *(mutation[name] for name in ("file", "old", "new", "tests"))]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def find(self, mutation):
        return self.known.get(self.key(mutation))

    def add(self, mutation, kind, text):
        entry = {"key": self.key(mutation), "kind": kind, "text": text}
        entry |= {"file": mutation["file"], "name": mutation["name"]}
        with self.path.open("a") as out:
            out.write(f"\n{json.dumps(entry)}")  # (the line before may have no end)


class Run:
    def __init__(self, mutations, trees, results, make_command=Command):
        self.mutations = mutations
        self.trees = trees
        self.results = results
        self.commands = {line: make_command(line) for m in mutations for line in m["tests"]}
        self.limits = {}
        self.lock = threading.Lock()
        self.stopped = False
        self.found = {NOTICED: [], LIVED: [], ERROR: []}
        self.by_luck = []
        self.by = collections.Counter()  # bugs of a file that a program noticed
        self.unsound = []  # programs that fail without any bug when all is done

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def in_all_trees(self, function):
        """At once, as the bugs are tried, so that times are those of a busy machine."""
        with concurrent.futures.ThreadPoolExecutor(len(self.trees)) as pool:
            try:
                return list(pool.map(function, self.trees))
            except BaseException:
                self.stopped = True  # (or the others would be waited for)
                raise

    def targets(self):
        return {command.target for command in self.commands.values()}

    def failing(self, tree):
        """The commands that fail on the sources as they are. Sets limits to those that pass."""
        output = tree.make(self.targets(), 1)
        if output is not None:
            return [f"cmake --build:\n{output}"]
        lines = []
        for line, command in sorted(self.commands.items()):
            if self.stopped:
                break
            start = time.monotonic()
            if command.run(tree, 1800) != PASSED:
                lines.append(line)
            limit = 30 + 4 * (time.monotonic() - start)  # slower for the bug
            with self.lock:
                self.limits[line] = max(limit, self.limits.get(line, 0))
        return lines

    def everything_fails(self):
        return sorted({line for lines in self.in_all_trees(self.failing) for line in lines})

    def prepare(self):
        with_python = any(command.is_pytest for command in self.commands.values())
        for tree in self.trees:
            # (One after another: the second finds in ccache what the first has compiled.)
            self.say(f"== building {len(self.targets())} programs in {tree.source}")
            tree.configure(with_python)
            tree.make(self.targets(), os.cpu_count())
        self.say(f"== {len(self.commands)} commands on the sources as they are")
        wrong = self.everything_fails()
        if wrong:
            raise ListError("\n".join(f"fails without any bug: {line}" for line in wrong))

    def ask(self, tree, mutation):
        """The verdict of the tests while the bug is in: kind, text, and a program to ask again."""
        tests = sorted(mutation["tests"], key=lambda line: -self.by[mutation["file"], line])
        for line in tests:
            command = self.commands[line]
            output = tree.make({command.target}, 1)
            if output is not None:
                return ERROR, f"does not build:\n{output[-3000:]}", None
            outcome = command.run(tree, self.limits[line])
            if outcome == PASSED:
                continue
            self.by[mutation["file"], line] += 1
            if outcome == FAILED and command.run(tree, self.limits[line]) == PASSED:
                outcome = NOT_ALWAYS
            if outcome == FAILED:
                return NOTICED, f"noticed by {line}", None
            return NOTICED, f"noticed by {line} ({outcome})", line
        return LIVED, LIVED.upper(), None

    def try_one(self, tree, mutation):
        path = tree.source / mutation["file"]
        original = path.read_text()
        if original.count(mutation["old"]) != 1:
            return ERROR, "does not fit the source"
        try:
            path.write_text(original.replace(mutation["old"], mutation["new"]))
            kind, text, again = self.ask(tree, mutation)
        finally:
            path.write_text(original)
        if again is None:
            return kind, text
        # A busy machine is no bug, nor is a test that fails at times.
        command = self.commands[again]
        if tree.make({command.target}, 1) or command.run(tree, self.limits[again]) != PASSED:
            return ERROR, f"fails without the bug, too: {again}"
        return kind, text

    def note(self, mutation, kind, text, seconds):
        with self.lock:
            self.found[kind].append(mutation)
            if NOT_ALWAYS in text:
                self.by_luck.append(mutation)
            if kind != ERROR:
                self.results.add(mutation, kind, text)
            done = sum(len(found) for found in self.found.values())
        where = f"{mutation['file']}: {mutation['name']}"
        self.say(f"[{done:3}/{len(self.mutations)}] {where}: {text} ({seconds:.0f} s)")

    def take_known(self):
        """Those of which the verdict is known already count as done."""
        for mutation in self.mutations:
            entry = self.results.find(mutation)
            if entry is not None:
                self.found[entry["kind"]].append(mutation)
                if NOT_ALWAYS in entry["text"]:
                    self.by_luck.append(mutation)
        left = self.left()
        needed = {line for mutation in left for line in mutation["tests"]}
        self.commands = {line: c for line, c in self.commands.items() if line in needed}
        self.say(f"== {len(self.mutations) - len(left)} of {len(self.mutations)} bugs are known")

    def left(self):
        done = {id(m) for found in self.found.values() for m in found}
        return [m for m in self.mutations if id(m) not in done]

    def all(self):
        # A file at a time, so that it is compiled anew and not another one with it.
        groups = {}
        for mutation in self.left():
            groups.setdefault(mutation["file"], []).append(mutation)
        files = queue.SimpleQueue()
        for group in sorted(groups.values(), key=len, reverse=True):
            files.put(group)

        def work(tree):
            while not files.empty():
                try:
                    group = files.get_nowait()
                except queue.Empty:
                    return
                for mutation in group:
                    if self.stopped:
                        return
                    start = time.monotonic()
                    try:
                        kind, text = self.try_one(tree, mutation)
                    except Exception:
                        kind, text = ERROR, f"could not be tried:\n{traceback.format_exc()}"
                    self.note(mutation, kind, text, time.monotonic() - start)

        self.in_all_trees(work)
        self.say(f"== {len(self.commands)} commands on the sources as they are, once more")
        self.unsound = self.everything_fails()

    def summary(self):
        """The exit status."""
        noticed, lived, errors = (self.found[kind] for kind in (NOTICED, LIVED, ERROR))
        unexplained = [m for m in lived if "equivalent" not in m]
        explained = [m for m in lived if "equivalent" in m]
        wrongly = [m for m in noticed if "equivalent" in m]
        left = self.left()
        for title, chosen in (
            ("Nobody noticed", unexplained),
            ("Could not be tried, for a reason above", errors),
            ("Were never tried", left),
            ("Noticed, but not always", self.by_luck),
            ("Called equivalent, but noticed, which is for the list to mend", wrongly),
            ("Lived, and changes nothing that a test could see", explained),
        ):
            if chosen:
                print(f"\n{title}:")
            for m in chosen:
                reason = f"\n      {m['equivalent']}" if m in explained else ""
                print(f"  {m['file']}: {m['name']}{reason}")
        if self.unsound:
            print("\nFail without any bug by now, and so may have noticed what is none:")
        for line in self.unsound:
            print(f"  {line}")
        total = len(noticed) + len(lived)
        share = len(noticed) / total if total else 0
        print(
            f"\nmutate: {len(noticed)} of {total} bugs noticed ({share:.1%}), "
            f"{len(explained)} equivalent, {len(unexplained)} lived"
        )
        wrong = unexplained or errors or left or wrongly or self.unsound
        return 1 if wrong or share < GOAL else 0


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="only bugs with one of these in file or name")
    parser.add_argument("--check", action="store_true", help="read the lists, and run nothing")
    parser.add_argument("--list", action="store_true", help="print the bugs that are chosen")
    parser.add_argument("--resume", action="store_true", help="go on where a run was cut short")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies of the sources")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--python", default=ROOT / "build" / "venv" / "bin" / "python")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
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
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_DATA, MOST_DATA))
    files = len({m["file"] for m in chosen})
    directory = arguments.build.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    trees = [Tree(directory / str(i), arguments.python) for i in range(min(arguments.jobs, files))]
    results = Results(directory / "results.jsonl")
    print(f"== copying the sources to {directory}", flush=True)
    digests = {tree.copy() for tree in trees}
    if len(digests) > 1:
        raise ListError("the sources changed while they were copied")
    results.digest = digests.pop()
    run = Run(chosen, trees, results)
    if arguments.resume:
        run.take_known()
    if run.left():
        run.prepare()
        run.all()
    return run.summary()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ListError as error:
        sys.exit(f"mutate: {error}")
    except KeyboardInterrupt:
        sys.exit("mutate: stopped; --resume goes on")
