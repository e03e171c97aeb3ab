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


@pytest.mark.parametrize(
    "bad", [np.ones(3, np.int8), np.ones((2, 2, 2), np.int8), np.ones((2, 2)), None, W > 0]
)
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


# Code that calls by name and by position relies on every one of these.
SIGNATURES = """
quantize(x, scale, zero_point=None, *, dtype="s8", axis=None, group_size=None, q_min=None,
         q_max=None, profile="torch", out=None, stream=None)
dequantize(q, scale, zero_point=None, *, dtype="f32", q_dtype=None, length=None, axis=None,
           group_size=None, out=None, stream=None)
fake_quantize(x, scale, zero_point=None, *, q_min=-128, q_max=127, axis=None, group_size=None,
              profile="torch", out=None, stream=None)
quantize_backward(x, dy, scale, zero_point=None, *, dtype="s8", axis=None, group_size=None,
                  q_min=None, q_max=None, profile="torch", out=None, stream=None)
fake_quantize_backward(x, dy, scale, zero_point=None, *, q_min=-128, q_max=127, axis=None,
                       group_size=None, profile="torch", out=None, stream=None)
dequantize_backward(dy, scale, *, axis=None, group_size=None, out=None, stream=None)
quantize_dynamic(x, *, scope="token", mode="symmetric", dtype="s8", axis=None, group_size=None,
                 q_min=None, q_max=None, profile="torch", out=None, stream=None)
linear(x, weight_q, weight_scale=None, bias=None, *, quantized=None, group_size=None,
       weight_zero_point=None, q_dtype=None, length=None, mode="symmetric", residual=None,
       relu=False, out_dtype=None, profile="torch", out=None, stream=None)
smoothquant_linear(x_q, act_scale, weight_q, weight_scale=None, bias=None, *, act_zero_point=0,
                   residual=None, relu=False, out_dtype="f32", out_scale=None, out_zero_point=0,
                   profile="torch", out=None, stream=None, group_size=None,
                   weight_zero_point=None, q_dtype=None, length=None)
quantized_matmul(x_q, weight_q, *, act_scale, weight_scale=None, act_zero_point=0,
                 weight_zero_point=None, bias=None, residual=None, relu=False, out_dtype="f32",
                 out_scale=None, out_zero_point=0, profile="torch", out=None, stream=None,
                 group_size=None, q_dtype=None, length=None)
int_matmul(x_q, weight_q, *, act_zero_point=0, weight_zero_point=None, out=None, stream=None)
float_linear(x, weight, bias=None, *, residual=None, relu=False, out_dtype="f32", out=None,
             stream=None)
embedding(indices, table, scale=None, *, zero_point=None, group_size=None, q_dtype=None,
          length=None, out_dtype="f32", out=None, stream=None)
pack(weight_q, *, scale=None, zero_point=None, group_size=None, q_dtype=None, length=None)
Stream(threads=None, target=None)
targets()
info()
"""
SIGNATURES = [" ".join(s.split()) + ")" for s in SIGNATURES.split(")\n") if s.strip()]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.partition("(")[0])
def test_signatures(signature):
    name = signature.partition("(")[0]
    defined = {}
    exec(f"def {signature}: pass", defined)

    def parameters(f):
        return [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]

    assert parameters(getattr(octavo, name)) == parameters(defined[name])


def test_the_package_says_that_it_is_typed():
    package = Path(octavo.__file__).parent
    assert (package / "py.typed").exists()
    stub = (package / "_core.pyi").read_text()
    assert "def __init__(self, threads: int | None = None, target: str | None = None)" in stub
    assert "def shape(self) -> tuple[int, int]" in stub


def fenced(text, language):
    start = text.index(f"```{language}\n") + len(f"```{language}\n")
    return text[start : text.index("```", start)]


def test_the_readme_shows_the_first_program_and_what_it_prints():
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("## Python") :]
    source = (ROOT / "examples" / "first.py").read_text()
    assert fenced(section, "python") == source
    assert fenced(section, "text").split("\n")[:-1] == run(source)
