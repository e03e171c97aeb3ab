"""Octavo: neural-network quantization with the same bits on every CPU.

>>> q, scale, _ = octavo.quantize_dynamic(np.float32([[0.5, -1.0]]))
>>> octavo.dequantize(q, scale, axis="token").round(2)
array([[ 0.5, -1. ]], dtype=float32)
"""

from ._core import PackedWeight, Stream, __version__
from ._error import Error, ErrorCode
from ._functions import (
    dequantize,
    dequantize_backward,
    fake_quantize,
    fake_quantize_backward,
    info,
    int_matmul,
    linear,
    pack,
    quantize,
    quantize_backward,
    quantize_dynamic,
    quantized_matmul,
    smoothquant_linear,
    targets,
)

__all__ = [
    "Error",
    "ErrorCode",
    "PackedWeight",
    "Stream",
    "__version__",
    "dequantize",
    "dequantize_backward",
    "fake_quantize",
    "fake_quantize_backward",
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
