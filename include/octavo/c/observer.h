/* Observers watch tensors go by, batch after batch, in fixed memory, and turn what they saw into
 * scales and zero points. A state is the same, to the bit, for any order of batches, any split of
 * them over states that are merged later, and any number of threads. */
#ifndef OCTAVO_C_OBSERVER_H
#define OCTAVO_C_OBSERVER_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct octavo_observer_desc {
  size_t struct_size;
  octavo_op op;                   /* OCTAVO_OBSERVE_MIN_MAX or OCTAVO_OBSERVE_HISTOGRAM */
  octavo_dtype input;             /* f32, f64, f16, bf16 */
  octavo_layout scope;            /* OCTAVO_PER_TENSOR or OCTAVO_PER_CHANNEL */
  octavo_optional axis;           /* of the channels; default: -1, the last */
  int64_t channels;               /* the size of that axis */
  octavo_optional histogram_bits; /* 0 to 7, default 7: a bin is 2^-bits of its values wide */
} octavo_observer_desc;

/* What was seen so far. */
typedef struct octavo_observer_state octavo_observer_state;

typedef struct octavo_observer_args {
  size_t struct_size;
  const octavo_tensor* input;   /* any shape; OCTAVO_PER_CHANNEL: `channels` along `axis` */
  octavo_observer_state* state; /* of octavo_observer_make_state; changed by `run` */
} octavo_observer_args;

OCTAVO_API octavo_status octavo_observer_select(const octavo_stream* stream,
                                                const octavo_observer_desc* desc,
                                                const octavo_preference* preference,
                                                octavo_plan** out);
/* One that has seen nothing. The only allocation. */
OCTAVO_API octavo_status octavo_observer_make_state(const octavo_plan* plan,
                                                    octavo_observer_state** out);
OCTAVO_API octavo_status octavo_observer_can_implement(const octavo_plan* plan,
                                                       const octavo_observer_args* args);
/* Adds a batch to the state. */
OCTAVO_API octavo_status octavo_observer_run(const octavo_plan* plan, const octavo_stream* stream,
                                             void* workspace, size_t workspace_bytes,
                                             const octavo_observer_args* args);
OCTAVO_API void octavo_observer_state_destroy(octavo_observer_state* state);

/* Adds what another one saw, of the same kind of observer. Changes `state`. */
OCTAVO_API octavo_status octavo_observer_state_merge(octavo_observer_state* state,
                                                     const octavo_observer_state* other);
/* How many slices there are, the tensor or its channels; 0 of NULL. */
OCTAVO_API int64_t octavo_observer_state_slices(const octavo_observer_state* state);
/* Bins for each slice; 0 without a histogram. */
OCTAVO_API int64_t octavo_observer_state_bins(const octavo_observer_state* state);
/* The extremes of all finite values, 0 included: `slices` of each. Either may be NULL. */
OCTAVO_API octavo_status octavo_observer_state_extremes(const octavo_observer_state* state,
                                                        double* low, double* high, int64_t slices);
/* [slices, bins]: bin i counts the finite values whose f32 pattern starts with the bits of i. */
OCTAVO_API octavo_status octavo_observer_state_counts(const octavo_observer_state* state,
                                                      int64_t* counts, int64_t slices,
                                                      int64_t bins);

/* How a range is chosen; all but the first need a histogram. */
typedef int32_t octavo_calibration;
enum {
  OCTAVO_MIN_MAX = 0,    /* all of it */
  OCTAVO_PERCENTILE = 1, /* all but the outermost values */
  OCTAVO_MSE = 2,        /* least mean squared error of quantize and dequantize */
  OCTAVO_ENTROPY = 3     /* least Kullback-Leibler divergence */
};
typedef struct octavo_calibration_options {
  size_t struct_size;
  octavo_calibration method;
  octavo_range_mode mode;
  octavo_dtype output;
  octavo_optional q_min; /* default: the output type's own range */
  octavo_optional q_max;
  double percentile; /* to 100; of the magnitudes, or of each side; 0: 99.99 */
} octavo_calibration_options;

/* Finds `slices` scales, exact in the compute type, and as many zero points (NULL: not wanted). */
OCTAVO_API octavo_status octavo_observer_state_calibrate(const octavo_observer_state* state,
                                                         const octavo_calibration_options* options,
                                                         double* scales, int32_t* zero_points,
                                                         int64_t slices);

#ifdef __cplusplus
}
#endif

#endif
