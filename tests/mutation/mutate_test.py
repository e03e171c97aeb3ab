"""What mutate.py makes of programs that fail, hang, or do either without a bug."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import mutate
from trees import FAILED, NO_END, PASSED

SOURCE = "good and fine"


class FakeTree:
    def __init__(self, directory):
        self.source = directory
        directory.mkdir()
        (directory / "a.cpp").write_text(SOURCE)

    def configure(self, with_python):
        pass

    def make(self, targets, jobs):
        return "no such word" if "unknown" in (self.source / "a.cpp").read_text() else None


class FakeCommand:
    """Does what the bug says: hangs, raises, fails at times, or fails if the bug has its name."""

    is_pytest = False
    afterwards = PASSED  # what it says without a bug, once it has seen one

    def __init__(self, line):
        self.target = self.line = line
        self.seen = 0

    def run(self, tree, timeout):
        text = (tree.source / "a.cpp").read_text()
        if self.line == "broken":
            return FAILED
        if text == SOURCE:
            return FakeCommand.afterwards if self.seen > 0 else PASSED
        self.seen += 1
        if "raise" in text:
            raise OSError("a disk that is full")
        if "hang" in text:
            return NO_END
        if "at times" in text:
            return FAILED if self.seen % 2 == 1 else PASSED
        return FAILED if self.line in text else PASSED


def bug(new, **more):
    return {"file": "a.cpp", "name": new, "old": "fine", "new": new, "tests": ["one", "two"]} | more


class Verdicts(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        FakeCommand.afterwards = PASSED
        self.count = 0

    def run_with(self, *mutations, resume=False):
        """The run, its exit status and what it printed."""
        base = pathlib.Path(self.directory.name)
        self.count += 1
        trees = [FakeTree(base / f"{self.count} {i}") for i in range(2)]
        results = mutate.Results(base / "results.jsonl")
        run = mutate.Run(list(mutations), trees, results, FakeCommand)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if resume:
                run.take_known()
            if run.left():
                run.prepare()
                run.all()
            status = run.summary()
        for tree in trees:
            self.assertEqual((tree.source / "a.cpp").read_text(), SOURCE)
        return run, status, out.getvalue()

    def test_noticed_and_lived(self):
        run, status, out = self.run_with(bug("two"), bug("three"))
        self.assertEqual(status, 1)
        self.assertIn("a.cpp: two: noticed by two (", out)
        self.assertIn("Nobody noticed:\n  a.cpp: three\n", out)
        self.assertIn("1 of 2 bugs noticed (50.0%), 0 equivalent, 1 lived", out)
        self.assertEqual(self.run_with(bug("two"))[1], 0)

    def test_what_noticed_before_is_asked_first(self):
        run, status, out = self.run_with(bug("two"), bug("two one"))
        self.assertIn("two one: noticed by two (", out)

    def test_equivalent(self):
        noticed = [bug(f"two {i}") for i in range(19)]
        self.assertEqual(self.run_with(*noticed, bug("three", equivalent="why"))[1], 0)
        self.assertEqual(self.run_with(*noticed, bug("one", equivalent="why"))[1], 1)

    def test_does_not_build(self):
        run, status, out = self.run_with(bug("unknown"), bug("two"))
        self.assertEqual(status, 1)
        self.assertIn("does not build:\nno such word", out)

    def test_does_not_fit(self):
        run, status, out = self.run_with(bug("two", old="not there"))
        self.assertEqual(status, 1)
        self.assertIn("does not fit", out)

    def test_an_exception_loses_no_bug(self):
        run, status, out = self.run_with(bug("raise"), bug("two"))
        self.assertEqual(status, 1)
        self.assertIn("a disk that is full", out)
        self.assertIn("two: noticed by two", out)

    def test_a_bug_that_was_never_tried(self):
        run = self.run_with(bug("two"))[0]
        run.mutations.append(bug("three"))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(run.summary(), 1)
        self.assertIn("Were never tried:\n  a.cpp: three", out.getvalue())

    def test_no_end(self):
        run, status, out = self.run_with(bug("hang"))
        self.assertEqual(status, 0)
        self.assertIn("hang: noticed by one (no end)", out)

    def test_no_end_without_the_bug(self):
        FakeCommand.afterwards = NO_END
        run, status, out = self.run_with(bug("hang"))
        self.assertEqual(status, 1)
        self.assertIn("fails without the bug, too: one", out)
        self.assertIn(
            "Fail without any bug by now, and so may have noticed what is none:\n  one", out
        )

    def test_fails_without_any_bug_in_the_end(self):
        FakeCommand.afterwards = FAILED
        run, status, out = self.run_with(bug("one"))
        self.assertEqual(status, 1)
        self.assertIn("1 of 1 bugs noticed", out)
        self.assertIn("may have noticed what is none:\n  one", out)

    def test_not_always(self):
        run, status, out = self.run_with(bug("at times"))
        self.assertEqual(status, 0)
        self.assertIn("noticed by one (not always)", out)
        self.assertIn("Noticed, but not always:\n  a.cpp: at times", out)

    def test_fails_before_any_bug(self):
        with self.assertRaisesRegex(mutate.ListError, "fails without any bug: broken"):
            self.run_with(bug("two", tests=["one", "broken"]))

    def test_resume(self):
        first = [bug("two"), bug("hang"), bug("three", equivalent="why"), bug("unknown")]
        self.run_with(*first)
        results = pathlib.Path(self.directory.name) / "results.jsonl"
        with results.open("a") as out:
            out.write('\n{"key": "cut sh')
        run, status, out = self.run_with(*first, bug("one"), resume=True)
        self.assertIn("3 of 5 bugs are known", out)
        self.assertNotIn("two: noticed", out)
        self.assertIn("one: noticed by one", out)
        self.assertIn("3 of 4 bugs noticed", out)
        kinds = [json.loads(x)["kind"] for x in results.read_text().splitlines() if x[-1:] == "}"]
        self.assertEqual(kinds, ["noticed", "noticed", "lived", "noticed"])
        # Of other tests nothing is known.
        self.assertIn("0 of 1 ", self.run_with(bug("two", tests=["two"]), resume=True)[2])


if __name__ == "__main__":
    unittest.main()
