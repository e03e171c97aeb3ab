"""The functions of the package: typed and documented here and in _linear.py, done in the extension
module."""

from __future__ import annotations

from typing import Any, Literal

from . import _core, cuda
from ._core import Stream

# NumPy arrays, PyTorch tensors, and anything that speaks DLPack.
Array = Any
Number = Any  # one, or an array of them
Profile = Literal["torch", "onnx"]
Integer = Literal["s8", "u8", "s4", "u4", "s16"]
Float = Literal["f32", "f64", "f16", "bf16"]
Mode = Literal["symmetric", "asymmetric"]


def quantize(
    x: Array,
    scale: Number,
    zero_point: Number | None = None,
    *,
    dtype: Integer = "s8",
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    q_min: int | None = None,
    q_max: int | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """Floats to integers: clamp(round(x / scale) + zero_point, q_min, q_max), ties to even.

    One scale serves the whole tensor; with `axis=k` there is one for each index of that axis, with
    `axis="token"` one for each row (shape `x.shape[:-1]`), with `group_size=g` one for every g
    elements of a row (shape `x.shape[:-1] + (K // g,)`). One number serves at any granularity.

    s4 and u4 come as uint8, two values to a byte, the first in the low half; s16 comes as int16.

    >>> octavo.quantize(np.float32([0.1, -0.25, 99.0]), 0.1)
    array([  1,  -2, 127], dtype=int8)
    >>> octavo.quantize(np.float32([[1, 2], [3, 4]]), np.float32([1, 0.5]), axis=0)
    array([[1, 2],
           [6, 8]], dtype=int8)
    """
    return _core.quantize(
        x, scale, zero_point, dtype, axis, group_size, q_min, q_max, profile, out, stream
    )


def dequantize(
    q: Array,
    scale: Number,
    zero_point: Number | None = None,
    *,
    dtype: Float = "f32",
    q_dtype: Integer | None = None,
    length: int | None = None,
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """Integers to floats: scale * (q - zero_point).

    `q` is int8, uint8 or int16; packed 4-bit values are uint8 with `q_dtype="s4"` or `"u4"`, and
    `length` is that of a row, where it is odd. Scales are given as for `quantize`.

    >>> octavo.dequantize(np.int8([1, -2, 127]), 0.5)
    array([ 0.5, -1. , 63.5], dtype=float32)
    >>> octavo.dequantize(np.uint8([0x21, 0x0F]), 1.0, q_dtype="s4", length=3)
    array([ 1.,  2., -1.], dtype=float32)
    """
    return _core.dequantize(
        q, scale, zero_point, dtype, q_dtype, length, axis, group_size, out, stream
    )


def fake_quantize(
    x: Array,
    scale: Number,
    zero_point: Number | None = None,
    *,
    q_min: int = -128,
    q_max: int = 127,
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """What quantize and dequantize give, without leaving floats. NaN stays NaN.

    >>> octavo.fake_quantize(np.float32([0.12, 0.38, 5.0]), 0.25, q_max=7)
    array([0.  , 0.5 , 1.75], dtype=float32)
    """
    return _core.fake_quantize(
        x, scale, zero_point, q_min, q_max, axis, group_size, profile, out, stream
    )


def quantize_backward(
    x: Array,
    dy: Array,
    scale: Number,
    zero_point: Number | None = None,
    *,
    dtype: Integer = "s8",
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    q_min: int | None = None,
    q_max: int | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """The straight-through gradient of `quantize`: dy / scale where x was in range, else 0.

    >>> octavo.quantize_backward(np.float32([1, 99]), np.float32([1, 1]), 0.5)
    array([2., 0.], dtype=float32)
    """
    return _core.quantize_backward(
        x, dy, scale, zero_point, dtype, axis, group_size, q_min, q_max, profile, out, stream
    )


def fake_quantize_backward(
    x: Array,
    dy: Array,
    scale: Number,
    zero_point: Number | None = None,
    *,
    q_min: int = -128,
    q_max: int = 127,
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """The straight-through gradient of `fake_quantize`: dy where x was in range, else 0.

    >>> octavo.fake_quantize_backward(np.float32([1, 99]), np.float32([3, 3]), 0.5)
    array([3., 0.], dtype=float32)
    """
    return _core.fake_quantize_backward(
        x, dy, scale, zero_point, q_min, q_max, axis, group_size, profile, out, stream
    )


def dequantize_backward(
    dy: Array,
    scale: Number,
    *,
    axis: int | Literal["token"] | None = None,
    group_size: int | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """The gradient of `dequantize`: dy * scale.

    >>> octavo.dequantize_backward(np.float32([1, 2]), 0.5)
    array([0.5, 1. ], dtype=float32)
    """
    return _core.dequantize_backward(dy, scale, axis, group_size, out, stream)


def quantize_dynamic(
    x: Array,
    *,
    scope: Literal["token", "tensor", "channel", "group"] = "token",
    mode: Mode = "symmetric",
    dtype: Integer = "s8",
    axis: int | None = None,
    group_size: int | None = None,
    q_min: int | None = None,
    q_max: int | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> tuple[Array, Array, Array | None]:
    """Finds the range of each slice, its scale and zero point, and quantizes, in one pass.

    Returns (q, scale, zero_point), which `dequantize` takes as they are; the zero point is None
    where symmetric. NaN and infinities take no part in the range. The integers of s16 are within
    -32639 and 32639, unless `q_min` and `q_max` say otherwise.

    >>> q, scale, _ = octavo.quantize_dynamic(np.float32([[1, -2], [100, 50]]))
    >>> q
    array([[  64, -127],
           [ 127,   64]], dtype=int8)
    >>> octavo.dequantize(q, scale, axis="token").round(1)
    array([[  1. ,  -2. ],
           [100. ,  50.4]], dtype=float32)
    """
    return _core.quantize_dynamic(
        x, scope, mode, dtype, axis, group_size, q_min, q_max, profile, out, stream
    )


def targets() -> list[str]:
    """The instruction sets that this CPU has and kernels are written for, the reference first.

    >>> octavo.targets()[0]
    'scalar'
    """
    return _core.targets()


def info() -> dict[str, Any]:
    """Version, CPU, targets found and used, threads and backends.

    >>> octavo.info()["backends"][0]
    'cpu'
    """
    return {
        "version": _core.version,
        "cpu": _core.cpu_name(),
        "targets": targets(),
        "target": _core.best_target(),
        "threads": _core.default_threads(),
        "backends": ["cpu", "cuda"] if cuda.is_available() else ["cpu"],
    }
