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

struct octavo_peer {
  const char* name;    /* short, the counter's name */
  const char* version; /* with the engine: "oneDNN 2.6.3, avx512_core_vnni" */
  /* A prepared task; null if the peer lacks the operation. */
  void* (*elementwise)(const struct octavo_peer_elementwise*);
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
