"""PyTorch's operations on numpy arrays. bf16, which numpy lacks, travels as uint16 bits."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver

warnings.filterwarnings("ignore", category=UserWarning)

QUANTIZED = {"s8": torch.qint8, "u8": torch.quint8}


def about() -> dict[str, Any]:
    """What computed the oracle."""
    return {
        "torch": str(torch.__version__),
        "engine": torch.backends.quantized.engine,
        "engines": list(torch.backends.quantized.supported_engines),
        "numpy": np.__version__,
    }


def to_torch(values: np.ndarray, dtype: str | None = None) -> torch.Tensor:
    """A tensor with a copy of `values`."""
    if dtype == "bf16":
        return torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(values))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, or its bits if it is bf16."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def quantize(
    x: torch.Tensor, scales: np.ndarray, zero_points: np.ndarray, axis: int | None, integer: str
) -> np.ndarray:
    """torch.quantize_per_tensor or torch.quantize_per_channel."""
    if axis is None:
        q = torch.quantize_per_tensor(x, float(scales[0]), int(zero_points[0]), QUANTIZED[integer])
    else:
        zps = torch.from_numpy(zero_points.astype(np.int64))
        q = torch.quantize_per_channel(x, to_torch(scales), zps, axis, QUANTIZED[integer])
    return q.int_repr().numpy()


def dequantize(
    q: np.ndarray, scales: np.ndarray, zero_points: np.ndarray, axis: int | None
) -> np.ndarray:
    """torch.dequantize of a tensor made from integers."""
    if axis is None:
        made = torch._make_per_tensor_quantized_tensor(
            to_torch(q), float(scales[0]), int(zero_points[0])
        )
    else:
        zps = torch.from_numpy(zero_points.astype(np.int64))
        made = torch._make_per_channel_quantized_tensor(to_torch(q), to_torch(scales), zps, axis)
    return made.dequantize().numpy()


def fake_quantize(
    x: torch.Tensor,
    scales: np.ndarray,
    zero_points: np.ndarray,
    axis: int | None,
    q_min: int,
    q_max: int,
    zero_point_type: torch.dtype = torch.int32,
) -> torch.Tensor:
    """torch.fake_quantize_per_tensor_affine or _per_channel_affine (whose scales are f32)."""
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(
            x, float(scales[0]), int(zero_points[0]), q_min, q_max
        )
    return torch.fake_quantize_per_channel_affine(
        x,
        torch.from_numpy(scales).float(),
        torch.from_numpy(zero_points).to(zero_point_type),
        axis,
        q_min,
        q_max,
    )


def fake_quantize_and_gradient(
    x: torch.Tensor, dy: torch.Tensor, *parameters: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The output and, by autograd, the gradient."""
    leaf = x.clone().requires_grad_(True)
    y = fake_quantize(leaf, *parameters)
    y.backward(dy)
    assert leaf.grad is not None
    return to_numpy(y), to_numpy(leaf.grad)


def quantize_rows(x: torch.Tensor, profile: str) -> tuple[np.ndarray, np.ndarray]:
    """s8 with each row's scale, and the scales: symmetric, in PyTorch's f32 arithmetic."""
    x = x.float()
    scales = x.abs().amax(-1, keepdim=True) / 127
    quotients = x * (1 / scales) if profile == "torch" else x / scales
    q = quotients.round().clamp(-128, 127).to(torch.int8)
    return q.numpy(), scales.numpy().ravel()


def has_quantize_per_token() -> bool:
    """Whether this PyTorch has the functions of `quantize_per_token`; a module registers them."""
    try:
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    except ImportError:
        return False
    return hasattr(torch.ops.quantized_decomposed, "choose_qparams_per_token")


def quantize_per_token(x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The same in profile torch by PyTorch's own functions, for f32 and f16 and max |x| >= 1e-5."""
    ops = torch.ops.quantized_decomposed
    scales, zero_points = ops.choose_qparams_per_token(x, torch.int8)
    q = ops.quantize_per_token(x, scales, zero_points, -128, 127, torch.int8)
    return q.numpy(), scales.float().numpy().ravel()


def found(scale: torch.Tensor, zero_point: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Parameters as arrays; the scale is an f32 value, whatever its type."""
    narrow = scale.float()
    assert torch.allclose(narrow.to(scale.dtype), scale, rtol=0, atol=0, equal_nan=True)
    return narrow.numpy().ravel(), zero_point.numpy().ravel().astype(np.int32)


def observe(x: torch.Tensor, integer: str, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """MinMaxObserver, or PerChannelMinMaxObserver along an axis, asymmetric."""
    dtype = QUANTIZED[integer]
    if axis is None:
        observer = MinMaxObserver(dtype=dtype, qscheme=torch.per_tensor_affine)
    else:
        scheme = torch.per_channel_affine
        observer = PerChannelMinMaxObserver(ch_axis=axis, dtype=dtype, qscheme=scheme)
    observer(x)
    return found(*observer.calculate_qparams())


Finder = Callable[[torch.Tensor], tuple[np.ndarray, np.ndarray]]


def finders(integer: str) -> Iterator[tuple[str, Finder]]:
    """PyTorch's functions that find a scale and a zero point for a whole tensor, by name."""
    yield "MinMaxObserver", lambda x: observe(x, integer, None)
    if has_quantize_per_token():
        choose = torch.ops.quantized_decomposed.choose_qparams
        dtype = {"s8": torch.int8, "u8": torch.uint8}[integer]
        limits = torch.iinfo(dtype)
        smallest = torch.finfo(torch.float32).tiny  # an argument, here as in docs/numerics.md
        yield (
            "choose_qparams",
            lambda x: found(*choose(x, limits.min, limits.max, smallest, dtype)),
        )


def choose_per_token_asymmetric(x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """choose_qparams_per_token_asymmetric, to s8."""
    choose = torch.ops.quantized_decomposed.choose_qparams_per_token_asymmetric
    return found(*choose(x, torch.int8))


def supports_fake_quantize(dtype: torch.dtype) -> bool:
    """Whether this PyTorch fake-quantizes this element type at all."""
    try:
        torch.fake_quantize_per_tensor_affine(torch.zeros(1, dtype=dtype), 1.0, 0, 0, 1)
    except RuntimeError:
        return False
    return True
