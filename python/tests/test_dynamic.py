"""quantize_dynamic: all of its results, to the bit, in the shapes that dequantize takes."""

import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import DTYPES, LAYOUTS, PROFILES, SEEDS, SHAPES, lay_out, values
from hypothesis import given
from hypothesis import strategies as st
from oracles import DYNAMIC_RANGES, RANGES, assert_bits, spread


@st.composite
def scopes(draw):
    """A shape, and the arguments that choose what shares a range."""
    shape = draw(SHAPES)
    scope = draw(st.sampled_from(["tensor", "token", "channel", "group"] if shape else ["tensor"]))
    where = {}
    if scope == "channel":
        where["axis"] = draw(st.integers(-len(shape), len(shape) - 1))
    if scope == "group":
        last = shape[-1]
        divisors = [g for g in range(1, last + 1) if last % g == 0] or [1, 3]
        where["group_size"] = draw(st.sampled_from(divisors))
    return shape, scope, where


MODES = st.sampled_from(
    [*(("symmetric", i) for i in ("s8", "s4", "s16")), *(("asymmetric", i) for i in RANGES)]
)


def where_of(scope, where):
    """How dequantize is told the same."""
    return {"axis": "token"} if scope == "token" else where


@given(scopes(), MODES, DTYPES, PROFILES, LAYOUTS, SEEDS, st.booleans())
def test_dynamic(chosen, mode_and_type, dtype, profile, layout, seed, narrow):
    shape, scope, where = chosen
    mode, integer = mode_and_type
    x = values(np.random.default_rng(seed), shape, dtype)
    q_min, q_max = DYNAMIC_RANGES[integer]
    limits = {}
    if narrow:
        q_min, q_max = q_min + 1, q_max - 2
        limits = {"q_min": q_min, "q_max": q_max}
    q, scale, zero_point = octavo.quantize_dynamic(
        lay_out(x, layout),
        scope=scope,
        mode=mode,
        dtype=integer,
        profile=profile,
        **where,
        **limits,
    )
    scales, zeros = oracles.dynamic_parameters(x, scope, mode, q_min, q_max, **where)
    assert_bits(scale, scales)
    if mode == "symmetric":
        assert zero_point is None
    else:
        assert_bits(zero_point, zeros)
    where = where_of(scope, where)
    s, z = spread(scales, shape, **where), spread(zeros, shape, **where)
    expected = oracles.quantize(x, s, z, integer, q_min, q_max, profile)
    assert_bits(q, expected)
    packed = {"q_dtype": integer, "length": shape[-1] if shape else 1}
    back = octavo.dequantize(
        q, scale, zero_point, **where, **(packed if integer in oracles.PACKED else {})
    )
    levels = oracles.levels(x, s, z, q_min, q_max, profile)
    assert_bits(back, oracles.dequantize(levels, s, z))


@pytest.mark.parametrize(
    ("scope", "where", "expected"),
    [
        ("tensor", {}, ()),
        ("token", {}, (2, 3)),
        ("channel", {"axis": 1}, (3,)),
        ("channel", {"axis": -1}, (8,)),
        ("group", {"group_size": 4}, (2, 3, 2)),
    ],
)
@pytest.mark.parametrize("make", [np.float32, torch.from_numpy])
def test_shapes_of_scales(scope, where, expected, make):
    x = make(np.ones((2, 3, 8), np.float32))
    q, scale, zero_point = octavo.quantize_dynamic(
        x, scope=scope, mode="asymmetric", dtype="u8", **where
    )
    assert tuple(scale.shape) == tuple(zero_point.shape) == expected
    assert type(q) is type(scale) is type(zero_point) is type(x)


def test_f64_has_scales_of_f64():
    _, scale, zero_point = octavo.quantize_dynamic(np.ones((2, 2)), mode="asymmetric", dtype="u8")
    assert scale.dtype == np.float64
    assert zero_point.dtype == np.int32


def test_ranges_that_overflow():
    x = np.float32([[3e38, -3e38, 1.0]])
    q, scale, zero_point = octavo.quantize_dynamic(x, mode="asymmetric", dtype="u8")
    scales, zeros = oracles.dynamic_parameters(x, "token", "asymmetric", 0, 255)
    assert_bits(scale, scales)
    assert_bits(zero_point, zeros)
    assert np.isfinite(scale).all()
    np.testing.assert_array_equal(q, [[255, 0, 128]])


def test_out_is_the_buffer_for_q():
    x = np.float32([[1, -2], [3, 4]])
    out = np.zeros((2, 2), np.int8)
    q, _, _ = octavo.quantize_dynamic(x, out=out)
    assert q is out
    assert_bits(out, octavo.quantize_dynamic(x)[0])


@pytest.mark.parametrize("integer", ["u8", "u4"])
def test_symmetric_is_for_signed_types(integer):
    with pytest.raises(octavo.Error) as e:
        octavo.quantize_dynamic(np.ones((2, 2), np.float32), dtype=integer)
    assert (e.value.code, e.value.argument) == ("unsupported", "dtype")
