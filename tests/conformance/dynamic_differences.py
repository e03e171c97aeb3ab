"""Where PyTorch's dynamic ranges differ from docs/numerics.md, and Octavo follows docs/numerics.md.

As in differences.py: what Octavo must find is written out by hand, and what the PyTorch at hand
finds is kept for the record. docs/pytorch_differences.md, "Dynamic ranges", is the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch_ops as ops
from oracle_io import Oracle
from torch.ao.quantization import MinMaxObserver

INF, NAN = float("inf"), float("nan")
INTEGERS = {"s8": np.int8, "u8": np.uint8}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    function: str  # whose result differs, a key of FUNCTIONS
    x: list[float]
    scale: float
    zero_point: int
    q: list[int]
    integer: str = "u8"
    element: str = "f32"

    @property
    def mode(self) -> str:
        symmetric = self.function in ("choose_qparams_per_token", "symmetric MinMaxObserver")
        return "symmetric" if symmetric else "asymmetric"


def quantized(x: torch.Tensor, integer: str) -> list[float]:
    """Scale, zero point and integers of torch.quantize_per_tensor_dynamic."""
    q = torch.quantize_per_tensor_dynamic(x, ops.QUANTIZED[integer], False)
    return [q.q_scale(), q.q_zero_point(), *q.int_repr().tolist()]


def observed(x: torch.Tensor, integer: str) -> list[float]:
    """Scale and zero point of MinMaxObserver."""
    scale, zero_point = ops.observe(x, integer, None)
    return [scale.item(), zero_point.item()]


def observed_symmetric(x: torch.Tensor, integer: str) -> list[float]:
    """The same, symmetric."""
    scheme = torch.per_tensor_symmetric
    observer = MinMaxObserver(dtype=ops.QUANTIZED[integer], qscheme=scheme)
    observer(x)
    return [float(p) for p in observer.calculate_qparams()]


def per_token(x: torch.Tensor, _: str) -> list[float]:
    """Scale and integers of choose_qparams_per_token and quantize_per_token."""
    q, scales = ops.quantize_per_token(x.reshape(1, -1))
    return [scales.item(), *q.ravel().tolist()]


def per_token_asymmetric(x: torch.Tensor, _: str) -> list[float]:
    """Scale and zero point of choose_qparams_per_token_asymmetric."""
    scale, zero_point = ops.choose_per_token_asymmetric(x.reshape(1, -1))
    return [scale.item(), zero_point.item()]


FUNCTIONS: dict[str, Callable[[torch.Tensor, str], list[float]]] = {
    "quantize_per_tensor_dynamic": quantized,
    "MinMaxObserver": observed,
    "symmetric MinMaxObserver": observed_symmetric,
    "choose_qparams_per_token": per_token,
    "choose_qparams_per_token_asymmetric": per_token_asymmetric,
}
CASES = [
    # its own formula, in f64
    Case("quantize_per_tensor_dynamic", [-1.0, 0.5, 1.0], 0.00784313772, 127, [0, 191, 254]),
    Case("quantize_per_tensor_dynamic", [-0.1, 0.5], 0.00235294132, 42, [0, 254]),
    Case("quantize_per_tensor_dynamic", [0.001, -0.002], 1.1764706e-5, 170, [255, 0]),
    Case("quantize_per_tensor_dynamic", [0.0, 0.0], 1.0, -128, [-128, -128], "s8"),
    Case("quantize_per_tensor_dynamic", [1.0, INF], 0.00392156886, 0, [255, 255]),
    Case("quantize_per_tensor_dynamic", [1.0, -1.0, NAN], 0.00784313772, 127, [254, 0, 127]),
    # q_min added after rounding; a least scale of 2^-23; what is not finite, and overflows
    Case("MinMaxObserver", [-0.00196463731, 1.0], 0.00392927323, -128, [-128, 126], "s8"),
    Case("MinMaxObserver", [1e-6, -2e-6], 1.17647065e-8, 170, [255, 0]),
    Case("MinMaxObserver", [0.0, 0.0], 1.0, 0, [0, 0]),
    Case("MinMaxObserver", [1.0, INF], 0.00392156886, 0, [255, 255]),
    Case("MinMaxObserver", [1.0, -1.0, NAN], 0.00784313772, 127, [254, 0, 127]),
    Case("MinMaxObserver", [3e38, -3e38], 2.35294112e36, 128, [255, 0]),
    # half of the range instead of q_max
    Case("symmetric MinMaxObserver", [-1.0, 0.5], 0.00787401572, 0, [-127, 64], "s8"),
    # a least maximum of 1e-5; infinities and NaN; a scale of bf16
    Case("choose_qparams_per_token", [1e-6, -2e-6], 1.57480322e-8, 0, [63, -127], "s8"),
    Case("choose_qparams_per_token", [1.0, INF], 0.00787401572, 0, [127, 127], "s8"),
    Case("choose_qparams_per_token", [1.0, -0.5], 0.00787401572, 0, [127, -64], "s8", "bf16"),
    # a least scale of 2^-23; the zero point from the other end of the range
    Case("choose_qparams_per_token_asymmetric", [1e-6, -2e-6], 1.17647065e-8, 42, [127, -128],
         "s8"),
    Case("choose_qparams_per_token_asymmetric", [-9.0, 1.0], 0.0392156877, 101, [-128, 127],
         "s8"),
]  # fmt: skip


def measure(case: Case, x: torch.Tensor) -> list[str]:
    """What this PyTorch makes of the case."""
    if "per_token" in case.function and not ops.has_quantize_per_token():
        return ["absent"]
    try:
        found = FUNCTIONS[case.function](x, case.integer)
    except (AssertionError, RuntimeError) as error:
        return ["refused: " + str(error).splitlines()[0] if str(error) else "refused"]
    return [f"{value:.9g}" for value in found]


def add_all(oracle: Oracle) -> None:
    """Adds every case, in profile torch; Octavo's is per tensor."""
    for case in CASES:
        x = torch.tensor(case.x, dtype=TYPES[case.element])
        oracle.add(
            "difference", f"{case.function}/{case.element}/{case.integer}/{case.x}",
            op="dynamic_range_quantize", mode=case.mode, profile="torch", shape=x.shape,
            input=oracle.tensor(ops.to_numpy(x), case.element),
            scales=np.array([case.scale], np.float32),
            zero_points=np.array([case.zero_point], np.int32),
            expected=np.array(case.q, INTEGERS[case.integer]), torch=measure(case, x),
        )  # fmt: skip
