"""Where PyTorch differs from docs/numerics.md, and Octavo follows docs/numerics.md.

Each case holds what Octavo must do, written out by hand from docs/numerics.md, and for the record
(`torch` in the index) what the PyTorch at hand does. docs/pytorch_differences.md is the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch_ops as ops
from oracle_io import Oracle
from torch_cases import RANGES

REFUSED = "refused"
INF, NAN = float("inf"), float("nan")
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "s8": np.int8, "u8": np.uint8}
WIDE = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Case:
    name: str
    op: str  # quantize, dequantize, fake_quantize or fake_quantize_backward
    x: list[float]
    octavo: list[float] | str
    scale: float = 1.0
    zp: int = 3
    element: str = "f32"
    integer: str = "s8"
    limits: tuple[int, int] | None = None
    channel: bool = False
    dy: list[float] | None = None
    float_zero_point: bool = False


HUGE = [INF, 3e38, 1e19, -INF, -3e38, -1e19]
SATURATED = [127.0] * 3 + [-128.0] * 3
OUT_OF_RANGE = [500.0, 500.0, 500.0, -500.0, 1.0, 1.0]
BAD_SCALES = (0.0, -0.1, NAN, INF, 2.0**-128, 1e-60, 1e39)
THREE = [0.3, 1.0, -2.6]


def both(name: str, op: str, x: list[float], octavo: list[float] | str, **more: Any) -> list[Case]:
    """The same per tensor and per channel."""
    return [
        Case(f"{name}/per_tensor", op, x, octavo, channel=False, **more),
        Case(f"{name}/per_channel", op, x, octavo, channel=True, **more),
    ]


def bad_scale(op: str, x: list[float], scale: float) -> list[Case]:
    """A scale that Octavo refuses."""
    return both(f"scale {scale:.6g}", op, x, REFUSED, scale=scale)


CASES = [
    # NaN, infinities and what does not fit PyTorch's integers
    *both("NaN/s8", "quantize", [NAN], [3.0]),
    *both("NaN/u8", "quantize", [NAN], [128.0], zp=128, integer="u8"),
    *both("huge/s8", "quantize", HUGE, SATURATED),
    *both("huge/u8", "quantize", HUGE, [255.0] * 3 + [0.0] * 3, zp=128, integer="u8"),
    *both("NaN", "fake_quantize", [NAN], [NAN]),
    *both("huge", "fake_quantize", HUGE, [124.0] * 3 + [-131.0] * 3),
    # gradients through the mask
    *both(
        "masked gradient", "fake_quantize_backward", OUT_OF_RANGE, [0.0, 0.0, 0.0, 0.0, INF, NAN],
        zp=0, dy=[-1.0, INF, NAN, -INF, INF, NAN],
    ),
    # the zero point before or after rounding
    *both("tie, odd zero point", "quantize", [0.5, 1.5, -0.5, 2.5], [1.0, 3.0, 1.0, 3.0], zp=1),
    *both("above a tie", "quantize", [0.50000006], [-127.0], zp=-128),
    Case(
        "tie, float zero point/per_channel", "fake_quantize", [0.5, 1.5, -0.5, 2.5],
        [0.0, 2.0, 0.0, 2.0], zp=1, channel=True, float_zero_point=True,
    ),
    # element types
    *both("f64 output", "fake_quantize", [0.3, 12.75], [0.30000000000000004, 12.700000000000001],
          scale=0.1, zp=0, element="f64"),
    *both("f64 quotient", "fake_quantize", [30.1500001], [30.299999999999997],
          scale=0.3, zp=0, element="f64"),
    *both("f16", "quantize", THREE, [3.0, 10.0, -26.0], scale=0.1, zp=0, element="f16"),
    *both("bf16", "quantize", THREE, [3.0, 10.0, -26.0], scale=0.1, zp=0, element="bf16"),
    *both("f64", "quantize", THREE, [3.0, 10.0, -26.0], scale=0.1, zp=0, element="f64"),
    *both("bf16", "fake_quantize", THREE, [0.30078125, 1.0, -2.59375],
          scale=0.1, zp=0, element="bf16"),
    # a scale that is no f32 value; per channel PyTorch dequantizes in f64
    Case("f64 scale/per_channel", "dequantize", [12], [0.90000004], scale=0.1, channel=True),
    # ranges beyond 2^24
    *both("wide range, zero point 1", "fake_quantize", [16777218.0], [16777218.0],
          zp=1, limits=WIDE),
    *both("wide range, zero point 2^24 + 1", "fake_quantize", [16777218.0], [16777218.0],
          zp=16777217, limits=WIDE),
    # zero points outside the range
    Case("zero point 200", "quantize", [1.0, -300.0], [127.0, -100.0], zp=200),
    Case("zero point 2^31 - 1", "quantize", [1.0, -(2.0**31), -INF], [127.0, -1.0, -128.0],
         zp=2**31 - 1),
    Case("zero point 200", "fake_quantize", [1.0, -300.0], [-73.0, -300.0], zp=200),
    Case("zero point 1000", "dequantize", [-128, 0, 3, 127], [-564.0, -500.0, -498.5, -436.5],
         scale=0.5, zp=1000),
    Case("zero point -2^31", "dequantize", [-128, 127], [1073741760.0, 1073741824.0],
         scale=0.5, zp=-(2**31)),
    # scales that cannot be meant
    *(case for s in BAD_SCALES for case in bad_scale("quantize", [0.0, 1.0, -1.0], s)),
    *(case for s in BAD_SCALES for case in bad_scale("fake_quantize", [0.0, 1.0, -1.0], s)),
    *(case for s in (NAN, INF) for case in bad_scale("dequantize", [-128, 3, 127], s)),
]  # fmt: skip


def as_array(values: list[float], dtype: str) -> np.ndarray:
    """The values rounded to `dtype`; bf16 as bits."""
    if dtype != "bf16":
        return np.array(values).astype(NUMPY[dtype])
    return ops.to_numpy(torch.tensor(values, dtype=torch.float32).to(torch.bfloat16))


def measure(case: Case, x: np.ndarray, scales: np.ndarray, zps: np.ndarray) -> list[str]:
    """What this PyTorch makes of the case."""
    axis = 0 if case.channel else None
    limits = case.limits or RANGES[case.integer]
    zp_type = torch.float32 if case.float_zero_point else torch.int32
    try:
        if case.op == "dequantize":
            result = ops.dequantize(x, scales, zps, axis)
        elif case.op == "quantize":
            result = ops.quantize(ops.to_torch(x, case.element), scales, zps, axis, case.integer)
        elif case.dy is None:
            y = ops.fake_quantize(
                ops.to_torch(x, case.element), scales, zps, axis, *limits, zp_type
            )
            result = y.detach().to(torch.float64).numpy()
        else:
            dy = torch.tensor(case.dy).reshape(x.shape)
            _, result = ops.fake_quantize_and_gradient(
                ops.to_torch(x), dy, scales, zps, axis, *limits
            )
    except RuntimeError as error:
        return ["refused: " + str(error).splitlines()[0]]
    return [repr(value) for value in result.ravel().tolist()]


def add_all(oracle: Oracle) -> None:
    """Adds every case."""
    for case in CASES:
        shape = (1, len(case.x)) if case.channel else (len(case.x),)
        dequantizes = case.op == "dequantize"
        in_type, out_type = case.element, case.element
        if dequantizes:
            in_type = case.integer
        elif case.op == "quantize":
            out_type = case.integer
        x = as_array(case.x, in_type).reshape(shape)
        scales, zps = np.array([case.scale]), np.array([case.zp], np.int32)
        fake = case.op.startswith("fake")
        limits = (case.limits or RANGES[case.integer]) if fake else (None, None)
        refused = case.octavo == REFUSED
        expected = [0.0] * len(case.x) if isinstance(case.octavo, str) else case.octavo
        oracle.add(
            "difference", f"{case.op}/{case.name}", op=case.op, profile="torch", shape=shape,
            axis=0 if case.channel else None, q_min=limits[0], q_max=limits[1],
            input=oracle.tensor(x, in_type), scales=scales, zero_points=zps,
            grad=None if case.dy is None else np.array(case.dy, np.float32),
            expected=oracle.tensor(as_array(expected, out_type), out_type),
            refused=refused or None, torch=measure(case, x, scales, zps),
        )  # fmt: skip
