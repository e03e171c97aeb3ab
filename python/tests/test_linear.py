"""Linear layers and matrix products: any rank, type and epilogue, to the bit, packed or not."""

import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import DTYPES, LAYOUTS, PROFILES, ROWS, SEEDS, lay_out, plain
from hypothesis import given
from hypothesis import strategies as st
from oracles import FLOATS, RANGES, assert_bits

BYTES = {"s8": np.int8, "u8": np.uint8}
# (The arithmetic is the same on any stream; threads that wait for each other take time.)
ONE = octavo.Stream(threads=1)
SIZES = st.sampled_from([0, 1, 2, 3, 7, 16, 33])


def integers(rng, shape, integer):
    low, high = RANGES[integer]
    return np.asarray(rng.integers(low, high + 1, shape)).astype(BYTES[integer])


@st.composite
def problems(draw):
    """Sizes, a generator, and what is common to all layers."""
    rng = np.random.default_rng(draw(SEEDS))
    rows, n, k = draw(ROWS), draw(SIZES), draw(SIZES)
    weight_type = draw(st.sampled_from(["s8", "u8"]))
    weight = integers(rng, (n, k), weight_type)
    scale_kind = draw(st.sampled_from(["number", "array", "column"]))
    scale = np.exp(rng.normal(-4, 1, n)).astype(np.float32)
    scale = {"number": 0.037, "column": scale[:, None]}.get(scale_kind, scale)
    bias = plain(rng, n, "f32") if draw(st.booleans()) else None
    return {
        "rng": rng, "rows": rows, "n": n, "k": k, "weight": weight, "scale": scale, "bias": bias,
        "relu": draw(st.booleans()), "packed": draw(st.booleans()), "layout": draw(LAYOUTS),
        "residual": draw(st.booleans()), "profile": draw(PROFILES),
    }  # fmt: skip


def given_weight(p):
    return octavo.pack(p["weight"]) if p["packed"] else p["weight"]


def flat_scale(p):
    return np.asarray(p["scale"]).reshape(-1) if np.ndim(p["scale"]) else p["scale"]


def residual_of(p, dtype):
    shape = (*p["rows"], p["n"])
    return plain(p["rng"], shape, dtype if dtype in FLOATS else "f32") if p["residual"] else None


def exact(a, w, zero_a=0, zero_w=0):
    """The sums, as rows: [M, K] and [N, K] give [M, N]."""
    a = a.astype(np.int64).reshape(-1, w.shape[1]) if a.size else np.zeros((0, w.shape[1]), int)
    return (a - zero_a) @ (w.astype(np.int64) - zero_w).T


def sums(p, a, zero_a=0, zero_w=0):
    m = int(np.prod(p["rows"]))
    if not p["k"]:
        return np.zeros((m, p["n"]), np.int64)
    return exact(a.reshape(m, p["k"]), p["weight"], zero_a, zero_w)


def epilogue(p, acc, act_scale, residual, dtype, wide, out_quant=None):
    shape = (*p["rows"], p["n"])
    y = oracles.linear(
        acc, act_scale, flat_scale(p), bias=p["bias"], relu=p["relu"], dtype=dtype, wide=wide,
        residual=None if residual is None else residual.reshape(acc.shape), out_quant=out_quant,
    )  # fmt: skip
    return y.reshape(shape)


@given(problems(), DTYPES, st.sampled_from([None, *FLOATS]), st.booleans())
def test_linear(p, dtype, out_dtype, asymmetric):
    x = plain(p["rng"], (*p["rows"], p["k"]), dtype)
    out = out_dtype or dtype
    residual = residual_of(p, out)
    mode, integer = ("asymmetric", "u8") if asymmetric else ("symmetric", "s8")
    y = octavo.linear(
        lay_out(x, p["layout"]), given_weight(p), p["scale"], p["bias"], mode=mode,
        residual=residual, relu=p["relu"], out_dtype=out_dtype, profile=p["profile"],
    )  # fmt: skip
    scale, zero = oracles.dynamic_parameters(x, "token", mode, *RANGES[integer])
    a = oracles.quantize(x, scale[..., None], zero[..., None], integer, profile=p["profile"])
    acc = sums(p, a, zero.reshape(-1, 1))
    wide = "f64" in (dtype, out)
    assert_bits(y, epilogue(p, acc, scale.reshape(-1, 1), residual, out, wide))


@given(problems(), st.sampled_from(["s8", "u8"]), st.sampled_from([*FLOATS, "s8", "u8"]))
def test_smoothquant_linear(p, integer, out):
    a = integers(p["rng"], (*p["rows"], p["k"]), integer)
    residual = residual_of(p, out)
    zero = int(p["rng"].integers(0, 128))
    quantized = out in BYTES
    y = octavo.smoothquant_linear(
        lay_out(a, p["layout"]), 0.013, given_weight(p), p["scale"], p["bias"],
        act_zero_point=zero, residual=residual, relu=p["relu"], out_dtype=out,
        out_scale=0.7 if quantized else None, out_zero_point=3 if quantized else 0,
        profile=p["profile"], stream=ONE,
    )  # fmt: skip
    out_quant = (0.7, 3, p["profile"]) if quantized else None
    expected = epilogue(p, sums(p, a, zero), 0.013, residual, out, out == "f64", out_quant)
    assert_bits(y, expected)


def test_profiles_have_plans_of_their_own():
    """Calls that differ in nothing else, in ties that the reciprocal of the scale misses."""
    a = np.arange(-127, 128, dtype=np.int8)[:, None]
    results = []
    for profile in ("torch", "onnx", "torch"):
        results.append(
            octavo.smoothquant_linear(
                a, 1.0, np.int8([[1]]), 1.0, out_dtype="s8", out_scale=14.0, profile=profile
            )
        )
        expected = oracles.quantize(a.astype(np.float32), 14.0, 0, "s8", profile=profile)
        assert_bits(results[-1], expected)
    assert (results[0] != results[1]).any()


@given(problems(), st.sampled_from(["s8", "u8"]), st.sampled_from([*FLOATS, "s8"]), st.booleans())
def test_quantized_matmul(p, integer, out, per_row):
    rng = p["rng"]
    a = integers(rng, (*p["rows"], p["k"]), integer)
    residual = residual_of(p, out)
    low, high = RANGES["s8" if p["weight"].dtype == np.int8 else "u8"]
    zero_w = rng.integers(low, high + 1, p["n"]) if per_row else 5
    zero_a = integers(rng, p["rows"], integer).astype(np.int32) if per_row else 0
    act_scale = np.exp(rng.normal(-3, 1, p["rows"])) if per_row else 0.25
    quantized = out in BYTES
    y = octavo.quantized_matmul(
        lay_out(a, p["layout"]), given_weight(p), act_scale=act_scale, weight_scale=p["scale"],
        act_zero_point=zero_a, weight_zero_point=zero_w, bias=p["bias"], residual=residual,
        relu=p["relu"], out_dtype=out, out_scale=0.5 if quantized else None,
        profile=p["profile"], stream=ONE,
    )  # fmt: skip
    za = np.asarray(zero_a).reshape(-1, 1) if per_row else 0
    zw = zero_w[:, None] if per_row else 5
    sa = np.asarray(act_scale).reshape(-1, 1) if per_row else act_scale
    out_quant = (0.5, 0, p["profile"]) if quantized else None
    expected = epilogue(p, sums(p, a, za, zw), sa, residual, out, out == "f64", out_quant)
    assert_bits(y, expected)


@given(problems(), st.sampled_from(["s8", "u8"]))
def test_int_matmul(p, integer):
    a = integers(p["rng"], (*p["rows"], p["k"]), integer)
    y = octavo.int_matmul(lay_out(a, p["layout"]), given_weight(p), act_zero_point=7, stream=ONE)
    assert_bits(y, sums(p, a, 7).astype(np.int32).reshape(*p["rows"], p["n"]))


def test_int_matmul_is_that_of_pytorch():
    rng = np.random.default_rng(3)
    a = torch.from_numpy(integers(rng, (2, 5, 64), "u8"))
    w = torch.from_numpy(integers(rng, (9, 64), "s8"))
    y = octavo.int_matmul(a, octavo.pack(w))
    assert torch.equal(y.long(), a.long() @ w.long().T)


def test_the_scale_of_rows_may_be_a_column():
    a, w = np.int8([[1, 2], [3, 4]]), np.int8([[1, 1]])
    want = octavo.quantized_matmul(a, w, act_scale=[0.5, 2], weight_scale=1)
    got = octavo.quantized_matmul(a, w, act_scale=np.float32([[0.5], [2]]), weight_scale=[[1.0]])
    assert_bits(got, want)


@pytest.mark.parametrize("rows", [(3,), (2, 3), (1, 2, 3)])
def test_a_static_layer_takes_scales_of_rows_too(rows):
    rng = np.random.default_rng(6)
    a, w = integers(rng, (*rows, 8), "u8"), integers(rng, (5, 8), "s8")
    scale, zero = rng.random(rows), rng.integers(0, 256, rows)
    for s, z in [(scale, 7), (0.5, zero), (scale, zero), (scale.reshape(-1, 1), zero.reshape(-1))]:
        want = octavo.quantized_matmul(a, w, act_scale=s, weight_scale=0.1, act_zero_point=z)
        assert_bits(octavo.smoothquant_linear(a, s, w, 0.1, act_zero_point=z), want)


def test_one_number_may_be_an_array_of_one():
    a, w = np.int8([[1, 2], [3, 4]]), np.int8([[1, 1]])
    want = octavo.smoothquant_linear(
        a, 0.5, w, 2, act_zero_point=3, out_dtype="u8", out_scale=0.5, out_zero_point=9
    )
    for one in (np.array, np.atleast_1d, torch.tensor, lambda v: [v]):
        got = octavo.smoothquant_linear(
            a, one(0.5), w, one(2), act_zero_point=one(3), out_dtype="u8", out_scale=one(0.5),
            out_zero_point=one(9),
        )  # fmt: skip
        assert_bits(got, want)


def test_relu_may_be_a_bool_of_numpy():
    a, w = np.int8([[1], [-1]]), np.int8([[1]])
    for relu in np.array([0, 1]) > 0:
        got = octavo.smoothquant_linear(a, 1, w, 1, relu=relu)
        assert got.tolist() == [[1], [0 if relu else -1]]


def test_a_residual_may_be_the_output():
    rng = np.random.default_rng(4)
    x, r = plain(rng, (3, 8), "f32"), plain(rng, (3, 5), "f32")
    w = integers(rng, (5, 8), "s8")
    want = octavo.linear(x, w, 0.1, residual=r)
    out = r.copy()
    assert octavo.linear(x, w, 0.1, residual=out, out=out) is out
    assert_bits(out, want)


def test_a_row_does_not_depend_on_its_batch():
    rng = np.random.default_rng(5)
    x, w = plain(rng, (33, 40), "f32"), integers(rng, (11, 40), "s8")
    together = octavo.linear(x, w, 0.1)
    for i in range(33):
        assert_bits(octavo.linear(x[i], w, 0.1), together[i])


def test_out_with_rows_apart():
    big = np.full((4, 9), 7, np.float32)
    x, w = np.ones((4, 3), np.float32), np.ones((5, 3), np.int8)
    octavo.linear(x, w, 1, out=big[:, 2:7])
    assert (big[:, :2] == 7).all()
    assert (big[:, 7:] == 7).all()
    assert_bits(big[:, 2:7], octavo.linear(x, w, 1))


@pytest.mark.parametrize("out", ["s8", "u8"])
def test_quantized_output_needs_its_scale(out):
    a = np.ones((2, 3), np.int8)
    for call in (
        lambda **k: octavo.smoothquant_linear(a, 1, a, 1, out_dtype=out, **k),
        lambda **k: octavo.quantized_matmul(a, a, act_scale=1, weight_scale=1, out_dtype=out, **k),
    ):
        with pytest.raises(octavo.Error, match="out_scale") as e:
            call()
        assert e.value.argument == "out_scale"
        assert call(out_scale=0.5).dtype == BYTES[out]
