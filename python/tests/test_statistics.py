"""octavo.Statistics: from many threads at once, and the names of layers and files."""

import os
import threading
from functools import partial
from pathlib import Path

import numpy as np
import octavo
import pytest

LAYERS = ["a", "b", "c"]
OPTIONS = {"sample_rows": 16, "histogram_bits": 5}


def batches():
    """Of different sizes, for three layers; some with rows that are there twice or not finite."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(120):
        rows = rng.normal(0, 1 + i % 5, (1 + 7 * (i % 9), 48)).astype(np.float32)
        if i % 4 == 0:
            rows[0] = 1
        if i % 10 == 0:
            rows[-1, 3] = np.nan
        made.append((LAYERS[i % 3], rows))
    return made


BATCHES = batches()


def serial(given=None):
    statistics = octavo.Statistics(**OPTIONS)
    for layer, rows in BATCHES if given is None else given:
        statistics.update(layer, rows)
    return statistics


def bytes_of(statistics, tmp_path, name="written"):
    statistics.write(tmp_path / name)
    return (tmp_path / name).read_bytes()


def together(*works):
    """Runs them at once, and raises what one of them raised."""
    raised = []
    barrier = threading.Barrier(len(works))

    def run(work):
        try:
            barrier.wait()
            work()
        except BaseException as e:  # noqa: BLE001
            raised.append(e)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def updates(statistics, given):
    def work():
        for layer, rows in given:
            statistics.update(layer, rows)

    return work


def test_ten_runs_of_four_threads_lose_nothing(tmp_path):
    want = bytes_of(serial(), tmp_path)
    for _ in range(10):
        statistics = octavo.Statistics(**OPTIONS)
        together(*(updates(statistics, BATCHES[i::4]) for i in range(4)))
        assert bytes_of(statistics, tmp_path) == want


def test_what_is_read_meanwhile_is_whole(tmp_path):
    """While two threads update, others merge, write and look; every look is a moment that was."""
    half, rest = BATCHES[:60], BATCHES[60:]
    want = bytes_of(serial(), tmp_path)
    for _ in range(10):
        statistics = octavo.Statistics(**OPTIONS)
        others = [serial(rest[i::5]) for i in range(5)]
        done = threading.Event()

        def merge(statistics=statistics, others=others):
            for other in others:
                statistics.merge(other)

        def look(statistics=statistics, done=done):
            while not done.is_set():
                assert set(statistics.layers()) <= set(LAYERS)
                repr(statistics)
                seen = statistics.layer("a")
                if seen is not None:
                    # Each finite value has been counted, in extremes and histogram alike.
                    assert seen["histogram"].sum() <= 48 * seen["count"]
                    assert seen["histogram"].sum() >= 48 * seen["count"] - 12
                    assert (seen["absmax"] == np.maximum(-seen["min"], seen["max"])).all()
                    assert len(seen["sample"]) == len(np.unique(seen["sample"], axis=0)) <= 16
                    assert (np.abs(seen["sample"]) <= seen["absmax"]).all()

        def write(statistics=statistics, done=done):
            while not done.is_set():
                statistics.write(tmp_path / "meanwhile")
                octavo.Statistics.read(tmp_path / "meanwhile")

        def work(statistics=statistics, merge=merge, done=done):
            try:
                together(updates(statistics, half[::2]), updates(statistics, half[1::2]), merge)
            finally:
                done.set()

        together(work, look, write)
        assert bytes_of(statistics, tmp_path) == want


def test_merges_into_each_other_and_into_itself(tmp_path):
    once, twice = serial(), serial()
    twice.merge(once)
    want = bytes_of(twice, tmp_path)
    once.merge(once)
    assert bytes_of(once, tmp_path) == want
    # Both ways at once: neither waits for the other, and each merge counts what is there by then.
    for _ in range(10):
        a, b = serial(BATCHES[:60]), serial(BATCHES[60:])
        first, second = (sum(s.layer(x)["count"] for x in LAYERS) for s in (a, b))
        together(partial(a.merge, b), partial(b.merge, a))
        counts = [sum(s.layer(x)["count"] for x in LAYERS) for s in (a, b)]
        assert counts in (
            [first + second, first + 2 * second],
            [2 * first + second, first + second],
        )


def test_a_layer_keeps_the_channels_of_its_first_batch():
    statistics = octavo.Statistics()
    refused = []

    def work(channels):
        try:
            statistics.update("layer", np.ones((4, channels), np.float32))
        except octavo.Error as e:
            refused.append((channels, str(e)))

    together(*(lambda n=n: work(n) for n in (3, 4, 5, 6)))
    kept = len(statistics.layer("layer")["absmax"])
    assert sorted(n for n, _ in refused) == [n for n in (3, 4, 5, 6) if n != kept]
    assert all(f"rows: expected shape [..., {kept}], got [4, {n}]" in why for n, why in refused)


ROWS = np.ones((1, 2), np.float32)


@pytest.mark.parametrize("name", ["a\0b", "\0", "a\0"])
def test_nul_in_the_name_of_a_layer(name):
    statistics = octavo.Statistics()
    for call in (lambda: statistics.update(name, ROWS), lambda: statistics.layer(name)):
        with pytest.raises(octavo.Error, match="layer: expected text without NUL, got '") as e:
            call()
        assert e.value.argument == "layer" and e.value.code == "invalid_problem"
    assert statistics.layers() == []


@pytest.mark.parametrize("name", ["\ud800", "a\udcffb"])
def test_lone_surrogates_in_the_name_of_a_layer(name):
    statistics = octavo.Statistics()
    for call in (lambda: statistics.update(name, ROWS), lambda: statistics.layer(name)):
        with pytest.raises(octavo.Error, match=r"layer: expected text.*\\ud.*lone surrogate") as e:
            call()
        assert e.value.argument == "layer" and e.value.code == "invalid_problem"


@pytest.mark.parametrize("name", [None, 3, b"a", Path("a")])
def test_names_of_layers_are_strings(name):
    with pytest.raises(octavo.Error, match="layer: expected a string, got") as e:
        octavo.Statistics().update(name, ROWS)
    assert e.value.code == "unsupported"


def test_names_of_any_letters_come_back(tmp_path):
    names = ["", "a b", "ä.ö", "层.0", "\u202eabc", "\x1b[31m", "😀"]
    statistics = octavo.Statistics()
    for name in names:
        statistics.update(name, ROWS)
    statistics.write(tmp_path / "s")
    assert sorted(octavo.Statistics.read(tmp_path / "s").layers()) == sorted(names)


def test_words_with_nul_are_other_words():
    for call, argument in (
        (lambda: octavo.quantize(ROWS, 1, dtype="s8\0"), "dtype"),
        (lambda: octavo.quantize(ROWS, 1, profile="torch\0x"), "profile"),
        (lambda: octavo.quantize(ROWS, 1, axis="token\0"), "axis"),
        (lambda: octavo.quantize_dynamic(ROWS, scope="token\0"), "scope"),
        (lambda: octavo.Stream(target="scalar\0"), "target"),
    ):
        with pytest.raises(octavo.Error, match=r"\\x00") as e:
            call()
        assert e.value.argument == argument


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_nul_in_a_path(kind, tmp_path):
    if kind is Path:
        path = Path(str(tmp_path / "other") + "\0.safetensors")
    else:
        path = kind(str(tmp_path / "other") + "\0.safetensors")
    for call in (octavo.Statistics().write, octavo.Statistics.read):
        with pytest.raises(octavo.Error, match="path: expected a path without NUL") as e:
            call(path)
        assert e.value.argument == "path" and e.value.code == "invalid_problem"
    assert list(tmp_path.iterdir()) == []


def test_surrogates_in_a_path_are_what_os_makes_of_them(tmp_path):
    """Those that stand for bytes that are no text name a file; others name none."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.st")
    statistics = serial()
    statistics.write(odd)
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff\xfe.st"]
    for path in (odd, os.fsencode(odd), Path(odd)):
        assert octavo.Statistics.read(path).layers() == LAYERS
    with pytest.raises(octavo.Error, match=r"\\xff"):  # and an error may show it
        octavo.Statistics.read(odd + "none")
    for call in (statistics.write, octavo.Statistics.read):
        with pytest.raises(octavo.Error, match=r"path: expected.*\\ud800") as e:
            call(str(tmp_path / "\ud800"))
        assert e.value.argument == "path" and e.value.code == "invalid_problem"


@pytest.mark.parametrize("path", [None, 3, ["a"]])
def test_paths_of_another_type(path):
    with pytest.raises(octavo.Error, match="path: expected a path, got") as e:
        octavo.Statistics().write(path)
    assert e.value.argument == "path" and e.value.code == "unsupported"
