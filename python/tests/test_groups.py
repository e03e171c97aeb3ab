"""Weights in groups and of four bits, activations of 16, layers of floats: all to the bit."""

import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import DTYPES, LAYOUTS, ROWS, SEEDS, lay_out, plain
from hypothesis import given
from hypothesis import strategies as st
from oracles import DYNAMIC_RANGES, FLOATS, RANGES, assert_bits

BYTES = {"s8": np.int8, "u8": np.uint8, "s4": np.int8, "u4": np.uint8}
NIBBLES = ("s4", "u4")
ONE = octavo.Stream(threads=1)


@st.composite
def problems(draw):
    """Sizes, weights of any type in groups, and what is common to all layers."""
    rng = np.random.default_rng(draw(SEEDS))
    n, group, groups = (
        draw(st.sampled_from(s)) for s in ([0, 1, 2, 5, 17], [4, 8, 16], [1, 2, 3, 5])
    )
    integer = draw(st.sampled_from(list(BYTES)))
    low, high = RANGES[integer]
    levels = rng.integers(low, high + 1, (n, group * groups))
    zero = draw(st.sampled_from(["none", "number", "array"]))
    zeros = rng.integers(low, high + 1, (n, groups))
    return {
        "rng": rng, "rows": draw(ROWS), "n": n, "k": group * groups, "group": group,
        "integer": integer, "levels": levels, "layout": draw(LAYOUTS),
        "weight": oracles.pack4(levels) if integer in NIBBLES else levels.astype(BYTES[integer]),
        "scale": np.exp(rng.normal(-3, 1, (n, groups))).astype(FLOATS[draw(DTYPES)]),
        "zero": {"none": None, "number": high // 2}.get(zero, zeros),
        "packed": draw(st.booleans()), "relu": draw(st.booleans()),
        "bias": plain(rng, n, "f32") if draw(st.booleans()) else None,
        "residual": draw(st.booleans()),
    }  # fmt: skip


def given_weight(p):
    """The arguments of a call: a packed weight that holds everything, or all of it."""
    q_dtype = p["integer"] if p["integer"] in NIBBLES else None
    weight, scale = lay_out(p["weight"], p["layout"]), lay_out(p["scale"], p["layout"])
    if p["packed"]:
        packed = octavo.pack(
            weight, scale=scale, zero_point=p["zero"], group_size=p["group"], q_dtype=q_dtype
        )
        return {"weight_q": packed}
    return {"weight_q": weight, "weight_scale": scale, "group_size": p["group"],
            "weight_zero_point": p["zero"], "q_dtype": q_dtype}  # fmt: skip


def expected(p, a, zero_a, act_scale, residual, out, wide):
    a = a.reshape(int(np.prod(p["rows"])), p["k"])
    zero_w = 0 if p["zero"] is None else p["zero"]
    scale = p["scale"]
    if scale.shape[1] == 1:  # one for each output channel is another formula
        zero_w = np.broadcast_to(zero_w, scale.shape)
        acc = (a.astype(np.int64) - zero_a) @ (p["levels"] - zero_w).T
        scale = scale[:, 0]
    else:
        acc = oracles.grouped(a, p["levels"], scale, p["group"], zero_a, zero_w, wide)
        scale = 1
    y = oracles.linear(
        acc, act_scale, scale, bias=p["bias"], relu=p["relu"], dtype=out, wide=wide,
        residual=None if residual is None else residual.reshape(acc.shape),
    )  # fmt: skip
    return y.reshape(*p["rows"], p["n"])


def residual_of(p, dtype):
    return plain(p["rng"], (*p["rows"], p["n"]), dtype) if p["residual"] else None


KINDS = [("symmetric", None), ("symmetric", "s8"), ("symmetric", "s16"), ("asymmetric", None),
         ("asymmetric", "u8"), ("asymmetric", "s8")]  # fmt: skip


@given(problems(), DTYPES, st.sampled_from([None, *FLOATS]), st.sampled_from(KINDS))
def test_linear(p, dtype, out_dtype, kind):
    x = plain(p["rng"], (*p["rows"], p["k"]), dtype)
    mode, quantized = kind
    out = out_dtype or dtype
    residual = residual_of(p, out)
    y = octavo.linear(
        lay_out(x, p["layout"]), **given_weight(p), bias=p["bias"], quantized=quantized, mode=mode,
        residual=residual, relu=p["relu"], out_dtype=out_dtype, stream=ONE,
    )  # fmt: skip
    integer = quantized or ("s8" if mode == "symmetric" else "u8")
    low, high = DYNAMIC_RANGES[integer]
    scale, zero = oracles.dynamic_parameters(x, "token", mode, low, high)
    a = oracles.quantize(x, scale[..., None], zero[..., None], integer, q_min=low, q_max=high)
    wide = "f64" in (dtype, out)
    want = expected(p, a, zero.reshape(-1, 1), scale.reshape(-1, 1), residual, out, wide)
    assert_bits(y, want)


@given(problems(), st.sampled_from(["s8", "u8"]), st.sampled_from([*FLOATS]))
def test_smoothquant_linear(p, integer, out):
    low, high = RANGES[integer]
    a = p["rng"].integers(low, high + 1, (*p["rows"], p["k"])).astype(BYTES[integer])
    residual = residual_of(p, out)
    y = octavo.smoothquant_linear(
        lay_out(a, p["layout"]), 0.013, **given_weight(p), bias=p["bias"], act_zero_point=7,
        residual=residual, relu=p["relu"], out_dtype=out, stream=ONE,
    )  # fmt: skip
    assert_bits(y, expected(p, a, 7, 0.013, residual, out, out == "f64"))


@given(problems(), st.sampled_from(["s8", "u8"]), st.sampled_from([*FLOATS]), st.booleans())
def test_quantized_matmul(p, integer, out, static):
    low, high = RANGES[integer]
    a = p["rng"].integers(low, high + 1, (*p["rows"], p["k"])).astype(BYTES[integer])
    act_scale = np.exp(p["rng"].normal(-3, 1, p["rows"]))
    residual = residual_of(p, out)
    given = {"bias": p["bias"], "residual": residual, "relu": p["relu"], "out_dtype": out}
    if static:  # (which takes scales of rows, too)
        y = octavo.smoothquant_linear(a, act_scale, **given_weight(p), **given, stream=ONE)
    else:
        y = octavo.quantized_matmul(a, act_scale=act_scale, **given_weight(p), **given, stream=ONE)
    sa = np.asarray(act_scale).reshape(-1, 1)
    assert_bits(y, expected(p, a, 0, sa, residual, out, out == "f64"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("integer", NIBBLES)
@pytest.mark.parametrize("k", [1, 2, 7, 33])
def test_four_bits_with_a_scale_for_each_channel(integer, k, packed):
    rng = np.random.default_rng(k)
    low, high = RANGES[integer]
    levels, zero = rng.integers(low, high + 1, (5, k)), rng.integers(low, high + 1, 5)
    a = rng.integers(-128, 128, (3, k)).astype(np.int8)
    scale = np.float32([0.1, 0.25, 0.3, 0.7, 1.5])
    weight = {"weight_q": oracles.pack4(levels), "q_dtype": integer, "length": k}
    if packed:
        weight = {"weight_q": octavo.pack(weight["weight_q"], q_dtype=integer, length=k)}
    y = octavo.smoothquant_linear(
        a, 0.5, **weight, weight_scale=scale, weight_zero_point=zero, stream=ONE
    )
    acc = a.astype(np.int64) @ (levels - zero[:, None]).T
    want = oracles.linear(
        acc, 0.5, scale, bias=None, residual=None, relu=False, dtype="f32", wide=False
    )
    assert_bits(y, want)


@pytest.mark.parametrize("k, group", [(1024, 64), (1536, 512), (2048, 32), (4160, 64)])
def test_sums_of_groups_have_segments(k, group):
    rng = np.random.default_rng(k)
    x, w = plain(rng, (2, k), "f32"), rng.integers(-8, 8, (3, k))
    scale = np.exp(rng.normal(-3, 1, (3, k // group))).astype(np.float16)
    packed = octavo.pack(oracles.pack4(w), q_dtype="s4", scale=scale, group_size=group)
    low, high = DYNAMIC_RANGES["s16"]
    sa, _ = oracles.dynamic_parameters(x, "token", "symmetric", low, high)
    a = oracles.quantize(x, sa[:, None], 0, "s16", q_min=low, q_max=high)
    acc = oracles.grouped(a, w, scale, group, 0, 0, False)
    assert_bits(octavo.linear(x, packed, quantized="s16"), acc * sa[:, None])


def test_a_group_of_a_whole_row_is_a_channel():
    rng = np.random.default_rng(1)
    x, w = plain(rng, (3, 8), "f32"), rng.integers(-128, 128, (4, 8)).astype(np.int8)
    scale = rng.random((4, 1)).astype(np.float32)
    want = octavo.linear(x, w, scale)
    for size in (8, 100):
        assert_bits(octavo.linear(x, w, scale, group_size=size), want)
        packed = octavo.pack(w, scale=scale, group_size=size)
        assert packed.group_size is None
        assert_bits(octavo.linear(x, packed), want)


def test_one_number_serves_all_groups():
    rng = np.random.default_rng(2)
    x, w = plain(rng, (3, 16), "f32"), rng.integers(0, 16, (4, 16))
    nibbles = oracles.pack4(w)
    all_of = {"q_dtype": "u4", "group_size": 8}
    want = octavo.linear(
        x, nibbles, np.full((4, 2), 0.3), weight_zero_point=np.full((4, 2), 8), **all_of
    )
    assert_bits(octavo.linear(x, nibbles, 0.3, weight_zero_point=8, **all_of), want)
    assert_bits(octavo.linear(x, octavo.pack(nibbles, scale=0.3, zero_point=8, **all_of)), want)


def test_tensors():
    rng = np.random.default_rng(3)
    x, w = plain(rng, (3, 16), "f32"), oracles.pack4(rng.integers(-8, 8, (4, 16)))
    scale = rng.random((4, 2)).astype(FLOATS["bf16"])
    tensors = [torch.from_numpy(x), torch.from_numpy(w)]
    tensors.append(torch.from_numpy(scale.astype(np.float32)).to(torch.bfloat16))
    how = {"q_dtype": "s4", "group_size": 8}
    want = octavo.linear(x, w, scale, **how)
    assert_bits(octavo.linear(*tensors, **how).numpy(), want)
    packed = octavo.pack(tensors[1], scale=tensors[2], **how)
    assert_bits(octavo.linear(tensors[0], packed).numpy(), want)
    weight, unpacked, none = packed.unpack()
    assert torch.equal(weight, tensors[1])
    assert torch.equal(unpacked, tensors[2])
    assert none is None


# ---- floats -------------------------------------------------------------------------------------

FEW = ["f32", "f16", "bf16"]


def floats(x, w, bias, residual, relu, out):
    """[M, K] and [N, K], in f32."""
    shape = (x.shape[0], w.shape[0])
    factors = [(x[:, i : i + 1], w[:, i]) for i in range(x.shape[1])]
    acc = oracles.float_sum(factors, x.shape[1], shape, np.float32)
    return oracles.linear(acc, 1, 1, bias=bias, residual=residual, relu=relu, dtype=out, wide=False)


@given(
    ROWS, *[st.sampled_from([0, 1, 3, 8, 33])] * 2, *[st.sampled_from(FEW)] * 3, SEEDS, LAYOUTS,
    *[st.booleans()] * 4,
)  # fmt: skip
def test_float_linear(rows, n, k, dtype, weight_dtype, out, seed, layout, packed, bias, residual,
                      relu):  # fmt: skip
    rng = np.random.default_rng(seed)
    x, w = plain(rng, (*rows, k), dtype), plain(rng, (n, k), weight_dtype)
    bias = plain(rng, n, "f32") if bias else None
    residual = plain(rng, (*rows, n), out) if residual else None
    weight = lay_out(w, layout)
    y = octavo.float_linear(
        lay_out(x, layout), octavo.pack(weight) if packed else weight, bias, residual=residual,
        relu=relu, out_dtype=out, stream=ONE,
    )  # fmt: skip
    m = int(np.prod(rows))
    rest = None if residual is None else residual.reshape(m, n)
    assert_bits(y, floats(x.reshape(m, k), w, bias, rest, relu, out).reshape(*rows, n))


@pytest.mark.parametrize("k", [1023, 1024, 2047, 4100])
def test_sums_of_floats_have_segments(k):
    rng = np.random.default_rng(k)
    x, w = plain(rng, (2, k), "f32"), plain(rng, (3, k), "f16")
    want = floats(x, w, None, None, False, "f32")
    assert_bits(octavo.float_linear(x, w), want)
    assert_bits(octavo.float_linear(x, octavo.pack(w)), want)


def test_float_linear_of_tensors():
    rng = np.random.default_rng(4)
    x = torch.from_numpy(plain(rng, (2, 3, 40), "f32"))
    w = torch.from_numpy(plain(rng, (9, 40), "f32")).to(torch.bfloat16)
    y = octavo.float_linear(x, octavo.pack(w))
    assert torch.equal(y, octavo.float_linear(x, w))
    assert torch.allclose(y, x @ w.float().T, atol=1e-4)
    assert torch.equal(octavo.pack(w).unpack()[0], w)
    out = torch.empty(2, 3, 9, dtype=torch.bfloat16)
    assert octavo.float_linear(x, w, out_dtype="bf16", out=out) is out
    assert torch.equal(out, y.to(torch.bfloat16))
