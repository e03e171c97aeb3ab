"""Copies of the sources: what is built in them, and the test programs that are run there."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess

from lists import ROOT

PASSED, FAILED, NO_END = "passed", "failed", "no end"


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
        """PASSED, FAILED or NO_END."""
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
            return PASSED if process.wait(timeout) == 0 else FAILED
        except subprocess.TimeoutExpired:
            return NO_END
        finally:
            try:  # (children that a test left behind, too)
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()


def source_files():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return {name for name in listed if name and (ROOT / name).is_file()}


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
        """The digest of what was copied, less what no test depends on."""
        digest = hashlib.sha256()
        wanted = source_files()
        for path in list(self.source.rglob("*")):
            name = path.relative_to(self.source)
            if path.is_file() and name.parts[0] != "build" and str(name) not in wanted:
                path.unlink()
        for name in sorted(wanted):
            target, content = self.source / name, (ROOT / name).read_bytes()
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)  # (with the time of now)
            if not name.startswith("tests/mutation/") and not name.endswith(".md"):
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

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
