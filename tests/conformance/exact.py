"""IEEE arithmetic by rational numbers: every operation is exact, then rounded once.

Values are Python floats that the format can hold: all formats here are part of f64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: bits of precision, and the exponents of normal numbers."""

    precision: int
    least: int
    most: int

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, self.least)

    @property
    def largest(self) -> float:
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.precision), self.most)


FORMATS = {
    "f16": Format(11, -14, 15),
    "bf16": Format(8, -126, 127),
    "f32": Format(24, -126, 127),
    "f64": Format(53, -1022, 1023),
}


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def rounded(x: Fraction, to: Format, zero: float = 0.0) -> float:
    """`x` to nearest, ties to even; `zero` if x is 0."""
    if x == 0:
        return zero
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if power(exponent) > size:
        exponent -= 1
    unit = power(max(exponent, to.least) - to.precision + 1)
    result = round(size / unit) * unit  # round() of a Fraction: half to even
    value = math.inf if result >= power(to.most + 1) else float(result)
    return value if x > 0 else -value


def convert(x: float | int, to: Format) -> float:
    """A float, or an integer of any size."""
    if isinstance(x, float) and not math.isfinite(x):
        return x
    return rounded(Fraction(x), to, zero=math.copysign(0.0, x))


def sign(*factors: float) -> float:
    return math.prod(math.copysign(1.0, x) for x in factors)


def multiply(a: float, b: float, to: Format) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return rounded(Fraction(a) * Fraction(b), to, zero=math.copysign(0.0, sign(a, b)))


def divide(a: float, b: float, to: Format) -> float:
    """For a finite b that is not 0."""
    if not math.isfinite(a):
        return a / b
    return rounded(Fraction(a) / Fraction(b), to, zero=math.copysign(0.0, sign(a, b)))


def fma(a: float, b: float, c: float, to: Format) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    product = Fraction(a) * Fraction(b)
    # Zeros of one sign add up to a zero of that sign; all else that cancels is +0.
    negative = product == 0 and c == 0 and sign(a, b) < 0 and math.copysign(1.0, c) < 0
    return rounded(product + Fraction(c), to, zero=-0.0 if negative else 0.0)


def add(a: float, b: float, to: Format) -> float:
    return fma(a, 1.0, b, to)


def stored(values: list[float], dtype: str) -> np.ndarray:
    """As they lie in memory; bf16 as its bits."""
    if dtype == "bf16":
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.array(values, {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype])
