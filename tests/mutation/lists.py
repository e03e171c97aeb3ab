"""The lists of bugs beside this file, read and held against the sources."""

import fnmatch
import pathlib

import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
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
