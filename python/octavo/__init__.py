"""Octavo: neural-network quantization with the same bits on every CPU.

>>> q, scale, _ = octavo.quantize_dynamic(np.float32([[0.5, -1.0]]))
>>> octavo.dequantize(q, scale, axis="token").round(2)
array([[ 0.5, -1. ]], dtype=float32)
"""

from typing import TYPE_CHECKING

from . import _core, cuda
from ._core import PackedWeight, Statistics, Stream
from ._core import version as __version__
from ._error import Error, ErrorCode
from ._functions import (
    dequantize,
    dequantize_backward,
    fake_quantize,
    fake_quantize_backward,
    info,
    quantize,
    quantize_backward,
    quantize_dynamic,
    targets,
)
from ._linear import (
    embedding,
    float_linear,
    int_matmul,
    linear,
    pack,
    quantized_matmul,
    smoothquant_linear,
)

_core.raise_as(Error)

__all__ = [
    "Error",
    "ErrorCode",
    "PackedWeight",
    "Statistics",
    "Stream",
    "__version__",
    "cuda",
    "dequantize",
    "dequantize_backward",
    "embedding",
    "fake_quantize",
    "fake_quantize_backward",
    "float_linear",
    "info",
    "int_matmul",
    "linear",
    "pack",
    "quantize",
    "quantize_backward",
    "quantize_dynamic",
    "quantized_matmul",
    "smoothquant_linear",
    "targets",
]


if not TYPE_CHECKING:  # a type checker would take it that every name is there

    def __getattr__(name):
        """`octavo.torch`, imported when it is asked for, so that PyTorch is never needed."""
        if name == "torch":
            import importlib

            return importlib.import_module(".torch", __name__)
        raise AttributeError(f"module 'octavo' has no attribute '{name}'")
