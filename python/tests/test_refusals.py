"""Everything wrong raises octavo.Error with a code, names its argument, and leaves out alone."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import octavo
import pytest
import torch
from arrays import OnlyDLPack

F = np.ones((2, 4), np.float32)
Q = np.ones((2, 4), np.int8)
W = np.ones((3, 4), np.int8)
INVALID, UNSUPPORTED = "invalid_problem", "unsupported"


class Broken:
    """Says that it speaks DLPack, and does not."""

    def __dlpack__(self):
        raise RuntimeError("no")

    def __dlpack_device__(self):
        return (1, 0)


class OnGpu(Broken):
    def __dlpack_device__(self):
        return (2, 0)


class NoDevice(Broken):
    def __dlpack_device__(self):
        return "nowhere"


class NoCapsule(Broken):
    def __dlpack__(self):
        return 5


class Mute:
    def __repr__(self):
        raise RuntimeError("no")


class Surrogate:
    def __repr__(self):
        return "\ud800"


def sparse():
    return torch.ones(2, 4).to_sparse()


def csr():
    return torch.ones(2, 4).to_sparse_csr()


def misaligned():
    return np.frombuffer(bytearray(33), np.uint8)[1:].view(np.float32).reshape(2, 4)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


# What no argument that is an array takes: (value, code).
ARRAYS = {
    "None": (None, UNSUPPORTED),
    "a string": ("abcd", UNSUPPORTED),
    "a number": (1.5, UNSUPPORTED),
    "a list": ([1.0, 2.0], UNSUPPORTED),
    "masked": (np.ma.masked_array(np.ones((2, 4), np.float32), mask=True), UNSUPPORTED),
    "int64": (np.ones((2, 4), np.int64), UNSUPPORTED),
    "bool": (np.ones((2, 4), bool), UNSUPPORTED),
    "complex": (np.ones((2, 4), complex), UNSUPPORTED),
    "objects": (np.full((2, 4), None), UNSUPPORTED),
    "strings": (np.full((2, 4), "a"), UNSUPPORTED),
    "dates": (np.zeros((2, 4), "datetime64[s]"), UNSUPPORTED),
    "big-endian": (np.ones((2, 4), ">f4"), UNSUPPORTED),
    "longdouble": (np.ones((2, 4), np.longdouble), UNSUPPORTED),
    "float8": (np.ones((2, 4), ml_dtypes.float8_e4m3fn), UNSUPPORTED),
    "rank 9": (np.ones((1,) * 9, np.float32), INVALID),
    "rank 9 tensor": (torch.ones((1,) * 9), INVALID),
    "rank 9 dlpack": (OnlyDLPack(np.ones((1,) * 9, np.float32)), INVALID),
    "fields": (np.zeros(4, [("a", "i1"), ("b", "<f4")])["b"], INVALID),
    "gradient": (torch.ones(2, 4, requires_grad=True), INVALID),
    "meta": (torch.ones(2, 4, device="meta"), UNSUPPORTED),
    "complex tensor": (torch.ones(2, 4, dtype=torch.complex64), UNSUPPORTED),
    "negated": (torch.ones(2, 4, dtype=torch.complex64).conj().imag, UNSUPPORTED),
    "sparse": (sparse(), UNSUPPORTED),
    "csr": (csr(), UNSUPPORTED),
    "quantized": (torch.quantize_per_tensor(torch.ones(2, 4), 1, 0, torch.qint8), UNSUPPORTED),
    "broken": (Broken(), UNSUPPORTED),
    "gpu": (OnGpu(), UNSUPPORTED),
    "no device": (NoDevice(), UNSUPPORTED),
    "no capsule": (NoCapsule(), UNSUPPORTED),
    "misaligned": (misaligned(), "misaligned_operand"),
}
TAKERS = {
    "x": lambda a: octavo.quantize(a, 1),
    "q": lambda a: octavo.dequantize(a, 1),
    "dy": lambda a: octavo.dequantize_backward(a, 1),
    "x_q": lambda a: octavo.int_matmul(a, W),
    "weight_q": lambda a: octavo.int_matmul(Q, a),
    "out": lambda a: octavo.fake_quantize(F, 1, out=a),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("argument", TAKERS)
def test_arrays_that_are_none(kind, argument):
    value, code = ARRAYS[kind]
    if argument == "out" and value is None:
        return
    with pytest.raises(octavo.Error) as e:
        TAKERS[argument](value)
    assert e.value.argument == argument
    assert str(e.value).startswith(f"{argument}: expected")
    if argument in ("x", "dy"):
        assert e.value.code == code


def linear(**k):
    return octavo.linear(**{"x": F, "weight_q": W, "weight_scale": 1, **k})


def smooth(**k):
    given = {"x_q": Q, "act_scale": 1, "weight_q": W, "weight_scale": 1, **k}
    return octavo.smoothquant_linear(**given)


def matmul(**k):
    given = {"x_q": Q, "act_scale": 1, "weight_q": W, "weight_scale": 1, **k}
    return octavo.quantized_matmul(**given)


def quantize(**k):
    return octavo.quantize(**{"x": F, "scale": 1, **k})


def dequantize(**k):
    return octavo.dequantize(**{"q": Q, "scale": 1, **k})


def dynamic(**k):
    return octavo.quantize_dynamic(**{"x": F, **k})


def backward(**k):
    return octavo.quantize_backward(**{"x": F, "dy": F, "scale": 1, **k})


def fake(**k):
    return octavo.fake_quantize(**{"x": F, "scale": 1, **k})


U4 = np.ones((2, 2), np.uint8)
# (function, the argument that is wrong, its value, the code, others that are given)
CASES = [
    *[(f, a, bad, UNSUPPORTED, {})
      for f, a in [(quantize, "dtype"), (quantize, "profile"), (dequantize, "dtype"),
                   (dequantize, "q_dtype"), (dynamic, "mode"), (dynamic, "profile"),
                   (linear, "mode"), (linear, "out_dtype"), (matmul, "out_dtype"),
                   (quantize, "stream"), (linear, "stream")]
      for bad in ["nonsense", "", 5, "\ud800", Mute(), Surrogate(), np.ones(3)]],
    *[(dynamic, "scope", bad, UNSUPPORTED, {}) for bad in ["row", None, 3, "\ud800", Mute()]],
    *[(quantize, "axis", bad, UNSUPPORTED, {}) for bad in ["rows", "", "\ud800"]],
    *[(quantize, "axis", bad, INVALID, {}) for bad in [2, -3, 1.5, True, 2**70, (0,)]],
    (quantize, "axis", 0, INVALID, {"x": np.array(1, np.float32)}),
    *[(quantize, "group_size", bad, INVALID, {}) for bad in [0, -1, 3, 8, 1.5, "4", 2**70]],
    *[(quantize, "q_min", bad, INVALID, {}) for bad in [-129, 1.5, "0", 2**40]],
    *[(fake, "q_max", bad, INVALID, {}) for bad in [-200, 1.5, "0", 2**31]],
    *[(quantize, "scale", bad, INVALID, {})
      for bad in [None, 0, -1.0, np.nan, np.inf, 1e-45, True, 10**400, np.ones(2), np.ones((1, 1)),
                  np.float32([]), [[1], [2, 3]]]],
    *[(quantize, "scale", bad, UNSUPPORTED, {})
      for bad in ["1", object(), np.array("a"), [True], {}, 1j, np.ones(3, complex)]],
    *[(quantize, "scale", bad, INVALID, {"axis": 0})
      for bad in [np.ones(3), np.ones((2, 1)), [1, 0], [1, np.nan], [1, -1]]],
    *[(quantize, "scale", np.ones(3), INVALID, w) for w in [{"axis": "token"}, {"group_size": 2}]],
    *[(dequantize, "scale", bad, INVALID, {}) for bad in [np.nan, np.inf, None]],
    *[(quantize, "zero_point", bad, INVALID, {})
      for bad in [2**31, np.ones(2, np.int32), np.uint64([2**63]), np.int64([-(2**40)]), True]],
    *[(quantize, "zero_point", bad, UNSUPPORTED, {})
      for bad in [1.5, "1", np.float32(1), np.ones(1), [True]]],
    (quantize, "zero_point", [1, 2**40], INVALID, {"axis": 0}),
    (quantize, "dtype", "f32", UNSUPPORTED, {}),
    (dequantize, "dtype", "s8", UNSUPPORTED, {}),
    (quantize, "x", Q, UNSUPPORTED, {}),
    (dequantize, "q", F, UNSUPPORTED, {}),
    (dequantize, "q", Q, UNSUPPORTED, {"q_dtype": "s4"}),
    (dequantize, "q", Q.astype(np.uint16), UNSUPPORTED, {}),
    (dequantize, "q_dtype", "s16", UNSUPPORTED, {}),
    (quantize, "out", np.zeros((2, 4), np.int8), UNSUPPORTED, {"dtype": "s16"}),
    (dequantize, "q", U4[:, ::2].repeat(2, 1)[:, ::-1], INVALID, {"q_dtype": "u4"}),
    *[(dequantize, "length", bad, INVALID, {"q": U4, "q_dtype": "u4"}) for bad in [2, 5, -1, "3"]],
    (dequantize, "length", 3, INVALID, {}),
    (dequantize, "length", 2, INVALID, {"q": U4[0, 0], "q_dtype": "u4"}),
    (backward, "dy", np.ones((2, 3), np.float32), INVALID, {}),
    (backward, "dy", np.ones((2, 4)), UNSUPPORTED, {}),
    (dynamic, "axis", None, INVALID, {"scope": "channel"}),
    (dynamic, "axis", "token", INVALID, {"scope": "channel"}),
    (dynamic, "axis", 0, INVALID, {}),
    (dynamic, "group_size", None, INVALID, {"scope": "group"}),
    (dynamic, "group_size", 3, INVALID, {"scope": "group"}),
    (dynamic, "x", Q, UNSUPPORTED, {}),
    (dynamic, "x", np.float32(1), INVALID, {}),
    (quantize, "q_max", 128, INVALID, {}),
    *[(f, "q_max", 32768, INVALID, {"dtype": "s16"}) for f in [quantize, dynamic]],
    (quantize, "q_max", -3, INVALID, {"q_min": -2}),
    (linear, "x", Q, UNSUPPORTED, {}),
    (linear, "x", Q, UNSUPPORTED, {"out_dtype": "f32"}),
    (linear, "x", np.array(1, np.float32), INVALID, {}),
    (linear, "weight_q", np.ones((3, 5), np.int8), INVALID, {}),
    (linear, "weight_q", np.ones((3, 4, 1), np.int8), INVALID, {}),
    (linear, "weight_q", F, UNSUPPORTED, {}),
    (linear, "x", np.ones((2, 5), np.float32), INVALID, {"weight_q": octavo.pack(W)}),
    *[(linear, "weight_scale", bad, INVALID, {}) for bad in [None, np.ones(2), np.ones((1, 3)),
                                                              np.nan, np.inf]],
    *[(linear, "bias", bad, INVALID, {}) for bad in [1.0, np.ones(2), np.ones((3, 1))]],
    *[(linear, "residual", bad, INVALID, {}) for bad in [np.ones((2, 4), np.float32),
                                                          np.ones(6, np.float32)]],
    (linear, "residual", np.ones((2, 3)), UNSUPPORTED, {}),
    *[(linear, "relu", bad, INVALID, {}) for bad in [None, 1, "yes"]],
    *[(linear, "out_dtype", bad, UNSUPPORTED, {}) for bad in ["s8", "s4", "s16"]],
    (linear, "weight_q", W.astype(np.int16), UNSUPPORTED, {}),
    *[(smooth, "act_scale", bad, INVALID, {}) for bad in [None, np.nan, np.ones(3), [1, np.inf]]],
    *[(smooth, "act_zero_point", bad, INVALID, {})
      for bad in [128, -129, 2**40, np.ones(3, int), [0, 200]]],
    *[(smooth, "act_zero_point", bad, UNSUPPORTED, {}) for bad in [1.5, "1", np.ones(1)]],
    *[(smooth, "out_zero_point", bad, INVALID, {"out_dtype": "s8", "out_scale": 1})
      for bad in [2**31, [1, 2]]],
    *[(matmul, "act_scale", bad, INVALID, {}) for bad in [None, np.nan, np.ones(3)]],
    *[(matmul, "act_zero_point", bad, INVALID, {}) for bad in [200, np.ones(3, int)]],
    *[(matmul, "weight_zero_point", bad, INVALID, {}) for bad in [200, np.ones(2, int)]],
    (matmul, "out_scale", None, INVALID, {"out_dtype": "s8"}),
    (matmul, "out_scale", 0.5, INVALID, {}),
    *[(matmul, "out_scale", bad, INVALID, {"out_dtype": "s8"}) for bad in [0, -1, np.nan]],
    *[(f, "out", read_only(np.zeros((2, n), t)), INVALID, {})
      for f, n, t in [(quantize, 4, np.int8), (fake, 4, np.float32), (linear, 3, np.float32)]],
    (dequantize, "out", read_only(np.zeros((2, 4), ml_dtypes.bfloat16)), INVALID,
     {"dtype": "bf16"}),
    *[(quantize, "out", np.zeros(s, np.int8), INVALID, {}) for s in [(4, 2), (8,), (2, 4, 1)]],
    (quantize, "out", np.zeros((2, 4), np.uint8), UNSUPPORTED, {}),
    (quantize, "out", np.zeros((4, 2), np.int8).T, INVALID, {}),
    (quantize, "out", np.zeros((2, 4), np.uint8), INVALID, {"dtype": "s4"}),
    (quantize, "out", np.zeros((2, 4), np.uint8)[:, ::2], INVALID, {"dtype": "s4"}),
    (quantize, "out", np.zeros((2, 2), np.int8), UNSUPPORTED, {"dtype": "s4"}),
    (linear, "out", np.zeros((2, 4), np.float32), INVALID, {}),
    (linear, "out", np.zeros((3, 2), np.float32).T, INVALID, {}),
    (linear, "out", np.zeros((2, 3)), UNSUPPORTED, {}),
]  # fmt: skip


def snapshot(value):
    return value.tobytes() if isinstance(value, np.ndarray) else None


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[1]}")
def test_refusals(case):
    function, argument, value, code, others = case
    before = snapshot(value) if argument == "out" else None
    with pytest.raises(octavo.Error) as e:
        function(**others, **{argument: value})
    assert e.value.argument == argument, str(e.value)
    assert str(e.value).startswith(f"{argument}: "), str(e.value)
    assert e.value.code == code, str(e.value)
    if before is not None:
        assert snapshot(value) == before


@pytest.mark.parametrize("case", [c for c in CASES if c[1] != "out"][::3],
                         ids=lambda c: f"{c[0].__name__}-{c[1]}")  # fmt: skip
def test_no_byte_of_out_changes(case):
    function, argument, value, _, others = case
    shape = (2, 3) if function in (linear, smooth, matmul) else (2, 4)
    for t in (np.int8, np.float32):
        out = np.full(shape, 55, t)
        with pytest.raises(octavo.Error):
            function(**others, **{argument: value}, out=out)
        assert (out == 55).all()


def overlapping(argument):
    """A linear layer of one row whose out lies over part of that argument, which is no contiguous
    array of the type that the library reads, so that it reads a copy."""
    numbers = np.ones(8, np.int32)
    given = {argument: numbers[::2]}
    if argument == "weight_zero_point":
        return octavo.int_matmul(Q[0], W[[0, 0, 0, 0]], **given, out=numbers[:4])
    given = {"weight_scale": 1, **given}
    return octavo.linear(F[0], W[[0, 0, 0, 0]], **given, out=numbers[:4].view(np.float32))


@pytest.mark.parametrize("argument", ["weight_scale", "bias", "weight_zero_point"])
def test_out_over_numbers_that_are_copied(argument):
    with pytest.raises(octavo.Error, match=f"out: expected memory apart from {argument}, got"):
        overlapping(argument)


@pytest.mark.parametrize("argument", ["weight_scale", "bias"])
def test_out_over_numbers_that_are_not(argument):
    numbers = np.ones(4, np.float32)
    with pytest.raises(octavo.Error, match=f"out: expected memory apart from {argument}, got"):
        octavo.linear(F, W[[0, 0, 0, 0]], **{"weight_scale": 1, argument: numbers},
                      out=np.lib.stride_tricks.as_strided(numbers, (2, 4), (0, 4)))  # fmt: skip


@pytest.mark.parametrize(
    "argument", ["x, or exactly the same", "scale, got", "zero_point, got", "dy, or exactly"]
)
def test_out_over_arguments_that_have_another_name_in_the_library(argument):
    memory = np.ones(12, np.float32)
    given = {"x": F, "dy": F, "scale": np.ones(4, np.float32), "zero_point": np.ones(4, np.int32)}
    name = argument.partition(",")[0]
    over = memory[1:9].reshape(2, 4) if name in ("x", "dy") else memory[:4]
    given[name] = over.view(given[name].dtype)
    function = octavo.fake_quantize_backward
    if name != "dy":
        del given["dy"]
        function = octavo.fake_quantize
    with pytest.raises(octavo.Error, match=f"^out: expected memory apart from {argument}") as e:
        function(**given, axis=1, out=memory[:8].reshape(2, 4))
    assert e.value.argument == "out"


def test_a_trace_is_refused():
    """It would hold the making of the output, and not what is written into it."""
    with pytest.raises(octavo.Error, match="torch.jit.trace"):
        torch.jit.trace(lambda x: octavo.fake_quantize(x, 0.5), torch.ones(3))


def test_a_gradient_is_no_hindrance_without_grad():
    x = torch.ones(2, 4, requires_grad=True)
    with torch.no_grad():
        assert (octavo.quantize(x, 1) == 1).all()
        assert octavo.linear(x.T.contiguous().T, torch.from_numpy(W), 1).shape == (2, 3)


def test_an_interrupt_is_no_wrong_input():
    class Interrupted(Broken):
        def __dlpack__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        octavo.quantize(Interrupted(), 1)


def test_the_error():
    with pytest.raises(ValueError) as e:
        octavo.quantize(F, 0.0)
    assert isinstance(e.value, octavo.Error)
    assert e.value.code == octavo.ErrorCode.invalid_problem == 2 == e.value.code
    assert e.value.code != "unsupported"
    assert str(e.value.code) == "invalid_problem"


@pytest.mark.parametrize(
    "argument, call",
    [
        ("out_dtype", "octavo.linear(np.ones((1, 2), 'f4'), q, 1.0, out_dtype='bf16')"),
        ("out_dtype", "octavo.smoothquant_linear(q, 1.0, q, 1.0, out_dtype='bf16')"),
        ("dtype", "octavo.dequantize(q, 1.0, dtype='bf16')"),
    ],
)
def test_bf16_without_its_package_names_the_argument_that_asked_for_it(argument, call):
    program = f"""
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, octavo
q = np.ones((1, 2), "i1")
try:
    {call}
except octavo.Error as error:
    assert error.argument == {argument!r} and str(error).startswith({argument!r} + ":"), error
    assert "expected the package ml_dtypes" in str(error) and error.code == "unsupported"
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr
