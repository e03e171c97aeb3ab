"""Inputs that are the same wherever they are made: only PCG64's raw bits and exact arithmetic."""

from __future__ import annotations

import zlib

import numpy as np

LIMIT = 2.0**31  # the domain: |x / scale| below this


class Bits:
    """A stream of random integers that belongs to a name."""

    def __init__(self, name: str) -> None:
        self._source = np.random.PCG64(zlib.crc32(name.encode()))

    def below(self, bound: int, count: int) -> np.ndarray:
        """`count` integers in [0, bound), as int64."""
        return (self._source.random_raw(count) % np.uint64(bound)).astype(np.int64)

    def floats(self, low: int, high: int, count: int) -> np.ndarray:
        """`count` doubles of either sign with exponents in [low, high) and 24-bit fractions."""
        fraction = 1.0 + np.ldexp(self.below(1 << 23, count).astype(np.float64), -23)
        exponent = self.below(high - low, count) + low
        sign = 1.0 - 2.0 * self.below(2, count)
        return sign * np.ldexp(fraction, exponent.astype(np.int32))


def in_domain(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`x` with everything outside the domain set to 0."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return np.where(np.isfinite(wide) & (np.abs(wide / scale) < LIMIT), x, x.dtype.type(0))


def floats_near_ties(
    name: str, scale: np.ndarray, zero_point: np.ndarray, q_min: int, q_max: int
) -> np.ndarray:
    """f32 values for scales and zero points of the same shape.

    Five in eight lie within 3 units in the last place of a tie (k + 1/2) * scale, and one of a
    multiple k * scale, for every k from below q_min to above q_max; the rest have any magnitude.
    """
    bits, count = Bits(name), scale.size
    s = scale.astype(np.float32).astype(np.float64).ravel()
    zp = zero_point.astype(np.int64).ravel()
    k = q_min - zp - 4 + bits.below(q_max - q_min + 9, count)
    kind = bits.below(8, count)
    with np.errstate(all="ignore"):
        near = ((k + np.where(kind < 5, 0.5, 0.0)) * s).astype(np.float32)
        can_shift = np.isfinite(near) & (np.abs(near) > np.float32(1e-40))
        shift = np.where(can_shift, bits.below(7, count) - 3, 0).astype(np.int32)
        near = (near.view(np.int32) + shift).view(np.float32)
        wide = (bits.floats(-40, 31, count) * s).astype(np.float32)
    x = np.where(kind < 6, near, wide).astype(np.float32)
    special = np.array([-0.0, 1e-45, -1.1754942e-38, 0.0], np.float32)
    places = np.arange(0, count, 97) + np.arange(len(range(0, count, 97))) % 13
    places = places[places < count][1:]  # never the only element
    x[places] = special[np.arange(places.size) % special.size]
    return in_domain(x, s).reshape(scale.shape)


def rows_near_ties(name: str, rows: int, length: int, exponents: tuple[int, int]) -> np.ndarray:
    """f32 rows whose own scale, max |x| / 127, has them lie as `floats_near_ties` says.

    The maximum stands at one place of a row only, so that a place left out of the range shows. One
    row in four has a power of two for its scale: then there are ties, not only near-ties.
    """
    bits = Bits(name + "/rows")
    most = bits.floats(*exponents, rows)
    powers = bits.below(4, rows) == 0
    most[powers] = np.copysign(np.ldexp(127.0, np.frexp(most[powers])[1] - 7), most[powers])
    most = most.astype(np.float32).reshape(rows, 1)
    scale = np.broadcast_to(np.abs(most) / np.float32(127), (rows, length))
    x = floats_near_ties(name, scale, np.zeros_like(scale), -127, 127)
    x = np.where(np.abs(x) < np.abs(most), x, np.float32(0))
    x[np.arange(rows), bits.below(length, rows)] = most[:, 0]
    return x


def gradients(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Finite f32 values of both signs, zeros and extremes among them."""
    count = int(np.prod(shape))
    dy = Bits(name + "/dy").floats(-30, 30, count).astype(np.float32)
    special = np.array([0.0, -0.0, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45], np.float32)
    places = np.arange(5, count, 41)
    dy[places] = special[np.arange(places.size) % special.size]
    return dy.reshape(shape)


def channel_parameters(
    name: str, channels: int, q_min: int, q_max: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scales (f64, most of them no f32 value) and zero points from all over the range."""
    bits = Bits(name + "/channels")
    scales = np.abs(bits.floats(-20, 12, channels))
    scales *= 1.0 + np.ldexp(bits.below(1 << 20, channels).astype(np.float64), -44)
    powers = bits.below(8, channels) == 0
    scales[powers] = np.ldexp(1.0, np.frexp(scales[powers])[1])
    zero_points = q_min + bits.below(q_max - q_min + 1, channels)
    ends = bits.below(6, channels)
    for i, end in enumerate((q_min, q_max, (q_min + q_max + 1) // 2)):
        zero_points[ends == i] = end
    return scales, zero_points.astype(np.int32)
