/* What a peer's plugin offers: plain C, so that nothing but this crosses the border between the
   benchmark and the libraries it loads. Types, operations and layouts are the values of
   octavo::DType, octavo::Op and octavo::Layout. */
#ifndef OCTAVO_BENCH_PEERS_PEER_H
#define OCTAVO_BENCH_PEERS_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One elementwise operation on [rows, cols], with one scale and zero point, or with one for each
   index of `axis`. Finer layouts are folded into this shape: a group is a row. Dynamic ranges are
   per row, and have no scales here. */
struct octavo_peer_elementwise {
  int op;
  int real;    /* the float type */
  int integer; /* the integer type */
  int64_t rows, cols;
  int axis; /* -1: one for all */
  int32_t q_min, q_max;
  const double* scales;
  const int32_t* zero_points;
  int64_t scale_count;
  const void* input;
  const void* grad; /* of backward operations */
  void* output;     /* a peer that cannot write here uses memory of its own */
  int threads;
};

/* output[m, n] = s_a[m] * s_w[n] * sum over k of a[m, k] * weight[n, k]. Float inputs are quantized
   first, which makes s_a; s8 inputs have the one `act_scale`. */
struct octavo_peer_linear {
  int activation; /* the type of the input; the output is f32 */
  int64_t m, n, k;
  const void* input;          /* [m, k] */
  const int8_t* weight;       /* [n, k], valid only while the task is made */
  const float* weight_scales; /* n, likewise */
  float act_scale;
  float* output; /* [m, n]; a peer that cannot write here uses memory of its own */
  int copies;    /* of the weights, to be used in turn, call by call: 1 keeps them warm */
  int threads;
  /* For peers that cannot quantize rows: quantize(context, i) for i from 0 to threads - 1, on any
     thread each, fills its part of `quantized` [m, k] and `row_scales` [m]. Null for s8. */
  void (*quantize)(const void* context, int part);
  const void* context;
  const int8_t* quantized;
  const float* row_scales;
};

/* output[m, n] = sum over k of input[m, k] * s[n, k / group] * weight[n, k]. How a peer holds its
   activations meanwhile is its own affair: `wide` asks for more than 8 bits. */
struct octavo_peer_groups {
  int64_t m, n, k, group;
  int bits; /* of a weight: 4, two in a byte, the first in the low half; or 8. Signed */
  int wide;
  const float* input;  /* [m, k] */
  const void* weight;  /* [n, k], valid only while the task is made */
  const float* scales; /* [n, k / group], likewise */
  float* output;       /* [m, n]; a peer that cannot write here uses memory of its own */
  int copies, threads; /* as above */
};

/* output[m, n] = sum over k of input[m, k] * weight[n, k], all f32. */
struct octavo_peer_floats {
  int64_t m, n, k;
  const float* input;
  const float* weight; /* valid only while the task is made */
  float* output;
  int copies, threads;
};

struct octavo_peer {
  const char* name;    /* short, the counter's name */
  const char* version; /* with the engine: "oneDNN 2.6.3, avx512_core_vnni" */
  /* A prepared task; null if the peer lacks the operation. */
  void* (*elementwise)(const struct octavo_peer_elementwise*);
  void* (*linear)(const struct octavo_peer_linear*);
  void* (*groups)(const struct octavo_peer_groups*);
  void* (*floats)(const struct octavo_peer_floats*);
  /* Does the task and returns where the output is. */
  const void* (*run)(void* task);
  void (*destroy)(void* task);
};

/* The one symbol of a plugin. Null if the peer does not work on this machine. */
#define OCTAVO_PEER_SYMBOL "octavo_peer_entry"
typedef const struct octavo_peer* (*octavo_peer_entry_function)(void);

#ifdef __cplusplus
}
#endif

#endif
