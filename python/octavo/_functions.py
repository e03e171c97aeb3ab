"""The functions of the package: typed and documented here, done in the extension module."""

from __future__ import annotations

from typing import Any, Literal

from . import _core
from ._core import PackedWeight, Stream

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


def linear(
    x: Array,
    weight_q: Array | PackedWeight,
    weight_scale: Number,
    bias: Array | None = None,
    *,
    mode: Mode = "symmetric",
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Float | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """A linear layer in 8 bits: rows of floats are quantized on the fly, multiplied, dequantized.

    `weight_q` is [N, K] of int8 or uint8, or `pack`ed; `weight_scale` is one number, [N] or [N, 1].
    `x` has any rank; its last dimension is K. A row gives the same bits in any batch.

    >>> w, scale, _ = octavo.quantize_dynamic(np.float32([[1, 2], [3, -4]]))
    >>> octavo.linear(np.float32([1, 0.5]), w, scale).round(2)
    array([2.02, 0.98], dtype=float32)
    """
    return _core.linear(
        x, weight_q, weight_scale, bias, mode, residual, relu, out_dtype, profile, out, stream
    )


def smoothquant_linear(
    x_q: Array,
    act_scale: Number,
    weight_q: Array | PackedWeight,
    weight_scale: Number,
    bias: Array | None = None,
    *,
    act_zero_point: Number = 0,
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Literal["f32", "f64", "f16", "bf16", "s8", "u8"] = "f32",
    out_scale: float | None = None,
    out_zero_point: int = 0,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """A linear layer whose input is int8 already, with one static scale.

    (Scales and zero points for each row are taken as well: it is then a `quantized_matmul`.) An
    output of s8 or u8 needs its `out_scale`, so that layers chain in 8 bits.

    >>> x, w = np.int8([[1, 2]]), np.int8([[3, 4]])
    >>> octavo.smoothquant_linear(x, 0.5, w, 0.1)
    array([[0.55]], dtype=float32)
    >>> octavo.smoothquant_linear(x, 0.5, w, 0.1, out_dtype="s8", out_scale=0.05)
    array([[11]], dtype=int8)
    """
    return _core.smoothquant_linear(
        x_q, act_scale, weight_q, weight_scale, bias, act_zero_point, residual, relu, out_dtype,
        out_scale, out_zero_point, profile, out, stream,
    )  # fmt: skip


def quantized_matmul(
    x_q: Array,
    weight_q: Array | PackedWeight,
    *,
    act_scale: Number,
    weight_scale: Number,
    act_zero_point: Number = 0,
    weight_zero_point: Number = 0,
    bias: Array | None = None,
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Literal["f32", "f64", "f16", "bf16", "s8", "u8"] = "f32",
    out_scale: float | None = None,
    out_zero_point: int = 0,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """x_q times weight_q transposed, dequantized; scales and zero points per row or one for all.

    >>> octavo.quantized_matmul(np.int8([[2], [4]]), np.int8([[3]]),
    ...                         act_scale=np.float32([1, 0.5]), weight_scale=0.5)
    array([[3.],
           [3.]], dtype=float32)
    """
    return _core.quantized_matmul(
        x_q, weight_q, act_scale, weight_scale, act_zero_point, weight_zero_point, bias, residual,
        relu, out_dtype, out_scale, out_zero_point, profile, out, stream,
    )  # fmt: skip


def int_matmul(
    x_q: Array,
    weight_q: Array | PackedWeight,
    *,
    act_zero_point: Number = 0,
    weight_zero_point: Number = 0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """The exact integer sums of x_q times weight_q transposed, as int32.

    >>> octavo.int_matmul(np.uint8([[255, 255]]), np.int8([[127, -128]]))
    array([[-255]], dtype=int32)
    """
    return _core.int_matmul(x_q, weight_q, act_zero_point, weight_zero_point, out, stream)


def pack(weight_q: Array) -> PackedWeight:
    """Weights [N, K] rearranged once, so that every call reads them in order: faster, same bits.

    >>> octavo.pack(np.int8([[1, 2], [3, 4]]))
    PackedWeight(shape=(2, 2), dtype='s8')
    """
    return _core.pack(weight_q)


def targets() -> list[str]:
    """The instruction sets that this CPU has and kernels are written for, the reference first.

    >>> octavo.targets()[0]
    'scalar'
    """
    return _core.targets()


def info() -> dict[str, Any]:
    """Version, CPU, targets found and used, threads and backends.

    >>> octavo.info()["backends"]
    ['cpu']
    """
    return {
        "version": _core.version,
        "cpu": _core.cpu_name(),
        "targets": targets(),
        "target": _core.best_target(),
        "threads": _core.default_threads(),
        "backends": ["cpu"],
    }
