"""Linear layers by docs/numerics.md in exact arithmetic, on sampled cells of the output."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import exact
import numpy as np
from exact import FORMATS, Format
from oracle_inputs import Bits
from oracle_io import Oracle

RANGES = {"s8": (-128, 127), "u8": (0, 255)}
INTEGERS = {"s8": np.int8, "u8": np.uint8}
FLOATS = ("f32", "f64", "f16", "bf16")
OUTPUTS = (*FLOATS, "s8", "u8")
CELLS = 12  # of each case
SHAPES = ((1, 1, 1), (3, 5, 7), (2, 33, 64), (17, 16, 65), (5, 70, 31), (4, 18, 0))


def compute(*types: str) -> Format:
    return FORMATS["f64" if "f64" in types else "f32"]


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def quantize(x: float, s: float, zp: int, limits: tuple[int, int], profile: str, c: Format) -> int:
    """q = clamp(rint(v) + zp); NaN is taken for 0, and infinities saturate."""
    if profile == "onnx":
        v = exact.divide(x, s, c)
    else:
        v = exact.multiply(x, exact.divide(1.0, s, c), c)
    if math.isnan(v):
        return clamp(zp, *limits)
    if math.isinf(v):
        return limits[1] if v > 0 else limits[0]
    return clamp(round(Fraction(v)) + zp, *limits)


def row_range(row: list[float], mode: str, limits: tuple[int, int], c: Format) -> tuple[float, int]:
    """The scale and the zero point of finite values."""
    low, high = limits
    if mode == "symmetric":
        most = max((abs(x) for x in row), default=0.0)
        return (max(exact.divide(most, float(high), c), c.smallest_normal) if most else 1.0), 0
    lo, hi = min(0.0, min(row, default=0.0)), max(0.0, max(row, default=0.0))
    if lo == hi:
        return 1.0, low
    s = exact.divide(exact.add(hi, -lo, c), float(high - low), c)
    s = max(s, c.smallest_normal)
    return s, clamp(round(Fraction(exact.add(float(low), -exact.divide(lo, s, c), c))), low, high)


@dataclass
class Layer:
    """One case: the fields of its descriptor, and its operands as lists."""

    op: str
    m: int
    n: int
    k: int
    activation: str
    weight: str
    output: str
    profile: str
    mode: str | None = None
    quantized: str | None = None
    rows: list[list[float]] = field(default_factory=list)  # as given, floats or integers
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    activation_scales: list[float] | None = None
    activation_zero_points: list[int] | None = None
    weight_scales: list[float] = field(default_factory=list)
    weight_zero_points: list[int] | None = None
    bias: list[float] | None = None
    residual: list[list[float]] | None = None
    relu: bool = False
    act_scale: float = 1.0
    act_zero_point: int = 0
    output_scale: float = 1.0
    output_zero_point: int = 0

    def activations(self, row: int) -> tuple[list[int], float, int]:
        """A row's integers, scale and zero point."""
        if self.op == "quantized_matmul":
            scales, zps = self.activation_scales, self.activation_zero_points
            scale = (scales or [1.0])[row if scales and len(scales) > 1 else 0]
            zp = (zps or [0])[row if zps and len(zps) > 1 else 0]
            return [int(x) for x in self.rows[row]], scale, zp
        if self.op == "smoothquant_linear":
            return [int(x) for x in self.rows[row]], self.act_scale, self.act_zero_point
        assert self.mode is not None and self.quantized is not None
        own, limits = compute(self.activation), RANGES[self.quantized]
        scale, zp = row_range(self.rows[row], self.mode, limits, own)
        quantized = [quantize(x, scale, zp, limits, self.profile, own) for x in self.rows[row]]
        return quantized, scale, zp

    def cell(self, a: tuple[list[int], float, int], m: int, n: int) -> float | int:
        """y[m, n]: acc, then fma with the bias or a product, the residual, ReLU, the output."""
        c = compute(self.activation, self.output)
        values, activation_scale, activation_zp = a
        zp = self.weight_zero_points[n] if self.weight_zero_points else 0
        pairs = zip(values, self.weights[n], strict=True)
        acc = sum((x - activation_zp) * (int(w) - zp) for x, w in pairs)
        scale = exact.multiply(
            exact.convert(activation_scale, c), exact.convert(self.weight_scales[n], c), c
        )
        if self.bias is None:
            y = exact.multiply(exact.convert(acc, c), scale, c)
        else:
            y = exact.fma(exact.convert(acc, c), scale, exact.convert(self.bias[n], c), c)
        if self.residual is not None:
            y = exact.add(y, self.residual[m][n], c)
        if self.relu and y < 0:
            y = 0.0
        if self.output in FORMATS:
            return exact.convert(y, FORMATS[self.output])
        s = exact.convert(self.output_scale, c)
        return quantize(y, s, self.output_zero_point, RANGES[self.output], self.profile, c)


def floats(bits: Bits, low: int, high: int, count: int, dtype: str) -> list[float]:
    """Numbers that `dtype` holds, zeros among them."""
    made = [exact.convert(float(x), FORMATS[dtype]) for x in bits.floats(low, high, count)]
    zeros = bits.below(23, count) if count else []
    return [0.0 if zero == 0 else x for x, zero in zip(made, zeros, strict=True)]


def make(name: str, turn: int, op: str, activation: str, output: str, profile: str) -> Layer:
    """A case with operands that belong to its name; what is left open goes round with `turn`."""
    bits = Bits(name)
    m, n, k = SHAPES[turn % len(SHAPES)]
    weight = ("s8", "u8")[turn // 2 % 2]
    layer = Layer(op, m, n, k, activation, weight, output, profile)
    low, high = RANGES[weight]
    layer.weights = (bits.below(256, n * k) + low).reshape(n, k).astype(INTEGERS[weight])
    if op == "quantized_linear":
        layer.mode = ("symmetric", "asymmetric")[turn % 2]
        layer.quantized = "s8" if layer.mode == "symmetric" or turn % 3 == 0 else "u8"
        values = floats(bits, -6, 5, m * k, activation)
        layer.rows = [values[i * k : (i + 1) * k] for i in range(m)]
    else:
        first = RANGES[activation][0]
        layer.rows = (bits.below(256, m * k) + first).reshape(m, k).tolist()
        zps = [int(z) + first for z in bits.below(256, m)]
        if op == "smoothquant_linear":
            layer.act_scale = float(bits.floats(-9, 0, 1)[0]) * (1.0 + 2.0**-40)
            layer.act_zero_point = zps[0] if turn % 3 else 0
        else:
            count = 1 if turn % 5 == 0 else m
            layer.activation_scales = floats(bits, -9, 0, count, FLOATS[turn % 4])
            layer.activation_zero_points = zps[:count] if turn % 3 else None
    layer.weight_scales = floats(bits, -9, 0, n, FLOATS[turn // 3 % 4])
    if turn % 4 != 1:
        layer.weight_zero_points = [int(z) + low for z in bits.below(256, n)]
    if turn & 1:
        layer.bias = floats(bits, -4, 6, n, FLOATS[turn // 5 % 4])
    if turn & 2:
        residual = floats(bits, -4, 6, m * n, output if output in FORMATS else "f32")
        layer.residual = [residual[i * n : (i + 1) * n] for i in range(m)]
    layer.relu = bool(turn & 4)
    if output in RANGES:
        layer.output_scale = abs(float(bits.floats(-5, 4, 1)[0])) * (1.0 + 2.0**-40)
        layer.output_zero_point = int(bits.below(100, 1)[0]) - 50
    return layer


def add_case(oracle: Oracle, name: str, turn: int, layer: Layer) -> None:
    """Evaluates a few cells of the layer, and adds it."""
    count = layer.m * layer.n
    cells = sorted({int(i) for i in Bits(name + "/cells").below(count, CELLS)})
    rows = {i // layer.n for i in cells}
    activations = {row: layer.activations(row) for row in rows}
    values = [layer.cell(activations[i // layer.n], *divmod(i, layer.n)) for i in cells]

    def tensor(numbers: list[Any] | None, dtype: str) -> dict[str, Any] | None:
        if numbers is None:
            return None
        nested = bool(numbers) and isinstance(numbers[0], list)
        flat = list(itertools.chain(*numbers)) if nested else numbers
        if dtype in FORMATS:
            return oracle.tensor(exact.stored(flat, dtype), dtype)
        return oracle.tensor(np.array(flat, INTEGERS.get(dtype, np.int32)), dtype)

    own = layer.output if layer.output in FORMATS else "f32"
    oracle.add(
        "linear_exact", name, op=layer.op, profile=layer.profile, m=layer.m, n=layer.n, k=layer.k,
        mode=layer.mode, quantized=layer.quantized,
        input=tensor(layer.rows, layer.activation), weight=oracle.tensor(layer.weights),
        activation_scales=tensor(layer.activation_scales, FLOATS[turn % 4]),
        activation_zero_points=tensor(layer.activation_zero_points, "s32"),
        weight_scales=tensor(layer.weight_scales, FLOATS[turn // 3 % 4]),
        weight_zero_points=tensor(layer.weight_zero_points, "s32"),
        bias=tensor(layer.bias, FLOATS[turn // 5 % 4]), residual=tensor(layer.residual, own),
        relu=layer.relu, act_scale=layer.act_scale, act_zero_point=layer.act_zero_point,
        output_scale=layer.output_scale, output_zero_point=layer.output_zero_point,
        cells=np.array(cells, np.int32), expected=tensor(values, layer.output),
    )  # fmt: skip


def add_all(oracle: Oracle) -> None:
    """Every plan, activation, output and profile, eight times: with every epilogue."""
    kinds = [("quantized_linear", a) for a in FLOATS]
    kinds += itertools.product(("quantized_matmul", "smoothquant_linear"), RANGES)
    turn = 0
    for (op, activation), output, profile in itertools.product(kinds, OUTPUTS, ("torch", "onnx")):
        for _ in range(8):
            name = f"{op}/{activation}/{output}/{profile}/{turn}"
            add_case(oracle, name, turn, make(name, turn, op, activation, output, profile))
            turn += 1
