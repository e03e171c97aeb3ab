/* Linear layers with weights of 8 and 4 bits, and of floats.
 *
 *     acc[m,n] = sum over k of (a[m,k] - zp_a[m]) * (w[n,k] - zp_w[n])             exact, for any k
 *     y[m,n]   = acc * (s_a[m] * s_w[n]) + bias[n] + residual[m,n]; ReLU           where asked for
 *
 * OCTAVO_QUANTIZED_LINEAR takes float activations and quantizes them, row by row; for
 * OCTAVO_SMOOTHQUANT_LINEAR they are int8 with one static scale; OCTAVO_QUANTIZED_MATMUL is the
 * core of both, with parameters per row. Weights may have a scale and a zero point for each group
 * of input channels, too. OCTAVO_FLOAT_LINEAR is a layer of floats. octavo/linear.hpp has all
 * formulas. */
#ifndef OCTAVO_C_LINEAR_H
#define OCTAVO_C_LINEAR_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights [n, k], rearranged once so that every run reads them in order; the same on all CPUs.
 * Those in groups hold their scales and zero points, too; scales of channels are given to runs. */
typedef struct octavo_packed_weight octavo_packed_weight;
typedef struct octavo_packed_weight_info {
  size_t struct_size;
  int64_t n, k;
  octavo_dtype dtype;
  size_t bytes; /* of memory that it holds */
  size_t serialized_bytes;
  int64_t group_size;  /* input channels that share a scale which it holds; 0: it holds none */
  int32_t layout;      /* how it lies in memory (octavo/packed_weight.hpp) */
  octavo_dtype scale;  /* of groups: what their scales are held as */
  int32_t zero_points; /* not 0: groups have them */
} octavo_packed_weight_info;

/* From rows: s8, u8, s4, u4, or f32, f16, bf16; [n, k]; rows may lie apart. All of `octavo_pack_*`
 * in one call. */
OCTAVO_API octavo_status octavo_pack_weight(const octavo_stream* stream,
                                            const octavo_tensor* weight,
                                            octavo_packed_weight** out);
/* The same of weights in groups of `group_size` input channels: a multiple of 4 that divides k and
 * is less. `scales` are [n, k / group_size] of any float type and are held as they are;
 * `zero_points` are s32, likewise, or NULL. */
OCTAVO_API octavo_status octavo_pack_weight_groups(const octavo_stream* stream,
                                                   const octavo_tensor* weight, int64_t group_size,
                                                   const octavo_tensor* scales,
                                                   const octavo_tensor* zero_points,
                                                   octavo_packed_weight** out);
/* Fills `out` as far as its struct_size goes. */
OCTAVO_API octavo_status octavo_packed_weight_get_info(const octavo_packed_weight* packed,
                                                       octavo_packed_weight_info* out);
/* Writes a portable image of `serialized_bytes`, with a version and a checksum. */
OCTAVO_API octavo_status octavo_packed_weight_serialize(const octavo_packed_weight* packed,
                                                        void* image, size_t bytes);
/* Reads one back; refuses what is truncated, damaged, or of a version it does not know. */
OCTAVO_API octavo_status octavo_packed_weight_deserialize(const void* image, size_t bytes,
                                                          octavo_packed_weight** out);
/* The same without a copy: `image`, aligned to 64 bytes as a mapped file is, stays the caller's,
 * who keeps it as it is until octavo_packed_weight_destroy. All of it is read, to check it. */
OCTAVO_API octavo_status octavo_packed_weight_deserialize_in_place(const void* image, size_t bytes,
                                                                   octavo_packed_weight** out);
/* The rows that it was packed from, bit for bit; and of groups the scales, [n, k / group_size] of
 * the type they are held as, and the zero points, s32. Those two may be NULL. */
OCTAVO_API octavo_status octavo_packed_weight_unpack(const octavo_packed_weight* packed,
                                                     const octavo_tensor* weight,
                                                     const octavo_tensor* scales,
                                                     const octavo_tensor* zero_points);
/* The same weights where `stream` computes, for plans of its backend: one that shares the memory of
 * `packed` if that lies there, else a copy, made when this returns. */
OCTAVO_API octavo_status octavo_packed_weight_to(const octavo_packed_weight* packed,
                                                 const octavo_stream* stream,
                                                 octavo_packed_weight** out);
OCTAVO_API void octavo_packed_weight_destroy(octavo_packed_weight* packed);

/* The same as a plan, which allocates in `make_packed` only. `run` changes `packed`. */
typedef struct octavo_pack_desc {
  size_t struct_size;
  int64_t n, k;        /* output and input channels */
  octavo_dtype weight; /* s8, u8, s4, u4, f32, f16, bf16 */
  /* Of a scale that is held: a multiple of 4 that divides k. 0, or k and more: none are held. */
  int64_t group_size;
  octavo_optional scale; /* of groups: an octavo_dtype, any float; default: f32 */
  int32_t zero_points;   /* of groups; not 0: runs are given them */
  /* Not 0: signed weights are given as unsigned ones, more by 8 (s4) or 128 (s8). */
  int32_t offset;
} octavo_pack_desc;
typedef struct octavo_pack_args {
  size_t struct_size;
  const octavo_tensor* weight;      /* [n, k] */
  octavo_packed_weight* packed;     /* of octavo_pack_make_packed */
  const octavo_tensor* scales;      /* of groups: [n, k / group_size] */
  const octavo_tensor* zero_points; /* s32, likewise */
} octavo_pack_args;
OCTAVO_API octavo_status octavo_pack_select(const octavo_stream* stream,
                                            const octavo_pack_desc* desc,
                                            const octavo_preference* preference, octavo_plan** out);
OCTAVO_API octavo_status octavo_pack_make_packed(const octavo_plan* plan,
                                                 octavo_packed_weight** out);
OCTAVO_API octavo_status octavo_pack_can_implement(const octavo_plan* plan,
                                                   const octavo_pack_args* args);
OCTAVO_API octavo_status octavo_pack_run(const octavo_plan* plan, const octavo_stream* stream,
                                         void* workspace, size_t workspace_bytes,
                                         const octavo_pack_args* args);

/* What a layer does after its sums: a set of these, OCTAVO_BIAS | OCTAVO_RELU. */
typedef int32_t octavo_epilogue;
enum { OCTAVO_BIAS = 1, OCTAVO_RESIDUAL = 2, OCTAVO_RELU = 4 };

typedef struct octavo_linear_desc {
  size_t struct_size;
  octavo_op op;
  int64_t m; /* the most rows a run may have */
  int64_t n; /* output channels */
  int64_t k; /* input channels */
  /* QUANTIZED_LINEAR: f32, f64, f16, bf16; FLOAT_LINEAR: f32, f16, bf16; the others: s8, u8 */
  octavo_dtype activation;
  octavo_dtype weight;        /* s8, u8, s4, u4; of FLOAT_LINEAR: f32, f16, bf16 */
  octavo_dtype output;        /* f32, f64 (not of FLOAT_LINEAR), f16, bf16, s8, u8; of a matmul also
                                 s32: the sums */
  int32_t weight_zero_points; /* not 0: runs are given them */
  int32_t packed_weight;      /* not 0: runs are given a packed weight */
  octavo_epilogue epilogue;
  octavo_profile profile;

  octavo_range_mode mode; /* OCTAVO_QUANTIZED_LINEAR only */
  /* Likewise: an octavo_dtype, s8 or u8, or s16 where symmetric; default: symmetric s8, asymmetric
   * u8. */
  octavo_optional quantized;

  double act_scale; /* OCTAVO_SMOOTHQUANT_LINEAR only */
  int32_t act_zero_point;

  int32_t activation_zero_points; /* OCTAVO_QUANTIZED_MATMUL only; not 0: runs are given them */

  /* Input channels that share a scale (and a zero point): a multiple of 4 that divides k. 0, or k
   * and more: all of them, one scale per output channel. */
  int64_t group_size;
  octavo_optional weight_scale; /* of those that packed groups hold: an octavo_dtype; default f32 */
} octavo_linear_desc;

/* Arrays of scales, zero points and bias are contiguous and of any shape; rows of matrices may lie
 * apart. What the descriptor did not ask for must be left out. */
typedef struct octavo_linear_args {
  size_t struct_size;
  const octavo_tensor* input;  /* [rows, k], with at most m rows */
  const octavo_tensor* weight; /* [n, k], or else: */
  const octavo_packed_weight* packed;
  /* One per output channel, or one; or [n, k / group_size]; any float type. NULL of a packed weight
   * in groups, which holds them, and of OCTAVO_FLOAT_LINEAR. */
  const octavo_tensor* weight_scales;
  const octavo_tensor* weight_zero_points;     /* s32, likewise */
  const octavo_tensor* activation_scales;      /* OCTAVO_QUANTIZED_MATMUL: one per row, or one */
  const octavo_tensor* activation_zero_points; /* s32, likewise */
  const octavo_tensor* bias;                   /* n of any float type */
  const octavo_tensor* residual; /* [rows, n] of the output's type (f32 for s8 and u8);
                                    may be the output itself */
  double output_scale;           /* of an s8 or u8 output */
  int32_t output_zero_point;
  const octavo_tensor* output; /* [rows, n] */
} octavo_linear_args;

OCTAVO_API octavo_status octavo_linear_select(const octavo_stream* stream,
                                              const octavo_linear_desc* desc,
                                              const octavo_preference* preference,
                                              octavo_plan** out);
OCTAVO_API octavo_status octavo_linear_can_implement(const octavo_plan* plan,
                                                     const octavo_linear_args* args);
OCTAVO_API octavo_status octavo_linear_run(const octavo_plan* plan, const octavo_stream* stream,
                                           void* workspace, size_t workspace_bytes,
                                           const octavo_linear_args* args);

#ifdef __cplusplus
}
#endif

#endif
