"""Linear layers whose weights are integers of 8 or 4 bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch

from .. import _core, _functions, _linear
from ._layers import invalid, is_linear, on_cpu, unsupported, weight_of
from ._schemes import (
    DYNAMIC,
    SCHEMES,
    STATIC,
    check_group_size,
    check_mode,
    check_scheme,
    quantize_weight,
)

_NAMES: dict[torch.dtype, _functions.Float] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


DynamicScheme = Literal["w8a8-dynamic", "w8a16", "w4a8-group", "w4a16-group"]


class _WithoutGradient(torch.autograd.Function):
    """For a layer whose input requires a gradient: it runs, but nothing goes back through it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: _IntegerLinear) -> torch.Tensor:
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


def _stream_for(x: torch.Tensor) -> _core.Stream | None:
    """As many threads as PyTorch uses; on a GPU the stream that is PyTorch's current one."""
    return None if x.is_cuda else _stream_of(torch.get_num_threads())


def _tracked(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of one that was made in inference mode, whose changes go unnoticed."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def _state_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Another one when the tensor is another or was written, as far as PyTorch tells."""
    return tensor.data_ptr(), None if tensor.is_inference() else tensor._version


def _in_features(weight_q: Any, integer: str, given: int | None) -> int:
    """How many weights a row has; two lie in a byte where they have 4 bits."""
    if not isinstance(weight_q, torch.Tensor) or weight_q.ndim != 2:
        got = f"shape {tuple(weight_q.shape)}" if hasattr(weight_q, "shape") else repr(weight_q)
        raise invalid("weight_q", f"expected a tensor [out_features, in_features], got {got}")
    nibbles = integer == "s4"
    if nibbles and weight_q.dtype != torch.uint8:
        raise unsupported(
            "weight_q", f"expected torch.uint8, two weights to a byte, got {weight_q.dtype}"
        )
    most = weight_q.shape[1] * (2 if nibbles else 1)
    if given is None:
        return most
    if given != most and not (nibbles and given == most - 1):
        expected = f"{most - 1} or {most}" if nibbles else f"{most}"
        raise invalid("in_features", f"expected {expected}, as weight_q has, got {given!r}")
    return given


def _group_size(weight_scale: Any, integer: str, in_features: int) -> int | None:
    """Of the groups that have these scales; None where each output channel has one."""
    if not isinstance(weight_scale, torch.Tensor):
        raise unsupported(
            "weight_scale", f"expected a torch.Tensor, got {type(weight_scale).__name__}"
        )
    groups = weight_scale.shape[1] if weight_scale.ndim == 2 else 0
    if groups == 0:
        return None
    size, rest = divmod(in_features, groups)
    if groups == 1 and (integer == "s8" or size == 0 or size % 4 != 0):
        return None  # (where it could be either, it computes the same)
    if rest != 0 or size % 4 != 0:
        raise invalid(
            "weight_scale",
            f"expected scales of groups of 4, 8, 12, ... of the {in_features} weights of a row, "
            f"got {groups} of them",
        )
    return size


class _IntegerLinear(torch.nn.Module):
    """What the layers below share: weights of integers with a scale per output channel, or one per
    group of a row's weights, and a bias. They use as many threads as PyTorch does
    (`torch.set_num_threads`), and follow their module to a GPU."""

    weight_q: torch.Tensor
    weight_scale: torch.Tensor
    bias: torch.Tensor | None
    in_features: int
    group_size: int | None  # None: a scale per output channel
    _like: torch.Tensor
    _scales: tuple[str, ...] = ("weight_scale",)
    _known: tuple[Any, float, torch.Tensor] | None = None  # a number that lies on a GPU

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        integer: Literal["s8", "s4"] = "s8",
        in_features: int | None = None,
    ) -> None:
        super().__init__()
        self._integer = integer
        self.in_features = _in_features(weight_q, integer, in_features)
        self.group_size = _group_size(weight_scale, integer, self.in_features)
        self.register_buffer("weight_q", _tracked(weight_q))
        self.register_buffer("weight_scale", _tracked(weight_scale))
        self.register_buffer("bias", bias)
        # Nothing but the type that the weights have as floats, which .to(dtype) changes.
        like = torch.empty(0, dtype=dtype, device=weight_q.device)
        self.register_buffer("_like", like, persistent=False)
        self._packed: tuple[Any, _core.PackedWeight, Any] | None = None

    @property
    def out_features(self) -> int:
        return self.weight_q.shape[0]

    @property
    def weight(self) -> torch.Tensor:
        """The weights as floats, made afresh each time: for code that looks at a layer's weight."""
        scale, group_size = self.weight_scale, self.group_size
        return _functions.dequantize(
            self.weight_q,
            scale.flatten() if group_size is None else scale,
            dtype=_NAMES[self._like.dtype],
            **self._type(),
            axis=0 if group_size is None else None,
            group_size=group_size,
        )

    def _type(self) -> dict[str, Any]:
        """What calls are told of weights that do not lie there as they are."""
        return {"q_dtype": "s4", "length": self.in_features} if self._integer == "s4" else {}

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
        cls,
        linear: torch.nn.Module,
        scheme: str,
        group_size: int | None = None,
        smoothing: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        weight = cls._weight_of(linear)
        dtype = weight.dtype
        if smoothing is not None:  # in f32 or wider: torch promotes f64, and f16 and bf16 as well
            weight = weight * smoothing.to(weight.device)
        # (Weights on a GPU are quantized as those of the host, once.)
        made = quantize_weight(on_cpu(weight), scheme, group_size)
        q, scale = (part.to(weight.device) for part in made)
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
        """The weights and their scales, packed once for as long as both buffers are the same and
        are not written. (They are kept beside the pack: no other tensor gets their address.)"""
        weight, scale = self._buffers["weight_q"], self._buffers["weight_scale"]
        key = _state_of(weight) + _state_of(scale)
        if self._packed is None or self._packed[0] != key:
            packed = _linear.pack(
                weight,
                scale=scale,
                group_size=self.group_size,
                **self._type(),
            )
            self._packed = (key, packed, (weight, scale))
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if hasattr(super(), "__getstate__") else self.__dict__
        return {**state, "_packed": None, "_known": None}

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


class QuantizedLinear(_IntegerLinear):
    """A linear layer whose input is quantized row by row on the fly.

    `scheme` says what its weights are and what its input becomes:

        w8a8-dynamic   int8 weights, input of 8 bits
        w8a16          int8 weights, input of 16 bits, which loses next to nothing
        w4a8-group     weights of 4 bits in groups, input of 8 bits
        w4a16-group    weights of 4 bits in groups, input of 16 bits

    Weights of 4 bits are uint8, two to a byte, and then `in_features` is needed where it is odd.
    `weight_scale` has a number for each output channel, or [out_features, groups]: one for each
    group of a row's weights. `dtype` is that of the float weights; the output has the type of the
    input.

    >>> float_layer = torch.nn.Linear(128, 2)
    >>> octavo.torch.QuantizedLinear.from_float(float_layer)
    QuantizedLinear(in_features=128, out_features=2, bias=True, mode=symmetric)
    >>> octavo.torch.QuantizedLinear.from_float(float_layer, scheme="w4a16-group", group_size=32)
    QuantizedLinear(in_features=128, out_features=2, bias=True, scheme=w4a16-group, group_size=32)
    """

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        mode: _functions.Mode = "symmetric",
        dtype: torch.dtype = torch.float32,
        scheme: DynamicScheme = "w8a8-dynamic",
        in_features: int | None = None,
    ) -> None:
        check_scheme(scheme, list(SCHEMES))
        check_mode(mode, scheme)
        super().__init__(weight_q, weight_scale, bias, dtype, SCHEMES[scheme].weight, in_features)
        self.mode = mode
        self.scheme = scheme

    @classmethod
    def from_float(
        cls,
        linear: torch.nn.Module,
        *,
        mode: _functions.Mode = "symmetric",
        scheme: DynamicScheme = "w8a8-dynamic",
        group_size: int | Literal["channel"] | None = None,
    ) -> QuantizedLinear:
        """From a float layer; the weights are those that the command `octavo quantize` writes.

        group_size, for weights of 4 bits: how many weights of a row share a scale, a multiple of 4
        that divides in_features, or "channel" for one scale per output channel; 128 by default.
        """
        check_scheme(scheme, list(SCHEMES))
        check_mode(mode, scheme)
        size = check_group_size(group_size, scheme, "channel")
        columns = cls._weight_of(linear).shape[1]
        if size == "channel" or columns == 0:  # (no weights, no groups of them)
            size = None
        if size is not None and columns % size != 0:
            raise invalid(
                "group_size", f"expected a divisor of in_features, which is {columns}, got {size}"
            )
        made = cls._quantized(linear, scheme, size)
        return cls(**made, mode=mode, scheme=scheme, in_features=columns)

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        return _linear.linear(
            x,
            self._weight(),
            None,
            self._buffers["bias"],  # (the attribute costs half a microsecond)
            quantized=SCHEMES[self.scheme].input,
            mode=self.mode,
            stream=_stream_for(x),
        )

    def extra_repr(self) -> str:
        shown = super().extra_repr()
        if self.scheme != DYNAMIC:
            shown += f", scheme={self.scheme}"
        if self.group_size is not None:
            shown += f", group_size={self.group_size}"
        return shown if SCHEMES[self.scheme].input else f"{shown}, mode={self.mode}"


class SmoothQuantLinear(_IntegerLinear):
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
        self.register_buffer("act_scale", scale.to(weight_q.device))
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
            return cls(**cls._quantized(linear, STATIC), act_scale=act_scale)
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
        made = cls(**cls._quantized(linear, STATIC, smoothing=smoothing), act_scale=act_scale)
        made.input_scale = smoothing.to(made.act_scale.device) * made.act_scale
        return made

    @property
    def weight(self) -> torch.Tensor:
        weight = super().weight
        if self.input_scale is None:
            return weight
        return (weight / (self.input_scale / self.act_scale)).to(weight.dtype)

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        buffers = self._buffers  # (the attributes cost half a microsecond each)
        stream = _stream_for(x)
        scale = self._number(buffers["act_scale"])
        if buffers["input_scale"] is None:
            x_q = _functions.quantize(x, scale, stream=stream)
        else:
            x_q = _functions.quantize(x, buffers["input_scale"], axis=-1, stream=stream)
        return _linear.smoothquant_linear(
            x_q,
            scale,
            self._weight(),
            None,
            buffers["bias"],
            out_dtype=_NAMES[x.dtype],
            stream=stream,
        )

    def _number(self, scale: torch.Tensor) -> float:
        """Its value; that of one on a GPU is asked for once, for every question waits."""
        if not scale.is_cuda:
            return scale.item()
        key = _state_of(scale)
        if self._known is None or self._known[0] != key:
            self._known = (key, scale.item(), scale)
        return self._known[1]

    def extra_repr(self) -> str:
        smoothed = "" if self.input_scale is None else ", smoothed"
        return f"{super().extra_repr()}, act_scale={float(self.act_scale):.6g}{smoothed}"
