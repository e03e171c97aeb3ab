"""Quantize and fake-quantize with gradients: straight through where a value was in range."""

from __future__ import annotations

from typing import Any

import torch

from .. import _functions as functions


class _Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: Any, zero_point: Any, options: dict) -> Any:
        ctx.save_for_backward(x)
        ctx.parameters = scale, zero_point, options
        return functions.quantize(x.detach(), scale, zero_point, **options).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        scale, zero_point, options = ctx.parameters
        dx = functions.quantize_backward(x.detach(), dy.detach(), scale, zero_point, **options)
        return dx, None, None, None


class _FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: Any, zero_point: Any, options: dict) -> Any:
        ctx.save_for_backward(x)
        ctx.parameters = scale, zero_point, options
        return functions.fake_quantize(x.detach(), scale, zero_point, **options)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        scale, zero_point, options = ctx.parameters
        dx = functions.fake_quantize_backward(x.detach(), dy.detach(), scale, zero_point, **options)
        return dx, None, None, None


def _constant(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


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
    return _FakeQuantize.apply(x, _constant(scale), _constant(zero_point), options)
