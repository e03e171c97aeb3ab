"""quantize, dequantize and fake_quantize: any shape, type, granularity and layout, to the bit."""

import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import DTYPES, LAYOUTS, PROFILES, SEEDS, SHAPES, granularities, lay_out, values
from hypothesis import given
from hypothesis import strategies as st
from oracles import FLOATS, RANGES, assert_bits, spread


def draw_scales(rng, shape, dtype):
    scales = np.exp(rng.normal(-2, 2, shape)) * np.where(rng.random(shape) < 0.3, 2.0**-20, 1)
    return np.where(rng.random(shape) < 0.3, 0.5, scales).astype(FLOATS[dtype])


def draw_zero_points(rng, shape):
    wild = rng.integers(-(2**31), 2**31, shape)
    return np.where(rng.random(shape) < 0.2, wild, rng.integers(-140, 270, shape)).astype(np.int32)


@st.composite
def cases(draw):
    shape = draw(SHAPES)
    axis, group_size, scale_shape = draw(granularities(shape))
    rng = np.random.default_rng(draw(SEEDS))
    dtype = draw(DTYPES)
    scale_type = draw(st.sampled_from(["f32", "f64", "f16"]))
    scale = draw_scales(rng, scale_shape, scale_type)
    scale = np.where(scale > 0, scale, FLOATS[scale_type].type(1))
    zero_point = draw(st.sampled_from(["none", "number", "array"]))
    zp = {"none": None, "number": int(rng.integers(-9, 9))}.get(
        zero_point, draw_zero_points(rng, scale_shape)
    )
    if draw(st.booleans()) and scale.ndim == 0:
        scale = float(scale)
    where = {"axis": axis, "group_size": group_size}
    return shape, dtype, scale, zp, where, rng, draw(LAYOUTS)


def spread_both(scale, zp, shape, where):
    return spread(scale, shape, **where), spread(0 if zp is None else zp, shape, **where)


@given(cases(), PROFILES, st.sampled_from(list(RANGES)), st.booleans())
def test_quantize(case, profile, integer, narrow):
    shape, dtype, scale, zp, where, rng, layout = case
    x = values(rng, shape, dtype)
    limits = {"q_min": RANGES[integer][0] + 2, "q_max": RANGES[integer][1] - 1} if narrow else {}
    q = octavo.quantize(
        lay_out(x, layout), scale, zp, dtype=integer, profile=profile, **where, **limits
    )
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(q, oracles.quantize(x, s, z, integer, profile=profile, **limits))


@given(cases(), st.sampled_from(["s8", "u8", "s16"]), DTYPES)
def test_dequantize(case, integer, dtype):
    shape, _, scale, zp, where, rng, layout = case
    q = rng.integers(RANGES[integer][0], RANGES[integer][1] + 1, shape)
    q = np.asarray(q).astype(oracles.WHOLE[integer])
    x = octavo.dequantize(lay_out(q, layout), scale, zp, dtype=dtype, **where)
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(x, oracles.dequantize(q, s, z, dtype))


@given(cases(), st.sampled_from(["s4", "u4"]), DTYPES)
def test_dequantize_packed(case, integer, dtype):
    shape, _, scale, zp, where, rng, _ = case
    levels = rng.integers(RANGES[integer][0], RANGES[integer][1] + 1, shape)
    b = oracles.pack4(levels)
    odd = {"length": shape[-1]} if shape else {}
    x = octavo.dequantize(b, scale, zp, dtype=dtype, q_dtype=integer, **odd, **where)
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(x, oracles.dequantize(np.asarray(levels), s, z, dtype))


def test_the_high_half_of_an_odd_row_is_not_read():
    b = np.uint8([[0x21, 0xF3], [0x54, 0xA6]])
    x = octavo.dequantize(b, 1, q_dtype="u4", length=3)
    np.testing.assert_array_equal(x, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(octavo.dequantize(b, 1, q_dtype="u4")[:, 3], [15, 10])


def test_packed_rows_may_be_apart():
    big = np.full((4, 8), 0x77, np.uint8)
    octavo.quantize(np.float32([[1, 2, 3]] * 4), 1, dtype="s4", out=big[:, :2])
    np.testing.assert_array_equal(big[:, :2], [[0x21, 0x03]] * 4)
    assert (big[:, 2:] == 0x77).all()
    x = octavo.dequantize(big[::2, :2], 1, q_dtype="s4", length=3)
    np.testing.assert_array_equal(x, [[1, 2, 3]] * 2)


@given(cases(), PROFILES, st.sampled_from([(-128, 127), (0, 255), (-8, 7), (-70000, 2**31 - 1)]))
def test_fake_quantize(case, profile, limits):
    shape, dtype, scale, zp, where, rng, layout = case
    x = values(rng, shape, dtype)
    q_min, q_max = limits
    y = octavo.fake_quantize(
        lay_out(x, layout), scale, zp, q_min=q_min, q_max=q_max, profile=profile, **where
    )
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(y, oracles.fake_quantize(x, s, z, q_min, q_max, profile))


@given(cases(), PROFILES)
def test_quantize_backward(case, profile):
    shape, dtype, scale, zp, where, rng, layout = case
    x, dy = values(rng, shape, dtype), values(rng, shape, dtype)
    dx = octavo.quantize_backward(
        lay_out(x, layout), lay_out(dy, "strided"), scale, zp, profile=profile, **where
    )
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(dx, oracles.quantize_backward(x, dy, s, z, profile=profile))


@given(cases(), PROFILES)
def test_fake_quantize_backward(case, profile):
    shape, dtype, scale, zp, where, rng, layout = case
    x, dy = values(rng, shape, dtype), values(rng, shape, dtype)
    dx = octavo.fake_quantize_backward(x, lay_out(dy, layout), scale, zp, profile=profile, **where)
    s, z = spread_both(scale, zp, shape, where)
    assert_bits(dx, oracles.fake_quantize_backward(x, dy, s, z, profile=profile))


@given(cases())
def test_dequantize_backward(case):
    shape, dtype, scale, _, where, rng, layout = case
    dy = values(rng, shape, dtype)
    dq = octavo.dequantize_backward(lay_out(dy, layout), scale, **where)
    assert_bits(dq, oracles.dequantize_backward(dy, spread(scale, shape, **where)))


@given(SEEDS, st.sampled_from(["f16", "bf16"]), PROFILES)
def test_all_halves(seed, dtype, profile):
    """Every one of the 65,536 patterns."""
    x = np.arange(65536, dtype=np.uint16).view(FLOATS[dtype])
    scale = float(np.exp(np.random.default_rng(seed).normal(-2, 3)))
    assert_bits(
        octavo.quantize(x, scale, 3, profile=profile),
        oracles.quantize(x, scale, 3, profile=profile),
    )


def test_pytorch_agrees():
    rng = np.random.default_rng(1)
    x = torch.from_numpy((rng.normal(0, 3, (6, 50))).astype(np.float32))
    q = octavo.quantize(x, 0.03, 5)
    assert torch.equal(q, torch.quantize_per_tensor(x, 0.03, 5, torch.qint8).int_repr())
    # (PyTorch keeps scales of channels as f64, so those that f32 holds are compared.)
    scale = torch.from_numpy(np.exp(rng.normal(-3, 1, 6)).astype(np.float32)).double()
    zero = torch.arange(6)
    expected = torch.quantize_per_channel(x, scale, zero, 0, torch.quint8)
    q = octavo.quantize(x, scale, zero, axis=0, dtype="u8")
    assert torch.equal(q, expected.int_repr())
    back = octavo.dequantize(q, scale.float(), zero, axis=0)
    assert torch.equal(back, expected.dequantize())


def test_pytorch_agrees_in_training():
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.normal(0, 3, (6, 50)).astype(np.float32)).requires_grad_()
    dy = torch.from_numpy(rng.normal(0, 3, (6, 50)).astype(np.float32))
    scale = torch.from_numpy(np.exp(rng.normal(-3, 1, 50)).astype(np.float32))
    zero = torch.arange(50, dtype=torch.int32) - 25
    y = torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -128, 127)
    y.backward(dy)
    plain = x.detach()
    assert torch.equal(octavo.fake_quantize(plain, scale, zero, axis=1), y.detach())
    got = octavo.fake_quantize_backward(plain, dy, scale, zero, axis=-1)
    assert torch.equal(got, x.grad)


@pytest.mark.parametrize("scale", [0.1, 1, np.float16(0.1), np.float64(0.1), [0.1], (0.1,)])
def test_numbers_of_any_kind(scale):
    x = np.float32([[1, 2], [3, 4]])
    expected = oracles.quantize(x, float(np.ravel(scale)[0]))
    for where in ({}, {"axis": 0}, {"axis": "token"}, {"group_size": 1}):
        assert_bits(octavo.quantize(x, scale, np.int64(0), **where), expected)


def test_a_zero_point_of_any_integer_type():
    x = np.float32([[1, 2], [3, 4]])
    for t in "bhilqBHILQ":
        q = octavo.quantize(x, 1, np.array([1, 2], t), axis=0)
        np.testing.assert_array_equal(q, [[2, 3], [5, 6]])
    np.testing.assert_array_equal(octavo.quantize(x, 1, [1, 2], axis=0), [[2, 3], [5, 6]])
    q = octavo.quantize(x, 1, torch.tensor([1, 2]), axis=0)
    np.testing.assert_array_equal(q, [[2, 3], [5, 6]])


def test_a_scale_that_is_not_contiguous():
    x = np.ones((3, 4), np.float32)
    scales = np.float32([1, 9, 2, 9, 4, 9])[::2]
    np.testing.assert_array_equal(octavo.dequantize_backward(x, scales, axis=0)[:, 0], [1, 2, 4])
    grid = np.float32([[1, 2, 4], [8, 16, 32]]).T
    got = octavo.dequantize_backward(np.ones((3, 2, 2), np.float32), grid, axis="token")
    np.testing.assert_array_equal(got[..., 0], grid)
