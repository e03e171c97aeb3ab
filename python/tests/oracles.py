"""What the functions must compute, written from docs/numerics.md with NumPy, as plain as possible.

Nothing here is shared with the library. Equality is of bits; only a NaN equals any NaN.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np

FLOATS = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
RANGES = {
    "s8": (-128, 127),
    "u8": (0, 255),
    "s4": (-8, 7),
    "u4": (0, 15),
    "s16": (-32768, 32767),
}
# What dynamic ranges use unless they are told: of s16, what linear layers can take apart.
DYNAMIC_RANGES = {**RANGES, "s16": (-32639, 32639)}
WHOLE = {"s8": np.int8, "u8": np.uint8, "s16": np.int16}
PACKED = ("s4", "u4")


def compute_type(dtype):
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


def to_odd(x):
    """f64 to f32, the last bit set where that is inexact: rounding once more is then right."""
    with np.errstate(over="ignore", under="ignore"):
        f = x.astype(np.float32)
    back = f.astype(np.float64)
    f = np.where(np.abs(back) > np.abs(x), np.nextafter(f, np.float32(0)), f).astype(np.float32)
    bits = f.view(np.uint32) | (np.isfinite(x) & (back != x)).astype(np.uint32)
    return bits.view(np.float32)


def round_to(x, dtype):
    """One rounding to `dtype`; the cast of ml_dtypes from f64 would be two."""
    x = np.asarray(x)
    if x.dtype == np.float64 and np.dtype(dtype) == FLOATS["bf16"]:
        x = to_odd(x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(dtype)


def spread(parameter, shape, axis=None, group_size=None):
    """A scale or zero point as an array that broadcasts over `shape`."""
    p = np.asarray(parameter)
    if p.ndim == 0 or (p.ndim == 1 and p.size == 1):
        return p.reshape(())
    if group_size is not None:
        return np.repeat(p, group_size, axis=-1)
    if axis == "token":
        return p[..., None]
    sizes = [1] * len(shape)
    sizes[axis] = p.size
    return p.reshape(sizes)


def _level(x, scale, zero_point, profile):
    """rint(v) + zp as exact integers (v is cut to 2^40 first), and where x is NaN."""
    c = compute_type(x.dtype)
    with np.errstate(all="ignore"):
        s = np.asarray(scale).astype(c)
        v = x.astype(c) * (c(1) / s) if profile == "torch" else x.astype(c) / s
        nan = np.isnan(x.astype(c)) & np.ones(v.shape, bool)
        r = np.clip(np.rint(v).astype(np.float64), -(2.0**40), 2.0**40)
    r = np.where(nan, 0.0, r)
    return r.astype(np.int64) + np.asarray(zero_point).astype(np.int64), nan


def levels(x, scale, zero_point=0, q_min=-128, q_max=127, profile="torch"):
    r, _ = _level(x, scale, zero_point, profile)
    return np.clip(r, q_min, q_max)


def quantize(x, scale, zero_point=0, dtype="s8", q_min=None, q_max=None, profile="torch"):
    low, high = RANGES[dtype]
    q_min = low if q_min is None else q_min
    q_max = high if q_max is None else q_max
    q = levels(x, scale, zero_point, q_min, q_max, profile)
    return pack4(q) if dtype in PACKED else q.astype(WHOLE[dtype])


def dequantize(q, scale, zero_point=0, dtype="f32"):
    t = FLOATS[dtype]
    c = compute_type(t)
    with np.errstate(all="ignore"):
        difference = q.astype(np.int64) - np.asarray(zero_point).astype(np.int64)
        return round_to(np.asarray(scale).astype(c) * difference.astype(c), t)


def fake_quantize(x, scale, zero_point=0, q_min=-128, q_max=127, profile="torch"):
    c = compute_type(x.dtype)
    q = levels(x, scale, zero_point, q_min, q_max, profile)
    with np.errstate(all="ignore"):
        difference = q - np.asarray(zero_point).astype(np.int64)
        y = np.asarray(scale).astype(c) * difference.astype(c)
    return round_to(np.where(np.isnan(x.astype(c)), c(np.nan), y), x.dtype)


def mask(x, scale, zero_point, q_min, q_max, profile):
    r, nan = _level(x, scale, zero_point, profile)
    return (r >= q_min) & (r <= q_max) & ~nan


def quantize_backward(x, dy, scale, zero_point=0, q_min=-128, q_max=127, profile="torch"):
    c = compute_type(x.dtype)
    with np.errstate(all="ignore"):
        s = np.asarray(scale).astype(c)
        g = dy.astype(c) * (c(1) / s) if profile == "torch" else dy.astype(c) / s
    return round_to(np.where(mask(x, scale, zero_point, q_min, q_max, profile), g, c(0)), x.dtype)


def fake_quantize_backward(x, dy, scale, zero_point=0, q_min=-128, q_max=127, profile="torch"):
    keep = mask(x, scale, zero_point, q_min, q_max, profile)
    return np.where(keep, dy, np.zeros((), x.dtype)).astype(x.dtype)


def dequantize_backward(dy, scale):
    c = compute_type(dy.dtype)
    with np.errstate(all="ignore"):
        return round_to(dy.astype(c) * np.asarray(scale).astype(c), dy.dtype)


def pack4(q):
    """Two to a byte, the first in the low half; a row that is odd ends in half a byte."""
    q = np.asarray(q).astype(np.int64) & 15
    if q.ndim == 0:
        return q.astype(np.uint8)
    if q.shape[-1] % 2:
        q = np.concatenate([q, np.zeros_like(q[..., :1])], axis=-1)
    return (q[..., 0::2] | q[..., 1::2] << 4).astype(np.uint8)


def unpack4(b, dtype, length):
    q = np.stack([b & 15, b >> 4], axis=-1).astype(np.int64).reshape(*b.shape[:-1], -1)
    q = q[..., :length]
    return np.where(q > 7, q - 16, q) if dtype == "s4" else q


def _range(values, symmetric, q_min, q_max, c):
    finite = values[np.isfinite(values)].astype(c)
    tiny, huge = np.finfo(c).tiny, np.finfo(c).max
    with np.errstate(all="ignore"):
        if symmetric:
            m = np.abs(finite).max(initial=c(0))
            return (max(m / c(q_max), tiny) if m > 0 else c(1)), 0
        low, high = finite.min(initial=c(0)), finite.max(initial=c(0))
        if not high > low:
            return c(1), q_min
        span = high - low
        if np.isfinite(span):
            s = max(span / c(q_max - q_min), tiny)
        else:
            half = c(0.5)
            s = min((high * half - low * half) / (c(q_max - q_min) * half), huge)
        return s, int(np.clip(np.rint(c(q_min) - low / s), q_min, q_max))


def dynamic_parameters(x, scope, mode, q_min, q_max, axis=None, group_size=None):
    """Scales and zero points (int32) of the shapes that quantize_dynamic returns."""
    c = compute_type(x.dtype)
    v = x.astype(c)
    if scope == "tensor":
        shape, slices = (), [v]
    elif scope == "token":
        shape = v.shape[:-1]
        slices = [v[i] for i in np.ndindex(shape)]
    elif scope == "channel":
        shape = (v.shape[axis],)
        slices = list(np.moveaxis(v, axis, 0))
    else:
        shape = (*v.shape[:-1], v.shape[-1] // group_size)
        grouped = v.reshape(*shape, group_size)
        slices = [grouped[i] for i in np.ndindex(shape)]
    found = [_range(np.asarray(s).ravel(), mode == "symmetric", q_min, q_max, c) for s in slices]
    scales = np.array([s for s, _ in found], dtype=c).reshape(shape)
    zeros = np.array([z for _, z in found], dtype=np.int32).reshape(shape)
    return scales, zeros


def fma(a, b, c):
    """a * b + c, rounded once."""
    if a.dtype == np.float64:
        a, b, c = np.broadcast_arrays(a, b, c)
        exact = [
            Fraction(p) * Fraction(q) + Fraction(r)
            for p, q, r in zip(a.flat, b.flat, c.flat, strict=True)
        ]
        y = np.array([float(e) for e in exact], np.float64).reshape(a.shape)
        with np.errstate(all="ignore"):  # an exact 0 has the sign of an ordinary sum
            return np.where(y == 0, a * b + c, y)
    with np.errstate(all="ignore"):
        p = a.astype(np.float64) * b.astype(np.float64)  # exact
        r = c.astype(np.float64)
        total = p + r
        back = total - p
        lost = (p - (total - back)) + (r - back)
        even = (total.view(np.int64) & 1) == 0
        toward = np.where(lost > 0, np.inf, -np.inf)
        shifted = np.nextafter(total, toward)
        # Round to odd: an inexact sum with an even last bit gives way to its odd neighbour.
        total = np.where((lost != 0) & even & np.isfinite(total), shifted, total)
        return total.astype(np.float32)


def segments(k):
    """How many parts a sum of floats over k is cut into."""
    count = 1
    while count < 8 and 2 * count * 512 <= k:
        count *= 2
    return count


def float_sum(factors, k, shape, c):
    """The products of pairs of arrays, in order: each part from 0, and the parts as a tree."""
    count, terms = segments(k), len(factors)
    parts = []
    for j in range(count):
        y = np.zeros(shape, c)
        for a, b in factors[terms * j // count : terms * (j + 1) // count]:
            y = fma(np.broadcast_to(a.astype(c), shape), np.broadcast_to(b.astype(c), shape), y)
        parts.append(y)
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def grouped(a, w, scale, group, zero_a, zero_w, wide):
    """acc [M, N] of integers [M, K] and [N, K], with a scale and a zero point for every `group`."""
    c = np.float64 if wide else np.float32
    a = a.astype(np.int64) - zero_a
    zero_w = np.broadcast_to(zero_w, scale.shape)
    factors = []
    for g in range(scale.shape[1]):
        part = slice(g * group, (g + 1) * group)
        sums = a[:, part] @ (w[:, part].astype(np.int64) - zero_w[:, g : g + 1]).T
        factors.append((sums, scale[:, g]))
    return float_sum(factors, a.shape[1], (a.shape[0], w.shape[0]), c)


def linear(acc, act_scale, weight_scale, *, bias, residual, relu, dtype, wide, out_quant=None):
    """The epilogue on exact sums [M, N]; act_scale [M, 1] or one, weight_scale [N] or one."""
    c = np.float64 if wide else np.float32
    with np.errstate(all="ignore"):
        scale = np.asarray(act_scale).astype(c) * np.asarray(weight_scale).astype(c)
        y = acc.astype(c)
        if bias is None:
            y = y * scale
        else:
            y = fma(y, np.broadcast_to(scale, y.shape), np.broadcast_to(bias.astype(c), y.shape))
        if residual is not None:
            y = y + residual.astype(c)
    if relu:
        y = np.where(y < 0, c(0), y)
    if out_quant is None:
        return round_to(y, FLOATS[dtype])
    scale, zero_point, profile = out_quant
    return quantize(y, scale, zero_point, dtype, profile=profile)


def assert_bits(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, expected)
        return
    nan = np.isnan(got.astype(np.float64))
    np.testing.assert_array_equal(nan, np.isnan(expected.astype(np.float64)))
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    bits = [np.where(nan, 0, np.ascontiguousarray(a).view(unsigned).reshape(a.shape))
            for a in (got, expected)]  # fmt: skip
    np.testing.assert_array_equal(*bits)
