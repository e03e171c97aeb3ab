"""Quantize and fake-quantize with gradients: straight through where a value was in range."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .. import _functions as functions
from ._layers import unsupported


class _Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: Any, zero_point: Any, options: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.parameters = scale, zero_point, options
        return functions.quantize(x.detach(), scale, zero_point, **options).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        scale, zero_point, options = ctx.parameters
        dx = functions.quantize_backward(x.detach(), dy.detach(), scale, zero_point, **options)
        return dx, None, None, None


class _FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: Any, zero_point: Any, options: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.parameters = scale, zero_point, options
        return functions.fake_quantize(x.detach(), scale, zero_point, **options)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        scale, zero_point, options = ctx.parameters
        dx = functions.fake_quantize_backward(x.detach(), dy.detach(), scale, zero_point, **options)
        return dx, None, None, None


def _constant(value: Any) -> Any:
    """As it is now: an observer may change it before the gradient is computed."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if hasattr(value, "copy") else value


def _check(x: Any, options: dict[str, Any]) -> None:
    if not isinstance(x, torch.Tensor):
        raise unsupported("x", f"expected a torch.Tensor, got {type(x).__name__}")
    if options.get("out") is not None:
        raise unsupported("out", "expected none, for a gradient needs x as it was, got one")
    if options.get("dtype") in ("s4", "u4", "int4", "uint4"):
        raise unsupported(
            "dtype", f"expected 's8' or 'u8', got '{options['dtype']}'; q_min and q_max give 4 bits"
        )


def quantize(x: torch.Tensor, scale: Any, zero_point: Any = None, **options: Any) -> torch.Tensor:
    """`octavo.quantize` with a gradient. The integers come as floats of x's type, which hold them
    exactly, for PyTorch has no gradients of integers. Takes the options of `octavo.quantize` but
    `out`, and 8-bit types only; scales and zero points get no gradient.

    >>> x = torch.tensor([0.3, 99.0], requires_grad=True)
    >>> q = octavo.torch.quantize(x, 0.5)
    >>> q.sum().backward()
    >>> q.detach(), x.grad
    (tensor([  1., 127.]), tensor([2., 0.]))
    """
    _check(x, options)
    return _Quantize.apply(x, _constant(scale), _constant(zero_point), options)


def fake_quantize(
    x: torch.Tensor, scale: Any, zero_point: Any = None, **options: Any
) -> torch.Tensor:
    """`octavo.fake_quantize` with a gradient, for quantization-aware training. Takes its options
    but `out`; scales and zero points get no gradient.

    >>> x = torch.tensor([0.3, 99.0], requires_grad=True)
    >>> y = octavo.torch.fake_quantize(x, 0.5)
    >>> y.sum().backward()
    >>> y.detach(), x.grad
    (tensor([ 0.5000, 63.5000]), tensor([1., 0.]))
    """
    _check(x, options)
    return _FakeQuantize.apply(x, _constant(scale), _constant(zero_point), options)
