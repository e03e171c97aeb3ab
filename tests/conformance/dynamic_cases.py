"""Dynamic ranges: what PyTorch's functions find where their formula is ours, and ours in NumPy.

NumPy evaluates docs/numerics.md, "Dynamic range", in the compute type; each operation rounds once,
as there.
"""

from __future__ import annotations

import itertools

import numpy as np
import oracle_inputs as inputs
import torch
import torch_ops as ops
from oracle_io import Oracle
from torch_cases import INTEGERS, RANGES

ROWS = {1: 61, 7: 64, 64: 65, 333: 33, 4096: 13}  # of each length
# The maximum of a row: far from where 1 / scale or the scale itself leaves the normal numbers.
ROW_EXPONENTS = {"f32": (-90, 120), "f16": (-10, 15), "bf16": (-90, 120)}
ROW_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
ASYMMETRIC_ROWS = {1: 24, 2: 40, 7: 64, 33: 48, 333: 33, 4096: 9}
ASYMMETRIC_TYPES = {**ROW_TYPES, "f64": torch.float64}
SPECIAL = 4  # one row in so many is not made of near-ties


def add_rows(
    oracle: Oracle,
    name: str,
    x: torch.Tensor,
    dtype: str,
    profile: str,
    q: np.ndarray,
    scales: np.ndarray,
) -> None:
    """Symmetric dynamic range of each row of `x`."""
    oracle.add(
        "dynamic_range", f"{name}/{profile}", op="dynamic_range_quantize", mode="symmetric",
        profile=profile, shape=x.shape, axis=0, input=oracle.tensor(ops.to_numpy(x), dtype),
        scales=scales, zero_points=np.zeros(len(scales), np.int32), expected=q,
    )  # fmt: skip


def symmetric(oracle: Oracle) -> None:
    """Rows of every length and type in both profiles, and by PyTorch's own functions if it has any.

    torch.quantize_per_tensor_dynamic is not among them: it finds its scale in f64, raises it to
    6.1e-5, and takes the zero point from either end of the range.
    """
    for (dtype, torch_type), (length, rows) in itertools.product(ROW_TYPES.items(), ROWS.items()):
        name = f"{dtype}/symmetric/{rows} rows of {length}"
        x = ops.to_torch(inputs.rows_near_ties(name, rows, length, ROW_EXPONENTS[dtype]))
        x = x.to(torch_type)
        for profile in ("torch", "onnx"):
            add_rows(oracle, name, x, dtype, profile, *ops.quantize_rows(x, profile))
        # Its own functions raise the maximum to 1e-5, and round the scale of bf16 to bf16.
        if dtype != "bf16" and ops.has_quantize_per_token():
            name += "/quantize_per_token"
            x = ops.to_torch(inputs.rows_near_ties(name, rows, length, (-16, 15))).to(torch_type)
            add_rows(oracle, name, x, dtype, "torch", *ops.quantize_per_token(x))


def extremes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest finite value of each row, and 0."""
    finite = np.where(np.isfinite(x), x, x.dtype.type(0))
    zero = x.dtype.type(0)
    return np.minimum(finite.min(-1), zero), np.maximum(finite.max(-1), zero)


def find(x: np.ndarray, limits: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of rows of f32 or f64, asymmetric."""
    real = x.dtype.type
    q_min, q_max = real(limits[0]), real(limits[1])
    info = np.finfo(x.dtype)
    lo, hi = extremes(x)
    with np.errstate(all="ignore"):
        width, half = hi - lo, hi * real(0.5) - lo * real(0.5)
        scale = np.maximum(width / (q_max - q_min), info.tiny)
        wide = np.minimum(half / ((q_max - q_min) * real(0.5)), info.max)
        scale = np.where(np.isinf(width), wide, scale)
        scale = np.where(hi > lo, scale, real(1))
        zero_point = np.clip(np.rint(q_min - lo / scale), q_min, q_max)
    return scale, np.where(hi > lo, zero_point, q_min).astype(np.int32)


def quantize(
    x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, integer: str, profile: str
) -> np.ndarray:
    """Rows of f32 or f64 with a scale and a zero point each."""
    s, z = scale[:, None], zero_point[:, None]
    with np.errstate(all="ignore"):
        v = x * (x.dtype.type(1) / s) if profile == "torch" else x / s
    v = np.where(np.isnan(x), x.dtype.type(0), v)
    return np.clip(np.rint(v).astype(np.float64) + z, *RANGES[integer]).astype(INTEGERS[integer])


def special_rows(x: np.ndarray) -> None:
    """Puts what near-ties do not have into one row of every `SPECIAL`."""
    largest, tiny = np.finfo(x.dtype).max, np.finfo(x.dtype).smallest_subnormal
    beside = [[np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.inf]]  # finite values
    alone = [
        *([0.0], [-0.0], [np.inf], [np.nan], [largest, -largest], [largest, 1.0]),
        *([-largest / 4, largest], [tiny], [3 * tiny, -5 * tiny], [-tiny, 1.0]),
    ]
    kinds = [(kind, 3) for kind in beside] + [(kind, 1) for kind in alone]
    start = x.shape[1] % len(kinds)
    chosen = itertools.islice(itertools.cycle(kinds), start, None)
    for row, (kind, every) in zip(range(0, len(x), SPECIAL), chosen, strict=False):
        values = np.resize(np.array(kind, x.dtype), x.shape[1])
        x[row] = np.where(np.arange(x.shape[1]) % every == 0, values, x[row])


def asymmetric_rows(name: str, dtype: str, rows: int, length: int, integer: str) -> np.ndarray:
    """f32 rows with ends of any size, their other values near ties of the scale these give."""
    bits = inputs.Bits(name + "/ends")
    ends = bits.floats(*ROW_EXPONENTS.get(dtype, (-90, 120)), 2 * rows).reshape(rows, 2)
    sides = bits.below(4, rows)  # both sides alike, any, or one
    near = ends[:, :1] * [-1.0, 1.0] * (1 + bits.floats(-9, -2, 2 * rows).reshape(rows, 2))
    ends = np.where(sides[:, None] < 2, near, ends).astype(np.float32)
    scale, zero_point = find(ends, RANGES[integer])
    spread = [np.broadcast_to(p[:, None], (rows, length)) for p in (scale, zero_point)]
    x = inputs.floats_near_ties(name, *spread, *RANGES[integer])
    lo, hi = (e[:, None] for e in extremes(ends))
    x = np.where((lo <= x) & (x <= hi), x, np.float32(0))
    places = bits.below(length, rows)
    x[np.arange(rows), places] = ends[:, 0]
    x[np.arange(rows), (places + 1) % length] = ends[:, 1]
    return x


def add_asymmetric(
    oracle: Oracle,
    name: str,
    x: torch.Tensor,
    dtype: str,
    integer: str,
    found: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Rows of `x`: by NumPy, or with parameters that were found. A single one is a tensor too."""
    wide = ops.to_numpy(x.double() if dtype == "f64" else x.float())
    scale, zero_point = found or find(wide, RANGES[integer])
    for profile in ("torch", "onnx"):
        q = quantize(wide, scale, zero_point, integer, profile)
        common = {
            "op": "dynamic_range_quantize", "mode": "asymmetric", "profile": profile,
            "scales": scale.astype(wide.dtype), "zero_points": zero_point.astype(np.int32),
        }  # fmt: skip
        group, label = "dynamic_range", f"{integer}/{dtype}/{name}/{profile}"
        values = oracle.tensor(ops.to_numpy(x), dtype)
        if len(x) == 1:
            oracle.add(
                group, label + "/tensor", shape=(x.shape[1],), input=values, expected=q, **common
            )
        oracle.add(
            group, label + "/rows", shape=x.shape, axis=0, input=values, expected=q, **common
        )
        columns = oracle.tensor(ops.to_numpy(x.T), dtype)
        oracle.add(
            group, label + "/columns", shape=x.T.shape, axis=1, input=columns,
            expected=np.ascontiguousarray(q.T), **common,
        )  # fmt: skip


def asymmetric(oracle: Oracle) -> None:
    """Every type, rows of every length, and tensors of one row."""
    for (dtype, torch_type), integer in itertools.product(ASYMMETRIC_TYPES.items(), RANGES):
        for length, rows in [*ASYMMETRIC_ROWS.items(), (1031, 1), (70_001, 1)]:
            name = f"numpy/{rows} rows of {length}"
            x = asymmetric_rows(f"{integer}/{dtype}/{name}", dtype, rows, length, integer)
            if dtype == "f64":  # values that no f32 has
                odd = inputs.Bits(name).below(1 << 20, x.size).reshape(x.shape)
                x = x.astype(np.float64) * (1 + np.ldexp(odd.astype(np.float64), -44))
            if rows > 1:
                special_rows(x)
            add_asymmetric(oracle, name, ops.to_torch(x).to(torch_type), dtype, integer)


def same_zero_points(x: np.ndarray, integer: str) -> np.ndarray:
    """Rows where adding q_min after rounding, as PyTorch's observers do, makes no difference."""
    q_min = np.float32(RANGES[integer][0])
    quotient = extremes(x)[0] / find(x, RANGES[integer])[0]
    return np.rint(q_min - quotient) == q_min - np.rint(quotient)


def by_torch(oracle: Oracle) -> None:
    """What PyTorch's own observers and functions find, in f32, where their formula is ours."""
    for integer, (length, rows) in itertools.product(RANGES, {**ASYMMETRIC_ROWS, 1031: 7}.items()):
        name = f"{rows} rows of {length}"
        x = asymmetric_rows(f"{integer}/torch/{name}", "f16", rows, length, integer)
        x = x[same_zero_points(x, integer)]
        add_asymmetric(
            oracle, "PerChannelMinMaxObserver/" + name, ops.to_torch(x), "f32", integer,
            ops.observe(ops.to_torch(x), integer, 0),
        )  # fmt: skip
        for function, find_one in ops.finders(integer):
            one = ops.to_torch(x[:1])
            label = f"{function}/{length} elements"
            add_asymmetric(oracle, label, one, "f32", integer, find_one(one))
        if integer == "s8" and ops.has_quantize_per_token():
            lo, hi = extremes(x)
            scale = find(x, RANGES[integer])[0]
            least = x[-128 + lo / scale + (127 + hi / scale) > 0]  # its zero points are of `lo`
            if len(least) > 0:
                add_asymmetric(
                    oracle, "choose_qparams_per_token_asymmetric/" + name, ops.to_torch(least),
                    "f32", integer, ops.choose_per_token_asymmetric(ops.to_torch(least)),
                )  # fmt: skip


def add_all(oracle: Oracle) -> None:
    """Adds every case."""
    symmetric(oracle)
    asymmetric(oracle)
    by_torch(oracle)
