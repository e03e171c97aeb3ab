"""Cases that PyTorch computes and Octavo's profile torch must match bit for bit.

Where PyTorch itself leaves `rint(x * (1 / scale)) + zero_point`, see `without_early_zero_points`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import oracle_inputs as inputs
import torch
import torch_ops as ops
from oracle_io import Oracle

RANGES = {"s8": (-128, 127), "u8": (0, 255)}
INTEGERS = {"s8": np.int8, "u8": np.uint8}
SCALES = [
    *(1.0, 0.5, 2.0**-7, 0.1, 1 / 3, 0.02, 0.0235, 0.7, 7.3, 123.456, 3.7e-5, 1e-10, 1e6, 1e20),
    *(3e37, 2.9e38, 2.0**-126, 3.9e-38, 2.0**-127),
]
ZERO_POINTS = {"s8": (-128, -127, -1, 0, 3, 126, 127), "u8": (0, 1, 10, 127, 128, 254, 255)}
LENGTHS = (1, 2, 7, 8, 15, 17, 31, 33, 63, 65, 127, 255, 1000, 2051)
LARGE = 100_003  # several of PyTorch's threads, its vectors and its tails
FAKE_RANGES = [
    *((-8, 7), (0, 15), (-127, 127), (0, 127), (0, 1), (-32768, 32767), (0, 65535)),
    *((-(2**23), 2**23 - 1), (0, 2**23)),
]
CHANNEL_SHAPES = [
    *((1,), (5,), (130,), (7, 9), (64, 33), (1, 517), (3, 5, 7), (3, 1, 257), (2, 65, 33)),
    *((2, 3, 17, 19), (2, 65, 3, 5), (4, 2, 2, 129), (33, 1027)),
]
HALF_SCALES = (1.0, 0.1, 1 / 3, 2.0**-7, 0.0235, 7.3, 4e-5, 300.0)


def channel_grid() -> Iterator[tuple[tuple[int, ...], int]]:
    """Every axis of every shape."""
    for shape in CHANNEL_SHAPES:
        for axis in range(len(shape)):
            yield shape, axis


def spread(values: np.ndarray, shape: tuple[int, ...], axis: int | None) -> np.ndarray:
    """One parameter per element."""
    if axis is None:
        return np.broadcast_to(values, shape)
    kept = [1] * len(shape)
    kept[axis] = -1
    return np.broadcast_to(values.reshape(kept), shape)


def without_early_zero_points(
    x: np.ndarray, q: np.ndarray, scale: np.ndarray, zp: np.ndarray, limits: tuple[int, int]
) -> tuple[np.ndarray, int]:
    """`x` with 0 wherever PyTorch added the zero point before rounding and the result shows it.

    PyTorch built with FBGEMM (PyPI's, not Debian's) computes rint(fma(x, 1/s, zp)) per tensor and
    rint(x * (1/s) + zp) per channel. Both equal the profile but for a few near-ties when zp is not
    0. Only an element whose result is exactly what one of those formulas gives, and not what the
    profile gives, is replaced; any other difference stays in, to be found.
    """
    inverse = np.float32(1) / scale.astype(np.float32)
    with np.errstate(all="ignore"):
        v = x * inverse
        exact = x.astype(np.longdouble) * inverse.astype(np.longdouble) + zp
        early = [v + zp.astype(np.float32), exact.astype(np.float32)]
    profile = np.clip(np.rint(v).astype(np.float64) + zp, *limits)
    explained = [q == np.clip(np.rint(e), *limits) for e in early]
    early_zero_point = (q != profile) & np.logical_or(*explained)
    return np.where(early_zero_point, np.float32(0), x), int(np.count_nonzero(early_zero_point))


def add_quantize(
    oracle: Oracle,
    name: str,
    x: np.ndarray,
    scales: np.ndarray,
    zps: np.ndarray,
    axis: int | None,
    integer: str,
) -> None:
    """quantize of `x`, restricted as `without_early_zero_points` says."""
    s, z = spread(scales, x.shape, axis), spread(zps, x.shape, axis)
    q = ops.quantize(ops.to_torch(x), scales, zps, axis, integer)
    x, replaced = without_early_zero_points(x, q, s, z, RANGES[integer])
    if replaced:
        q = ops.quantize(ops.to_torch(x), scales, zps, axis, integer)
    oracle.add(
        "quantize", name, op="quantize", profile="torch", shape=x.shape, axis=axis, input=x,
        scales=scales, zero_points=zps, expected=q, replaced=replaced,
    )  # fmt: skip


def add_fake(
    oracle: Oracle,
    name: str,
    x: np.ndarray,
    scales: np.ndarray,
    zps: np.ndarray,
    axis: int | None,
    limits: tuple[int, int],
    dtype: str = "f32",
) -> None:
    """fake-quantize of `x` and its gradient."""
    dy = inputs.gradients(name, x.shape)
    x_torch, dy_torch = ops.to_torch(x, dtype), torch.from_numpy(dy)
    if dtype != "f32":
        largest = float(torch.finfo(x_torch.dtype).max)
        dy_torch = dy_torch.clamp(-largest, largest).to(x_torch.dtype)
    y, dx = ops.fake_quantize_and_gradient(x_torch, dy_torch, scales, zps, axis, *limits)
    scales = scales if axis is None else scales.astype(np.float32)
    common = {
        "profile": "torch", "shape": x.shape, "axis": axis, "q_min": limits[0], "q_max": limits[1],
        "input": oracle.tensor(x, dtype), "scales": scales, "zero_points": zps,
    }  # fmt: skip
    oracle.add("fake", name, op="fake_quantize", expected=oracle.tensor(y, dtype), **common)
    oracle.add(
        "gradient", name, op="fake_quantize_backward", compare="numbers",
        grad=oracle.tensor(ops.to_numpy(dy_torch), dtype), expected=oracle.tensor(dx, dtype),
        **common,
    )  # fmt: skip


def add_dequantize(
    oracle: Oracle, name: str, q: np.ndarray, scales: np.ndarray, zps: np.ndarray, axis: int | None
) -> None:
    """dequantize of `q`, with scales that are f32 values whatever their type.

    PyTorch multiplies by an f64 scale of a channel in f64 (see docs/pytorch_differences.md).
    """
    if axis is not None:
        scales = scales.astype(np.float32).astype(scales.dtype)
    oracle.add(
        "dequantize", name, op="dequantize", profile="torch", shape=q.shape, axis=axis, input=q,
        scales=scales, zero_points=zps, expected=ops.dequantize(q, scales, zps, axis),
    )  # fmt: skip


def one(value: float, dtype: type) -> np.ndarray:
    """The parameter of a per-tensor case."""
    return np.array([value], dtype)


def per_tensor(oracle: Oracle) -> None:
    """Every scale with every zero point, lengths taken in turn, and some large ones."""
    lengths = itertools.cycle(LENGTHS)
    grid = [(t, s, z, next(lengths)) for t in RANGES for s in SCALES for z in ZERO_POINTS[t]]
    grid += [("s8", 0.1, 0, LARGE), ("s8", 0.0235, -7, LARGE), ("u8", 1 / 3, 128, LARGE)]
    for integer, s, z, length in grid:
        name = f"{integer}/per_tensor/scale {s:.6g}/zero point {z}/length {length}"
        limits = RANGES[integer]
        scale, zp = np.full(length, s), np.full(length, z)
        x = inputs.floats_near_ties(name, scale, zp, *limits)
        add_quantize(oracle, name, x, one(s, np.float64), one(z, np.int32), None, integer)
        add_fake(oracle, name, x, one(s, np.float64), one(z, np.int32), None, limits)
    for (low, high), s in itertools.product(FAKE_RANGES, (1.0, 0.1, 0.0235, 123.456)):
        for z in sorted({low, 0, (low + high) // 2, high}):
            length = next(lengths)
            name = f"[{low}, {high}]/per_tensor/scale {s:.6g}/zero point {z}/length {length}"
            x = inputs.floats_near_ties(name, np.full(length, s), np.full(length, z), low, high)
            add_fake(oracle, name, x, one(s, np.float64), one(z, np.int32), None, (low, high))


def per_channel(oracle: Oracle) -> None:
    """Every axis of every shape; scales given as f64 and as f32, zero points mixed and all 0."""
    variants = itertools.cycle([(np.float64, False), (np.float32, False), (np.float32, True)])
    for (shape, axis), integer in itertools.product(channel_grid(), RANGES):
        for scale_type, symmetric in (next(variants), next(variants)):
            limits = RANGES[integer]
            kind = "zero points 0" if symmetric else "zero points mixed"
            name = f"{integer}/per_channel/{shape}/axis {axis}/{scale_type.__name__} scales/{kind}"
            scales, zps = inputs.channel_parameters(name, shape[axis], *limits)
            scales = scales.astype(scale_type)
            zps = np.zeros_like(zps) if symmetric else zps
            s, z = spread(scales, shape, axis), spread(zps, shape, axis)
            x = inputs.floats_near_ties(name, s, z, *limits)
            add_quantize(oracle, name, x, scales, zps, axis, integer)
            add_fake(oracle, name, x, scales, zps, axis, limits)
            q = (inputs.Bits(name).below(256, x.size) + limits[0]).reshape(shape)
            add_dequantize(oracle, name, q.astype(INTEGERS[integer]), scales, zps, axis)


def dequantize_per_tensor(oracle: Oracle) -> None:
    """All 256 values; any finite scale will do here."""
    for integer, s in itertools.product(RANGES, [*SCALES, 0.0, -0.1, -3e38, 1e-45, 1e-60]):
        low, high = RANGES[integer]
        q = np.arange(low, high + 1).astype(INTEGERS[integer])
        for z in ZERO_POINTS[integer]:
            name = f"{integer}/per_tensor/scale {s:.6g}/zero point {z}"
            add_dequantize(oracle, name, q, one(s, np.float64), one(z, np.int32), None)


def all_halves(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All 65,536 bit patterns, and their values as f32."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    if dtype == "f16":
        return bits.astype(np.uint16), bits.astype(np.uint16).view(np.float16).astype(np.float32)
    return bits.astype(np.uint16), (bits << 16).view(np.float32)


def halves(oracle: Oracle, dtype: str) -> None:
    """f16 or bf16: every value in the domain, then random ones per channel."""
    bits, values = all_halves(dtype)
    numpy_type = np.float16 if dtype == "f16" else np.uint16
    for i, s in enumerate(HALF_SCALES):
        limits = list(RANGES.values())[i % 2]
        z = (limits[0], 0, 5, limits[1])[i // 2]
        name = f"{dtype}/per_tensor/scale {s:.6g}/zero point {z}/all values"
        kept = inputs.in_domain(values, one(s, np.float32))
        x = np.where(kept == values, bits, 0).astype(np.uint16)
        scales, zps = one(s, np.float64), one(z, np.int32)
        add_fake(oracle, name, x.view(numpy_type), scales, zps, None, limits, dtype)
    for (shape, axis), limits in zip(channel_grid(), itertools.cycle(RANGES.values())):
        name = f"{dtype}/per_channel/{shape}/axis {axis}"
        scales, zps = inputs.channel_parameters(name, shape[axis], *limits)
        chosen = inputs.Bits(name).below(1 << 16, int(np.prod(shape))).reshape(shape)
        kept = inputs.in_domain(values[chosen], spread(scales.astype(np.float32), shape, axis))
        x = np.where(kept == values[chosen], bits[chosen], 0).astype(np.uint16)
        add_fake(oracle, name, x.view(numpy_type), scales, zps, axis, limits, dtype)


def add_all(oracle: Oracle) -> list[str]:
    """Adds every case and returns the element types this PyTorch cannot fake-quantize."""
    per_tensor(oracle)
    per_channel(oracle)
    dequantize_per_tensor(oracle)
    unsupported = []
    for dtype, torch_type in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        if ops.supports_fake_quantize(torch_type):
            halves(oracle, dtype)
        else:
            unsupported.append(dtype)
    return unsupported
