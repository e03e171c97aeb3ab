/* Dynamic-range quantize: finds the range of each slice, computes its scale and zero point, and
 * quantizes it. */
#ifndef OCTAVO_C_DYNAMIC_RANGE_H
#define OCTAVO_C_DYNAMIC_RANGE_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct octavo_dynamic_range_desc {
  size_t struct_size;
  octavo_range_mode mode;
  octavo_layout scope; /* what has a range of its own */
  int32_t rank;
  int32_t axis;          /* of OCTAVO_PER_CHANNEL; negative: counted from the last */
  const int64_t* shape;  /* of the whole tensor, `rank` sizes; read during `select` only */
  int64_t group_size;    /* of OCTAVO_PER_GROUP; divides the last size */
  octavo_dtype input;    /* f32, f64, f16, bf16 */
  octavo_dtype output;   /* symmetric: s8, s4, s16; asymmetric: u8 and u4, too */
  octavo_optional q_min; /* default: the output type's own range; s16: -32639, 32639 */
  octavo_optional q_max;
  octavo_profile profile;
} octavo_dynamic_range_desc;

typedef struct octavo_dynamic_range_args {
  size_t struct_size;
  const octavo_tensor* input;
  const octavo_tensor* output;
  const octavo_tensor* scales;      /* written: one per slice, f64 if the input is, else f32 */
  const octavo_tensor* zero_points; /* written: s32, as many; may be left out if symmetric */
} octavo_dynamic_range_args;

OCTAVO_API octavo_status octavo_dynamic_range_select(const octavo_stream* stream,
                                                     const octavo_dynamic_range_desc* desc,
                                                     const octavo_preference* preference,
                                                     octavo_plan** out);
OCTAVO_API octavo_status octavo_dynamic_range_can_implement(const octavo_plan* plan,
                                                            const octavo_dynamic_range_args* args);
OCTAVO_API octavo_status octavo_dynamic_range_run(const octavo_plan* plan,
                                                  const octavo_stream* stream, void* workspace,
                                                  size_t workspace_bytes,
                                                  const octavo_dynamic_range_args* args);

#ifdef __cplusplus
}
#endif

#endif
