/* Linear layers in 8 bits, and their weights.
 *
 *     acc[m,n] = sum over k of (a[m,k] - zp_a[m]) * (w[n,k] - zp_w[n])             exact, for any k
 *     y[m,n]   = acc * (s_a[m] * s_w[n]) + bias[n] + residual[m,n]; ReLU           where asked for
 *
 * OCTAVO_QUANTIZED_LINEAR takes float activations and quantizes them, row by row; for
 * OCTAVO_SMOOTHQUANT_LINEAR they are int8 with one static scale; OCTAVO_QUANTIZED_MATMUL is the
 * core of both, with parameters per row. */
#ifndef OCTAVO_C_LINEAR_H
#define OCTAVO_C_LINEAR_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights [n, k], rearranged once so that every run reads them in order; the same on all CPUs. */
typedef struct octavo_packed_weight octavo_packed_weight;
typedef struct octavo_packed_weight_info {
  size_t struct_size;
  int64_t n, k;
  octavo_dtype dtype;
  size_t bytes; /* of memory that it holds */
  size_t serialized_bytes;
} octavo_packed_weight_info;

/* From rows: s8 or u8, [n, k]; rows may lie apart. All of `octavo_pack_*` in one call. */
OCTAVO_API octavo_status octavo_pack_weight(const octavo_stream* stream,
                                            const octavo_tensor* weight,
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
OCTAVO_API void octavo_packed_weight_destroy(octavo_packed_weight* packed);

/* The same as a plan, which allocates in `make_packed` only. `run` changes `packed`. */
typedef struct octavo_pack_desc {
  size_t struct_size;
  int64_t n, k;        /* output and input channels */
  octavo_dtype weight; /* s8 or u8 */
} octavo_pack_desc;
typedef struct octavo_pack_args {
  size_t struct_size;
  const octavo_tensor* weight;  /* [n, k] */
  octavo_packed_weight* packed; /* of octavo_pack_make_packed */
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
  int64_t m;                  /* the most rows a run may have */
  int64_t n;                  /* output channels */
  int64_t k;                  /* input channels */
  octavo_dtype activation;    /* QUANTIZED_LINEAR: f32, f64, f16, bf16; the others: s8, u8 */
  octavo_dtype weight;        /* s8 or u8 */
  octavo_dtype output;        /* f32, f64, f16, bf16, s8, u8; of a matmul also s32: the sums */
  int32_t weight_zero_points; /* not 0: runs are given them */
  int32_t packed_weight;      /* not 0: runs are given a packed weight */
  octavo_epilogue epilogue;
  octavo_profile profile;

  octavo_range_mode mode;    /* OCTAVO_QUANTIZED_LINEAR only */
  octavo_optional quantized; /* likewise: an octavo_dtype; default: symmetric s8, asymmetric u8 */

  double act_scale; /* OCTAVO_SMOOTHQUANT_LINEAR only */
  int32_t act_zero_point;

  int32_t activation_zero_points; /* OCTAVO_QUANTIZED_MATMUL only; not 0: runs are given them */
} octavo_linear_desc;

/* Arrays of scales, zero points and bias are contiguous and of any shape; rows of matrices may lie
 * apart. What the descriptor did not ask for must be left out. */
typedef struct octavo_linear_args {
  size_t struct_size;
  const octavo_tensor* input;  /* [rows, k], with at most m rows */
  const octavo_tensor* weight; /* [n, k], or else: */
  const octavo_packed_weight* packed;
  const octavo_tensor* weight_scales;          /* one per output channel, or one; any float type */
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
