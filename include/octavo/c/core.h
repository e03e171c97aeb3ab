/* What all plans share: errors, tensors, streams, and what can be asked of any plan. */
#ifndef OCTAVO_C_CORE_H
#define OCTAVO_C_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "octavo/export.h"
#include "octavo/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---------------------------------------------------------------------------------- */

/* What every function that can fail returns. Values are pinned. */
typedef int32_t octavo_status;
enum {
  OCTAVO_OK = 0,
  OCTAVO_UNSUPPORTED = 1,     /* a type, target or combination that is not offered */
  OCTAVO_INVALID_PROBLEM = 2, /* a size, shape, range, scale, overlap, NULL that makes no sense */
  OCTAVO_MISALIGNED_OPERAND = 3,  /* a pointer that is not aligned to its element */
  OCTAVO_WORKSPACE_TOO_SMALL = 4, /* `needed` and `got` are bytes */
  OCTAVO_BUFFER_TOO_SMALL = 5,    /* `needed` and `got` are bytes */
  OCTAVO_BACKEND = 6              /* the machine failed: memory ran out */
};

typedef struct octavo_error {
  size_t struct_size; /* set by the library */
  octavo_status code;
  const char* argument; /* the field or parameter that was refused */
  const char* message;  /* one sentence: the argument, what was expected, what came */
  int64_t needed;       /* bytes, for the two _TOO_SMALL codes; 0 otherwise */
  int64_t got;
} octavo_error;

/* The last refusal in the calling thread, valid until the next one there; before the first, a code
 * of OCTAVO_OK and empty strings. Never NULL. A success leaves it alone. */
OCTAVO_API const octavo_error* octavo_last_error(void);
/* "invalid_problem", or "unknown". */
OCTAVO_API const char* octavo_status_name(octavo_status status);

/* Of the library; OCTAVO_VERSION is that of this header. */
OCTAVO_API int32_t octavo_version(void);
OCTAVO_API const char* octavo_version_string(void);

/* ---- Types and tensors ----------------------------------------------------------------------- */

/* Values are pinned: they stand in files. */
typedef int32_t octavo_dtype;
enum {
  OCTAVO_F32 = 0,
  OCTAVO_F64 = 1,
  OCTAVO_F16 = 2,
  OCTAVO_BF16 = 3,
  OCTAVO_S8 = 4,
  OCTAVO_U8 = 5,
  OCTAVO_S4 = 6, /* two per byte, the even index in the low nibble; each row starts on a byte */
  OCTAVO_U4 = 7,
  OCTAVO_S32 = 8, /* zero points and raw sums */
  OCTAVO_S16 = 9  /* of quantize, dequantize, dynamic ranges, and activations within a layer */
};

OCTAVO_API const char* octavo_dtype_name(octavo_dtype dtype);
/* Bytes of n consecutive elements that start on a byte; 0 if there is no such type. If n is
 * negative, or there are more bytes than an int64_t counts: -1, and octavo_last_error() says so. */
OCTAVO_API int64_t octavo_bytes_for(octavo_dtype dtype, int64_t n);
/* 16-bit floats, by their bits: exact widening, rounding to nearest even. */
OCTAVO_API float octavo_f16_to_f32(uint16_t bits);
OCTAVO_API float octavo_bf16_to_f32(uint16_t bits);
OCTAVO_API uint16_t octavo_f32_to_f16(float value);
OCTAVO_API uint16_t octavo_f32_to_bf16(float value);

/* A view of memory, to read or to write; inputs are never written. */
typedef struct octavo_tensor {
  size_t struct_size;
  void* data;
  octavo_dtype dtype;
  int32_t rank;           /* 0 to 8; 0 is one element */
  const int64_t* shape;   /* `rank` sizes, in elements */
  const int64_t* strides; /* `rank` of them, in elements; NULL: row by row without gaps */
  /* Bytes that may be touched from `data` on, against which the shape is checked; 0: not known. */
  int64_t buffer_bytes;
} octavo_tensor;

#if defined(__GNUC__)
/* gcc warns of memory without values where its address is passed to a function that may read it. */
#define OCTAVO_INLINE static inline __attribute__((always_inline))
#else
#define OCTAVO_INLINE static inline
#endif

/* One without gaps: octavo_tensor x = octavo_tensor_of(data, OCTAVO_F32, 2, shape); */
OCTAVO_INLINE octavo_tensor octavo_tensor_of(const void* data, octavo_dtype dtype, int32_t rank,
                                             const int64_t* shape) {
  octavo_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  memcpy(&tensor.data, &data, sizeof data); /* (a cast of the const away is a warning to some) */
  tensor.dtype = dtype;
  tensor.rank = rank;
  tensor.shape = shape;
  return tensor;
}

/* A number that may be left out: octavo_some(7), or 0 for none. */
typedef struct octavo_optional {
  int32_t is_set;
  int32_t value;
} octavo_optional;
static inline octavo_optional octavo_some(int32_t value) {
  octavo_optional some;
  some.is_set = 1;
  some.value = value;
  return some;
}

/* ---- Where work runs ------------------------------------------------------------------------- */

/* An instruction set. x86: SCALAR < AVX2 < AVX512 < AVX512VNNI < AMX, and AVXVNNI above AVX2.
 * Arm: SCALAR < NEON < DOTPROD < I8MM < SVE. None changes a bit. */
typedef int32_t octavo_target;
enum {
  OCTAVO_SCALAR = 0,
  OCTAVO_AVX2 = 1,
  OCTAVO_AVXVNNI = 2,
  OCTAVO_AVX512 = 3,
  OCTAVO_AVX512VNNI = 4,
  OCTAVO_AMX = 5,
  OCTAVO_NEON = 6,
  OCTAVO_DOTPROD = 7,
  OCTAVO_I8MM = 8,
  OCTAVO_SVE = 9,
  OCTAVO_SM80 = 10 /* of CUDA devices; no CPU has it */
};

/* What this CPU offers, OCTAVO_SCALAR first: `*count` is how many there are, and as many as fit are
 * stored in `targets` (which may be NULL if capacity is 0). */
OCTAVO_API octavo_status octavo_available_targets(octavo_target* targets, size_t capacity,
                                                  size_t* count);
OCTAVO_API const char* octavo_target_name(octavo_target target);
/* The target called `name`, "avx2"; available here or not. */
OCTAVO_API octavo_status octavo_parse_target(const char* name, octavo_target* out);

/* A place to run plans, with its threads. */
typedef struct octavo_stream octavo_stream;
typedef struct octavo_stream_options {
  size_t struct_size;
  int32_t threads;     /* 0: as many as the machine has cores */
  octavo_optional cap; /* an octavo_target: use no kernel above it; so does OCTAVO_TARGET=avx2 */
} octavo_stream_options;

OCTAVO_API octavo_status octavo_stream_create(const octavo_stream_options* options, /* or NULL */
                                              octavo_stream** out);
/* One of a CUDA device of compute capability 8.0 or later: `_run` enqueues and returns, and all
 * pointers are to the device's memory. OCTAVO_BACKEND where there is no driver or no device,
 * OCTAVO_UNSUPPORTED where it is older or the library was built without device code. */
typedef struct octavo_cuda_options {
  size_t struct_size;
  int32_t device;     /* as the driver counts them */
  int32_t use_stream; /* if not 0, on `stream`, which outlives this; else on a stream of its own */
  void* stream; /* a CUstream, or cudaStream_t, of the primary context; NULL: the legacy default */
} octavo_cuda_options;
OCTAVO_API octavo_status octavo_stream_create_cuda(const octavo_cuda_options* options, /* or NULL */
                                                   octavo_stream** out);
/* How many devices the driver finds, of any age; an error where there is no driver. */
OCTAVO_API octavo_status octavo_cuda_device_count(int32_t* count);
/* Where a stream's work is done, and its plans' memory is. */
typedef int32_t octavo_backend;
enum { OCTAVO_CPU = 0, OCTAVO_CUDA = 1 };
OCTAVO_API octavo_backend
octavo_stream_backend(const octavo_stream* stream);                    /* OCTAVO_CPU of NULL */
OCTAVO_API int32_t octavo_stream_threads(const octavo_stream* stream); /* 0 of NULL */
/* Waits until all that was run on the stream is done. On the CPU it is when a `_run` returns. Where
 * work is queued, values of scales and zero points are checked when it is carried out: a run that
 * they are wrong for writes nothing, and the first such refusal is returned here, once. */
OCTAVO_API octavo_status octavo_stream_synchronize(const octavo_stream* stream);
OCTAVO_API void octavo_stream_destroy(octavo_stream* stream);

/* Scratch memory for `run`, aligned as it must be (64 bytes); NULL for 0 bytes. Runs at the same
 * time need one each. Any other memory that is aligned will do, too. */
OCTAVO_API octavo_status octavo_workspace_create(size_t bytes, void** out);
OCTAVO_API void octavo_workspace_destroy(void* workspace);
/* The same where the stream computes. What was run on that stream is waited for before it is freed.
 */
OCTAVO_API octavo_status octavo_stream_workspace_create(const octavo_stream* stream, size_t bytes,
                                                        void** out);
OCTAVO_API void octavo_stream_workspace_destroy(const octavo_stream* stream, void* workspace);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Immutable; made by one of the five `_select` below. It does not need the stream it was selected
 * with, and runs on any other of the same backend. */
typedef struct octavo_plan octavo_plan;

/* What the caller would like of a plan. */
typedef struct octavo_preference {
  size_t struct_size;
  octavo_optional target;  /* use no kernel above it: a stream's cap, for one plan; of the CPU */
  int32_t limit_workspace; /* if not 0, `select` fails rather than need more than: */
  size_t max_workspace_bytes;
} octavo_preference;

typedef struct octavo_guarantee {
  size_t struct_size;
  octavo_dtype math;                /* every operation is rounded to this type */
  octavo_optional accumulator;      /* the octavo_dtype of sums; none in elementwise operations */
  int32_t deterministic;            /* the same call gives the same bits */
  int32_t bit_stable_same_hardware; /* whatever the threads and the split */
  int32_t bit_stable_everywhere;    /* on every target, too */
} octavo_guarantee;

/* The kernel that was chosen, "elementwise.quantize.per_tensor.f32.s8.none.torch.cpu.avx512":
 * stable, one per kernel, and valid as long as the plan. Of NULL: "". */
OCTAVO_API const char* octavo_plan_sku(const octavo_plan* plan);
/* Bytes of workspace that `run` needs; 0 of NULL. */
OCTAVO_API size_t octavo_plan_workspace_size(const octavo_plan* plan);
/* How many scales an elementwise or a dynamic-range plan has; 0 of others. */
OCTAVO_API int64_t octavo_plan_slices(const octavo_plan* plan);
/* Fills `out` as far as its struct_size goes. */
OCTAVO_API octavo_status octavo_plan_guarantee(const octavo_plan* plan, octavo_guarantee* out);
OCTAVO_API void octavo_plan_destroy(octavo_plan* plan);

/* What a plan does. */
typedef int32_t octavo_op;
enum {
  OCTAVO_QUANTIZE = 0,
  OCTAVO_QUANTIZE_BACKWARD = 1,
  OCTAVO_DEQUANTIZE = 2,
  OCTAVO_DEQUANTIZE_BACKWARD = 3,
  OCTAVO_FAKE_QUANTIZE = 4,
  OCTAVO_FAKE_QUANTIZE_BACKWARD = 5,
  OCTAVO_OBSERVE_MIN_MAX = 8,
  OCTAVO_OBSERVE_HISTOGRAM = 9,
  OCTAVO_QUANTIZED_MATMUL = 11,
  OCTAVO_QUANTIZED_LINEAR = 12,
  OCTAVO_SMOOTHQUANT_LINEAR = 14,
  OCTAVO_FLOAT_LINEAR = 15
};
/* What shares a scale. */
typedef int32_t octavo_layout;
enum {
  OCTAVO_PER_TENSOR = 0,
  OCTAVO_PER_CHANNEL = 1, /* an index of one axis */
  OCTAVO_PER_TOKEN = 2,   /* a row: the last dimension */
  OCTAVO_PER_GROUP = 3    /* `group_size` consecutive elements of a row */
};
/* Whose rounding is followed where others differ. */
typedef int32_t octavo_profile;
enum {
  OCTAVO_TORCH = 0, /* v = x * (1 / scale), as PyTorch computes it */
  OCTAVO_ONNX = 1   /* v = x / scale, as the ONNX standard says it */
};
/* How a range becomes a scale. */
typedef int32_t octavo_range_mode;
enum {
  OCTAVO_SYMMETRIC = 0, /* to s8, s4 and s16: zero point 0 */
  OCTAVO_ASYMMETRIC = 1 /* to s8, u8, s4, u4 and s16 */
};

#ifdef __cplusplus
}
#endif

#endif
