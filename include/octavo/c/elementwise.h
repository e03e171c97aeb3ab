/* Quantize, dequantize, fake-quantize, and their gradients.
 *
 *     q = clamp(rint(x / scale) + zero_point, q_min, q_max)      x = scale * (q - zero_point)
 */
#ifndef OCTAVO_C_ELEMENTWISE_H
#define OCTAVO_C_ELEMENTWISE_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A backward plan takes the descriptor of its forward plan, but for `op`. */
typedef struct octavo_elementwise_desc {
  size_t struct_size;
  octavo_op op; /* OCTAVO_QUANTIZE to OCTAVO_FAKE_QUANTIZE_BACKWARD */
  octavo_layout layout;
  int32_t rank;
  int32_t axis;               /* of OCTAVO_PER_CHANNEL; negative: counted from the last */
  const int64_t* shape;       /* of the whole tensor, `rank` sizes; read during `select` only */
  int64_t group_size;         /* of OCTAVO_PER_GROUP; divides the last size */
  octavo_dtype input;         /* quantize: f32, f64, f16, bf16; dequantize: s8, u8, s4, u4, s16 */
  octavo_dtype output;        /* the other way round; fake-quantize: as `input`, a float type */
  octavo_optional q_min;      /* default: the integer type's own range; fake-quantize: -128, 127 */
  octavo_optional q_max;      /* (dequantize has none) */
  octavo_profile profile;     /* (dequantize has none) */
  octavo_optional scale_type; /* of `scales`; default: f64 if the floats are f64, else f32 */
} octavo_elementwise_desc;

/* Forward:  input, output.   Backward:  input (of the forward pass; not for dequantize),
 * grad_output, grad_input.   What a plan does not use must be left out. */
typedef struct octavo_elementwise_args {
  size_t struct_size;
  const octavo_tensor* input;
  const octavo_tensor* grad_output;
  const octavo_tensor* output;
  const octavo_tensor* grad_input;
  double scale; /* OCTAVO_PER_TENSOR: this one scale and zero point */
  int32_t zero_point;
  const octavo_tensor* scales;      /* else: contiguous, one for each slice */
  const octavo_tensor* zero_points; /* s32, as many; left out: all 0 */
} octavo_elementwise_args;

OCTAVO_API octavo_status
octavo_elementwise_select(const octavo_stream* stream, const octavo_elementwise_desc* desc,
                          const octavo_preference* preference, /* or NULL */
                          octavo_plan** out);
/* Whether `run` would accept these arguments; if not, why. The other families have one, too. */
OCTAVO_API octavo_status octavo_elementwise_can_implement(const octavo_plan* plan,
                                                          const octavo_elementwise_args* args);
/* Does the work; it is done when this returns. Allocates nothing. */
OCTAVO_API octavo_status octavo_elementwise_run(const octavo_plan* plan,
                                                const octavo_stream* stream, void* workspace,
                                                size_t workspace_bytes,
                                                const octavo_elementwise_args* args);

#ifdef __cplusplus
}
#endif

#endif
