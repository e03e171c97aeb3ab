"""Linear layers, embeddings and their weights: typed and documented here, done in the extension
module."""

from __future__ import annotations

from typing import Literal

from . import _core
from ._core import PackedWeight, Stream
from ._functions import Array, Float, Mode, Number, Profile

WeightType = Literal["s8", "u8", "s4", "u4"]


def linear(
    x: Array,
    weight_q: Array | PackedWeight,
    weight_scale: Number | None = None,
    bias: Array | None = None,
    *,
    quantized: Literal["s8", "u8", "s16"] | None = None,
    group_size: int | None = None,
    weight_zero_point: Number | None = None,
    q_dtype: WeightType | None = None,
    length: int | None = None,
    mode: Mode = "symmetric",
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Float | None = None,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """A linear layer of integers: rows of floats are quantized on the fly, multiplied, dequantized.

    `weight_q` is [N, K] of int8 or uint8, or `pack`ed; `weight_scale` is one number, [N] or [N, 1],
    and so is `weight_zero_point`. With `group_size=g` there is one for every g weights of a row,
    [N, K // g]. Weights of four bits are uint8, two to a byte, with `q_dtype="s4"` or `"u4"`, and
    `length` is K where it is odd. A packed weight that holds scales needs none of that.

    `x` has any rank; its last dimension is K. It is quantized to s8 (u8 where asymmetric), or to
    `quantized`; s16 loses next to nothing. A row gives the same bits in any batch.

    >>> w, scale, _ = octavo.quantize_dynamic(np.float32([[1, 2], [3, -4]]))
    >>> octavo.linear(np.float32([1, 0.5]), w, scale).round(2)
    array([2.02, 0.98], dtype=float32)
    >>> w, scale, _ = octavo.quantize_dynamic(np.float32([[1, -2, 4, 7, 10, -20, 40, 70]]),
    ...                                       scope="group", group_size=4, dtype="s4")
    >>> octavo.linear(np.ones(8, np.float32), w, scale, group_size=4, q_dtype="s4",
    ...               quantized="s16").round(2)
    array([110.], dtype=float32)
    """
    return _core.linear(
        x, weight_q, weight_scale, bias, quantized, group_size, weight_zero_point, q_dtype, length,
        mode, residual, relu, out_dtype, profile, out, stream,
    )  # fmt: skip


def smoothquant_linear(
    x_q: Array,
    act_scale: Number,
    weight_q: Array | PackedWeight,
    weight_scale: Number | None = None,
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
    group_size: int | None = None,
    weight_zero_point: Number | None = None,
    q_dtype: WeightType | None = None,
    length: int | None = None,
) -> Array:
    """A linear layer whose input is int8 already, with one static scale.

    (Scales and zero points for each row are taken as well: it is then a `quantized_matmul`.) An
    output of s8 or u8 needs its `out_scale`, so that layers chain in 8 bits. Weights are those of
    `linear`.

    >>> x, w = np.int8([[1, 2]]), np.int8([[3, 4]])
    >>> octavo.smoothquant_linear(x, 0.5, w, 0.1)
    array([[0.55]], dtype=float32)
    >>> octavo.smoothquant_linear(x, 0.5, w, 0.1, out_dtype="s8", out_scale=0.05)
    array([[11]], dtype=int8)
    """
    return _core.smoothquant_linear(
        x_q, act_scale, weight_q, weight_scale, bias, act_zero_point, residual, relu, out_dtype,
        out_scale, out_zero_point, profile, out, stream, group_size, weight_zero_point, q_dtype,
        length,
    )  # fmt: skip


def quantized_matmul(
    x_q: Array,
    weight_q: Array | PackedWeight,
    *,
    act_scale: Number,
    weight_scale: Number | None = None,
    act_zero_point: Number = 0,
    weight_zero_point: Number | None = None,
    bias: Array | None = None,
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Literal["f32", "f64", "f16", "bf16", "s8", "u8"] = "f32",
    out_scale: float | None = None,
    out_zero_point: int = 0,
    profile: Profile = "torch",
    out: Array | None = None,
    stream: Stream | None = None,
    group_size: int | None = None,
    q_dtype: WeightType | None = None,
    length: int | None = None,
) -> Array:
    """x_q times weight_q transposed, dequantized; scales and zero points per row or one for all.

    Weights are those of `linear`.

    >>> octavo.quantized_matmul(np.int8([[2], [4]]), np.int8([[3]]),
    ...                         act_scale=np.float32([1, 0.5]), weight_scale=0.5)
    array([[3.],
           [3.]], dtype=float32)
    """
    return _core.quantized_matmul(
        x_q, weight_q, act_scale, weight_scale, act_zero_point, weight_zero_point, bias, residual,
        relu, out_dtype, out_scale, out_zero_point, profile, out, stream, group_size, q_dtype,
        length,
    )  # fmt: skip


def int_matmul(
    x_q: Array,
    weight_q: Array | PackedWeight,
    *,
    act_zero_point: Number = 0,
    weight_zero_point: Number | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """The exact integer sums of x_q times weight_q transposed, as int32.

    >>> octavo.int_matmul(np.uint8([[255, 255]]), np.int8([[127, -128]]))
    array([[-255]], dtype=int32)
    """
    return _core.int_matmul(x_q, weight_q, act_zero_point, weight_zero_point, out, stream)


def float_linear(
    x: Array,
    weight: Array | PackedWeight,
    bias: Array | None = None,
    *,
    residual: Array | None = None,
    relu: bool = False,
    out_dtype: Literal["f32", "f16", "bf16"] = "f32",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """A linear layer of floats, added in an order that is fixed: the same bits on every CPU.

    `weight` is [N, K] of float32, float16 or bfloat16, or `pack`ed; `x` is any of these, too, and
    of any rank. All is computed in f32. A row gives the same bits in any batch.

    >>> octavo.float_linear(np.float32([[1, 2]]), np.float32([[3, 4], [5, -6]]), relu=True)
    array([[11.,  0.]], dtype=float32)
    """
    return _core.float_linear(x, weight, bias, residual, relu, out_dtype, out, stream)


def embedding(
    indices: Array | int,
    table: Array,
    scale: Number | None = None,
    *,
    zero_point: Number | None = None,
    group_size: int | None = None,
    q_dtype: WeightType | None = None,
    length: int | None = None,
    out_dtype: Literal["f32", "f16", "bf16"] = "f32",
    out: Array | None = None,
    stream: Stream | None = None,
) -> Array:
    """Rows of a table, by their indices: shape `indices.shape + (K,)`.

    `table` is [N, K] of float32, float16 or bfloat16, whose rows are copied or rounded once; or of
    int8, uint8, or four bits as uint8, two to a byte, with `q_dtype="s4"` or `"u4"` and `length=K`
    where K is odd. Those have a `scale`, and perhaps a `zero_point`, as weights of `linear` do: one
    number, [N] or [N, 1], or [N, K // g] with `group_size=g`. Rows are scale * (q - zero_point) in
    f32, rounded once.

    `indices` are integers of any type and shape, from 0 to N - 1; int32 is read where it lies. The
    result is a tensor if the table is.

    >>> table = np.int8([[1, 2], [3, 4], [5, -6]])
    >>> octavo.embedding([2, 0, 2], table, np.float32([0.5, 1, 2]))
    array([[ 10. , -12. ],
           [  0.5,   1. ],
           [ 10. , -12. ]], dtype=float32)
    """
    return _core.embedding(
        indices, table, scale, zero_point, group_size, q_dtype, length, out_dtype, out, stream
    )


def pack(
    weight_q: Array,
    *,
    scale: Number | None = None,
    zero_point: Number | None = None,
    group_size: int | None = None,
    q_dtype: WeightType | None = None,
    length: int | None = None,
) -> PackedWeight:
    """Weights [N, K] rearranged once, so that every call reads them in order: faster, same bits.

    int8 and uint8; four bits as uint8, two to a byte, with `q_dtype="s4"` or `"u4"` and `length=K`
    where K is odd; floats for `float_linear`; and int32 words with `q_dtype="s4"` or `"s8"`, as
    compressed-tensors stores them. With a `scale` of [N] or [N, 1], or with a
    `group_size` and one of [N, K // group_size], and perhaps a `zero_point` of the same shape or
    one for all, the result keeps them, and calls are not given them.

    >>> octavo.pack(np.int8([[1, 2], [3, 4]]))
    PackedWeight(shape=(2, 2), dtype='s8')
    >>> nibbles = np.uint8([[0x21, 0x43, 0x65, 0x87]])
    >>> w = octavo.pack(nibbles, q_dtype="u4", group_size=4, scale=np.float16([[0.5, 2]]))
    >>> w, w.scale_dtype
    (PackedWeight(shape=(1, 8), dtype='u4', group_size=4), 'f16')
    >>> octavo.linear(np.ones(8, np.float32), w).round(2)
    array([57.], dtype=float32)
    """
    return _core.pack(weight_q, scale, zero_point, group_size, q_dtype, length)
