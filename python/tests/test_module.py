"""Streams, targets, packed weights, errors that travel, and the program that the README shows."""

import copy
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import octavo
import pytest
from oracles import assert_bits

ROOT = Path(__file__).parents[2]
X = np.linspace(-3, 3, 60, dtype=np.float32).reshape(6, 10)
W = (np.arange(70).reshape(7, 10) % 17 - 8).astype(np.int8)


def test_streams():
    assert octavo.Stream(threads=3).threads == 3
    assert octavo.Stream(3).threads == 3
    assert octavo.Stream().threads >= 1
    assert octavo.Stream().target is None
    assert octavo.Stream(target="scalar").target == "scalar"
    assert repr(octavo.Stream(2, "scalar")) == "Stream(threads=2, target='scalar')"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_no_stream_changes_a_bit(threads):
    for target in octavo.targets():
        stream = octavo.Stream(threads, target)
        assert_bits(octavo.quantize(X, 0.1, stream=stream), octavo.quantize(X, 0.1))
        assert_bits(octavo.linear(X, W, 0.1, stream=stream), octavo.linear(X, W, 0.1))
        got = octavo.quantize_dynamic(X, scope="tensor", stream=stream)
        assert_bits(got[0], octavo.quantize_dynamic(X, scope="tensor")[0])


@pytest.mark.parametrize(
    ("argument", "value"),
    [("threads", 0), ("threads", -1), ("threads", "2"), ("threads", 1.5), ("threads", 2**40),
     ("target", "nonsense"), ("target", "neon" if "avx2" in octavo.targets() else "amx"),
     ("target", 3), ("target", "\ud800")],
)  # fmt: skip
def test_streams_refuse(argument, value):
    with pytest.raises(octavo.Error) as e:
        octavo.Stream(**{argument: value})
    assert e.value.argument == argument


def test_targets_and_info():
    assert octavo.targets()[0] == "scalar"
    info = octavo.info()
    assert set(info) == {"version", "cpu", "targets", "target", "threads", "backends"}
    assert info["version"] == octavo.__version__
    assert info["targets"] == octavo.targets()
    assert info["target"] in octavo.targets()
    assert info["threads"] == octavo.Stream().threads


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")[:-1]


def test_the_environment_caps_the_target():
    assert run("import octavo; print(octavo.info()['target'])", OCTAVO_TARGET="scalar") == [
        "scalar"
    ]
    program = (
        "import octavo, numpy\n"
        "try: octavo.quantize(numpy.ones(3, numpy.float32), 1)\n"
        "except octavo.Error as e: print(e.code, e.argument)"
    )
    assert run(program, OCTAVO_TARGET="nonsense") == ["unsupported OCTAVO_TARGET"]


def test_pytorch_is_not_imported():
    program = "import sys, octavo; print('torch' in sys.modules, 'ml_dtypes' in sys.modules)"
    assert run(program) == ["False False"]


def test_packed_weights():
    packed = octavo.pack(W)
    assert packed.shape == (7, 10)
    assert packed.dtype == "s8"
    assert packed.nbytes >= W.nbytes
    assert repr(packed) == "PackedWeight(shape=(7, 10), dtype='s8')"
    assert octavo.pack(W.view(np.uint8)).dtype == "u8"
    assert_bits(octavo.linear(X, octavo.pack(W.T.copy().T), 1), octavo.linear(X, W, 1))


def test_packed_weights_travel():
    packed = octavo.pack(W)
    image = packed.serialize()
    for other in (
        pickle.loads(pickle.dumps(packed)),
        copy.deepcopy(packed),
        octavo.PackedWeight.deserialize(image),
    ):
        assert other.serialize() == image
        assert_bits(octavo.linear(X, other, 0.1), octavo.linear(X, W, 0.1))


def test_damaged_images_are_refused():
    image = bytearray(octavo.pack(W).serialize())
    image[-1] ^= 1
    for bad in (b"", b"x" * 100, bytes(image), bytes(image[:-1]), None, "text", 5):
        with pytest.raises(octavo.Error) as e:
            octavo.PackedWeight.deserialize(bad)
        assert e.value.argument == "image"


@pytest.mark.parametrize("bad", [np.ones(3, np.int8), np.ones((2, 2, 2), np.int8), X, None, W > 0])
def test_pack_refuses(bad):
    with pytest.raises(octavo.Error) as e:
        octavo.pack(bad)
    assert e.value.argument == "weight_q"


def test_errors_travel():
    with pytest.raises(octavo.Error) as e:
        octavo.quantize(X, 0.0)
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is octavo.Error
    assert (again.code, again.argument, str(again)) == (e.value.code, "scale", str(e.value))


def test_signatures():
    """As documented: what is behind the star, and the defaults."""
    default = {n: p.default for n, p in inspect.signature(octavo.fake_quantize).parameters.items()}
    assert (default["q_min"], default["q_max"], default["profile"]) == (-128, 127, "torch")
    keywords = inspect.signature(octavo.quantized_matmul).parameters
    assert keywords["act_scale"].kind is inspect.Parameter.KEYWORD_ONLY
    for name in octavo.__all__:
        if inspect.isfunction(f := getattr(octavo, name)) and name not in (
            "pack", "targets", "info",
        ):  # fmt: skip
            assert {"out", "stream"} <= set(inspect.signature(f).parameters)


def fenced(text, language):
    start = text.index(f"```{language}\n") + len(f"```{language}\n")
    return text[start : text.index("```", start)]


def test_the_readme_shows_the_first_program_and_what_it_prints():
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("## Python") :]
    source = (ROOT / "examples" / "first.py").read_text()
    assert fenced(section, "python") == source
    assert fenced(section, "text").split("\n")[:-1] == run(source)
