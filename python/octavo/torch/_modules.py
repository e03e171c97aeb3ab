"""Linear layers in 8 bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from .. import _core, _functions, _linear
from ._layers import invalid, is_linear, unsupported, weight_of

_NAMES: dict[torch.dtype, _functions.Float] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


class _WithoutGradient(torch.autograd.Function):
    """For a layer whose input requires a gradient: it runs, but nothing goes back through it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: _Int8Linear) -> torch.Tensor:
        return layer._run(x.detach())

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        raise unsupported(
            "x", "expected inference, got a gradient that goes back through a quantized layer; use "
            "torch.no_grad(), or octavo.torch.fake_quantize in training"
        )  # fmt: skip


@functools.cache
def _stream_of(threads: int) -> _core.Stream:
    return _core.Stream(threads=threads)


def _tracked(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of one that was made in inference mode, whose changes go unnoticed."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


class _Int8Linear(torch.nn.Module):
    """What the layers below share: int8 weights with a scale per output channel, and a bias. They
    use as many threads as PyTorch does (`torch.set_num_threads`)."""

    weight_q: torch.Tensor
    weight_scale: torch.Tensor
    bias: torch.Tensor | None
    _like: torch.Tensor
    _scales: tuple[str, ...] = ("weight_scale",)

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.register_buffer("weight_q", _tracked(weight_q))
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)
        # Nothing but the type that the weights have as floats, which .to(dtype) changes.
        self.register_buffer("_like", torch.empty(0, dtype=dtype), persistent=False)
        self._packed: tuple[Any, _core.PackedWeight] | None = None

    @property
    def out_features(self) -> int:
        return self.weight_q.shape[0]

    @property
    def in_features(self) -> int:
        return self.weight_q.shape[1]

    @property
    def weight(self) -> torch.Tensor:
        """The weights as floats, made afresh each time: for code that looks at a layer's weight."""
        return _functions.dequantize(
            self.weight_q, self.weight_scale, axis=0, dtype=_NAMES[self._like.dtype]
        )

    @staticmethod
    def _weight_of(linear: torch.nn.Module) -> torch.Tensor:
        if not isinstance(linear, torch.nn.Module) or not is_linear(linear):
            raise unsupported("linear", f"expected a torch.nn.Linear, got {type(linear).__name__}")
        weight = weight_of(linear)
        if weight.dtype not in _NAMES:
            raise unsupported("linear", f"expected weights of floats, got {weight.dtype}")
        return weight

    @classmethod
    def _quantized(
        cls, linear: torch.nn.Module, smoothing: torch.Tensor | None = None
    ) -> dict[str, Any]:
        weight = cls._weight_of(linear)
        dtype = weight.dtype
        if smoothing is not None:  # in f32 or wider: torch promotes f64, and f16 and bf16 as well
            weight = weight * smoothing
        q, scale, _ = _functions.quantize_dynamic(weight)
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return {"weight_q": q, "weight_scale": scale, "bias": bias, "dtype": dtype}

    def _apply(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Scales stay as exact as they are where a model becomes f16 or bf16."""
        before = {name: getattr(self, name) for name in self._scales}
        super()._apply(fn, *args, **kwargs)
        for name, scale in before.items():
            moved = getattr(self, name)
            if moved is not None and moved.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, scale.to(moved.device))
        return self

    def _weight(self) -> _core.PackedWeight:
        """The weights, packed once for as long as the buffer is the same and is not written."""
        weight = self._buffers["weight_q"]
        key = (weight.data_ptr(), None if weight.is_inference() else weight._version)
        if self._packed is None or self._packed[0] != key:
            self._packed = (key, _linear.pack(weight))
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if hasattr(super(), "__getstate__") else self.__dict__
        return {**state, "_packed": None}

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise unsupported("x", f"expected a torch.Tensor, got {type(x).__name__}")
        if x.dtype not in _NAMES:
            raise unsupported("x", f"expected float32, float64, float16 or bfloat16, got {x.dtype}")
        if x.requires_grad and torch.is_grad_enabled():
            return _WithoutGradient.apply(x, self)
        return self._run(x)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class QuantizedLinear(_Int8Linear):
    """A linear layer whose input is quantized row by row on the fly (W8A8, dynamic).

    `dtype` is that of the float weights; the output has the type of the input.

    >>> float_layer = torch.nn.Linear(4, 2)
    >>> octavo.torch.QuantizedLinear.from_float(float_layer)
    QuantizedLinear(in_features=4, out_features=2, bias=True, mode=symmetric)
    """

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        mode: _functions.Mode = "symmetric",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(weight_q, weight_scale, bias, dtype)
        if mode not in ("symmetric", "asymmetric"):
            raise unsupported("mode", f"expected 'symmetric' or 'asymmetric', got {mode!r}")
        self.mode = mode

    @classmethod
    def from_float(
        cls, linear: torch.nn.Module, *, mode: _functions.Mode = "symmetric"
    ) -> QuantizedLinear:
        """From a float layer, with a scale for each output channel."""
        return cls(**cls._quantized(linear), mode=mode)

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        buffers = self._buffers  # (the attributes cost half a microsecond each)
        return _linear.linear(
            x,
            self._weight(),
            buffers["weight_scale"],
            buffers["bias"],
            mode=self.mode,
            stream=_stream_of(torch.get_num_threads()),
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode}"


class SmoothQuantLinear(_Int8Linear):
    """A linear layer whose input is quantized with one scale that calibration found (W8A8, static).

    With `input_scale`, one number for each input channel, each channel is quantized with its own:
    smoothing that no norm before the layer has to take part in.

    >>> layer = octavo.torch.SmoothQuantLinear.from_float(torch.nn.Linear(4, 2), act_scale=0.05)
    >>> layer(torch.ones(3, 4)).shape
    torch.Size([3, 2])
    """

    act_scale: torch.Tensor
    input_scale: torch.Tensor | None
    _scales = ("weight_scale", "act_scale", "input_scale")

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        act_scale: float,
        input_scale: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(weight_q, weight_scale, bias, dtype)
        try:
            scale = torch.tensor(float(act_scale), dtype=torch.float32)
        except (TypeError, ValueError):
            raise invalid("act_scale", f"expected one number, got {act_scale!r}") from None
        # (Its reciprocal is what rows are multiplied by.)
        if not (scale > 0 and math.isfinite(scale) and math.isfinite(1 / scale)):
            raise invalid(
                "act_scale",
                f"expected a finite number above 0 with a finite reciprocal, got {act_scale}",
            )
        self.register_buffer("act_scale", scale)
        self.register_buffer("input_scale", input_scale)

    @classmethod
    def from_float(
        cls, linear: torch.nn.Module, act_scale: float, *, smoothing: Any = None
    ) -> SmoothQuantLinear:
        """From a float layer and the scale of its input: the largest magnitude seen, over 127.

        smoothing: a positive number for each input channel. The channel is divided by it as it is
        quantized, its weights are multiplied by it, and act_scale is that of the divided input.
        """
        if smoothing is None:
            return cls(**cls._quantized(linear), act_scale=act_scale)
        try:
            smoothing = torch.as_tensor(smoothing, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError):
            raise unsupported("smoothing", f"expected numbers, got {smoothing!r}") from None
        channels = cls._weight_of(linear).shape[1]
        if smoothing.shape != (channels,):
            raise invalid(
                "smoothing",
                f"expected shape ({channels},), one number for each input channel, got "
                f"{tuple(smoothing.shape)}",
            )
        made = cls(**cls._quantized(linear, smoothing), act_scale=act_scale)
        made.input_scale = smoothing * made.act_scale
        return made

    @property
    def weight(self) -> torch.Tensor:
        weight = super().weight
        if self.input_scale is None:
            return weight
        return (weight / (self.input_scale / self.act_scale)).to(weight.dtype)

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        buffers = self._buffers  # (the attributes cost half a microsecond each)
        stream = _stream_of(torch.get_num_threads())
        scale = buffers["act_scale"].item()
        if buffers["input_scale"] is None:
            x_q = _functions.quantize(x, scale, stream=stream)
        else:
            x_q = _functions.quantize(x, buffers["input_scale"], axis=-1, stream=stream)
        return _linear.smoothquant_linear(
            x_q,
            scale,
            self._weight(),
            buffers["weight_scale"],
            buffers["bias"],
            out_dtype=_NAMES[x.dtype],
            stream=stream,
        )

    def extra_repr(self) -> str:
        smoothed = "" if self.input_scale is None else ", smoothed"
        return f"{super().extra_repr()}, act_scale={float(self.act_scale):.6g}{smoothed}"
