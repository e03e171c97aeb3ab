"""The table of docs/offline.md is that of `./dev accuracy checkpoint`, which takes too long for a
test: the same ways to quantize, in the same order, and what the text advises follows from it."""

from pathlib import Path

import checkpoint_accuracy as accuracy
import pytest

DOC = Path(__file__).parents[2] / "docs" / "offline.md"


@pytest.fixture(scope="module")
def table():
    """Perplexity, megabytes and largest error in percent, by the arguments."""
    _, header, rest = DOC.read_text(encoding="utf-8").partition(accuracy.HEADER + "\n")
    assert header, "docs/offline.md has no table of accuracy"
    rows = [row.strip("| ").split(" | ") for row in rest.partition("\n\n")[0].splitlines()]
    return {row[0]: [float(cell.strip(" %|") or 0) for cell in row[1:4]] for row in rows}


def test_it_shows_every_way_to_quantize(table):
    assert list(table) == [accuracy.FLOAT, *map(accuracy.shown, accuracy.VARIANTS)]


def test_the_advice_follows_from_the_figures(table):
    exact = table[accuracy.FLOAT][0]

    def loss(*arguments):
        return table[accuracy.shown(arguments)][0] - exact

    static = ["w8a8-static", "--stats", "STATS"]
    assert loss("w8a8-dynamic") < 0.1 * exact
    assert loss(*static) > 3 * loss(*static, *accuracy.NO_DOWN)
    for size in ("64", "32"):
        int4 = ["w4a16-group", "--group-size", size]
        assert loss(*int4, *accuracy.SMOOTHED) < loss(*int4)
    assert loss("w4a16-group", "--group-size", "32") < loss("w4a16-group", "--group-size", "64")
