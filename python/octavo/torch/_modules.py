"""Linear layers in 8 bits."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import _core, _functions
from .._error import Error, ErrorCode

_OUT_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


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

    def __init__(
        self, weight_q: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        super().__init__()
        self.register_buffer("weight_q", _tracked(weight_q))
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)
        self._packed: tuple[Any, _core.PackedWeight] | None = None

    @property
    def out_features(self) -> int:
        return self.weight_q.shape[0]

    @property
    def in_features(self) -> int:
        return self.weight_q.shape[1]

    @staticmethod
    def _quantized(
        linear: torch.nn.Linear, smoothing: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        weight = linear.weight.detach()
        if smoothing is not None:  # in f32 or wider: torch promotes f64, and f16 and bf16 as well
            weight = weight * smoothing
        q, scale, _ = _functions.quantize_dynamic(weight.contiguous())
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return q, scale, bias

    def _weight(self) -> _core.PackedWeight:
        """The weights, packed once for as long as the buffer is the same and is not written."""
        weight = self._buffers["weight_q"]
        key = (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        if self._packed is None or self._packed[0] != key:
            self._packed = (key, _functions.pack(weight))
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if hasattr(super(), "__getstate__") else self.__dict__
        return {**state, "_packed": None}

    @staticmethod
    def _check_input(x: torch.Tensor) -> None:
        if x.requires_grad and torch.is_grad_enabled():
            raise Error(
                ErrorCode.invalid_problem,
                "x: expected a tensor without gradient, got one that requires it; quantized layers "
                "are for inference, call them under torch.no_grad() or torch.inference_mode()",
                "x",
            )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class QuantizedLinear(_Int8Linear):
    """A linear layer whose input is quantized row by row on the fly (W8A8, dynamic).

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
        mode: str = "symmetric",
    ) -> None:
        super().__init__(weight_q, weight_scale, bias)
        self.mode = mode

    @classmethod
    def from_float(cls, linear: torch.nn.Linear, *, mode: str = "symmetric") -> QuantizedLinear:
        """From a float layer, with a scale for each output channel."""
        return cls(*cls._quantized(linear), mode=mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input(x)
        buffers = self._buffers  # (the attributes cost half a microsecond each)
        return _functions.linear(
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

    input_scale: torch.Tensor | None

    def __init__(
        self,
        weight_q: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        act_scale: float,
        input_scale: torch.Tensor | None = None,
    ) -> None:
        super().__init__(weight_q, weight_scale, bias)
        self.register_buffer("act_scale", torch.tensor(float(act_scale), dtype=torch.float32))
        self.register_buffer("input_scale", input_scale)

    @classmethod
    def from_float(
        cls, linear: torch.nn.Linear, *, act_scale: float, smoothing: torch.Tensor | None = None
    ) -> SmoothQuantLinear:
        """From a float layer and the scale of its input: the largest magnitude seen, over 127.

        smoothing: a positive number for each input channel. The channel is divided by it as it is
        quantized, its weights are multiplied by it, and act_scale is that of the divided input.
        """
        if smoothing is None:
            return cls(*cls._quantized(linear), act_scale=act_scale)
        smoothing = torch.as_tensor(smoothing, dtype=torch.float32)
        if smoothing.shape != (linear.in_features,):
            raise Error(
                ErrorCode.invalid_problem,
                f"smoothing: expected shape ({linear.in_features},), one number for each input "
                f"channel, got {tuple(smoothing.shape)}",
                "smoothing",
            )
        return cls(
            *cls._quantized(linear, smoothing),
            act_scale=act_scale,
            input_scale=smoothing * torch.tensor(float(act_scale), dtype=torch.float32),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input(x)
        buffers = self._buffers  # (the attributes cost half a microsecond each)
        stream = _stream_of(torch.get_num_threads())
        scale = buffers["act_scale"].item()
        if buffers["input_scale"] is None:
            x_q = _functions.quantize(x, scale, stream=stream)
        else:
            x_q = _functions.quantize(x, buffers["input_scale"], axis=-1, stream=stream)
        return _functions.smoothquant_linear(
            x_q,
            scale,
            self._weight(),
            buffers["weight_scale"],
            buffers["bias"],
            out_dtype=_OUT_DTYPES[x.dtype],
            stream=stream,
        )

    def extra_repr(self) -> str:
        smoothed = "" if self.input_scale is None else ", smoothed"
        return f"{super().extra_repr()}, act_scale={float(self.act_scale):.6g}{smoothed}"
