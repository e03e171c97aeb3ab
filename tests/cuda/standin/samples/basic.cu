// Ordinary kernels: conversion of elements, reductions by shuffles and shared memory, atomics,
// calls of functions that are not inlined, local memory.
#include "device.hpp"

struct QuantizeArgs {
  const float* x;
  s8* q;
  float scale;
  s32 zero_point;
  s64 count;
};

extern "C" __global__ void quantize(const QuantizeArgs args) {
  const s64 stride = s64{threads_x} * blocks_x;
  for (s64 i = s64{block_x} * threads_x + thread_x; i < args.count; i += stride) {
    float v = __builtin_rintf(args.x[i] / args.scale) + static_cast<float>(args.zero_point);
    v = v < -128.0f ? -128.0f : v > 127.0f ? 127.0f : v;
    args.q[i] = static_cast<s8>(static_cast<s32>(v));
  }
}

struct SumArgs {
  const s32* x;
  s32* sums;  // one for each block
  s32* total;
  s32* largest;
  s32 count;
};

extern "C" __global__ void sum(const SumArgs args) {
  __shared__ s32 partial[32];
  s32 value = 0;
  for (s32 i = block_x * threads_x + thread_x; i < args.count; i += threads_x * blocks_x) {
    value += args.x[i];
  }
  for (s32 d = 16; d > 0; d >>= 1) {
    value += __nvvm_shfl_sync_down_i32(0xffffffffu, value, d, 31);
  }
  if (thread_x % 32 == 0) {
    partial[thread_x / 32] = value;
  }
  barrier();
  if (thread_x < 32) {
    value = thread_x < threads_x / 32 ? partial[thread_x] : 0;
    for (s32 d = 16; d > 0; d >>= 1) {
      value += __nvvm_shfl_sync_bfly_i32(0xffffffffu, value, d, 31);
    }
    if (thread_x == 0) {
      args.sums[block_x] = value;
      __nvvm_atom_add_gen_i(args.total, value);
      __nvvm_atom_max_gen_i(args.largest, value);
    }
  }
}

struct CollatzArgs {
  const u32* x;
  u32* steps;
  s32 count;
};

// A loop of another length in each lane.
extern "C" __global__ void collatz(const CollatzArgs args) {
  const s32 i = block_x * threads_x + thread_x;
  if (i >= args.count) {
    return;
  }
  u32 n = args.x[i];
  u32 steps = 0;
  while (n > 1) {
    n = n % 2 != 0 ? 3 * n + 1 : n / 2;
    ++steps;
  }
  args.steps[i] = steps;
}

__device__ __attribute__((noinline)) float horner(const float* c, s32 n, float x) {
  float r = 0;
  for (s32 i = 0; i < n; ++i) {
    r = r * x + c[i];
  }
  return r;
}

struct PolynomialArgs {
  const float* x;
  float* y;
  s32 count;
  float coefficients[5];
};

extern "C" __global__ void polynomial(const PolynomialArgs args) {
  const s32 i = block_x * threads_x + thread_x;
  float table[8];
  for (s32 k = 0; k < 5; ++k) {
    table[(k * 3 + i) & 7] = args.coefficients[k];
  }
  float c[5];
  for (s32 k = 0; k < 5; ++k) {
    c[k] = table[(k * 3 + i) & 7];
  }
  if (i < args.count) {
    args.y[i] = horner(c, 5, args.x[i]) + horner(args.coefficients, 2, args.x[i]);
  }
}

struct MixedArgs {
  const double* d;
  const float* f;
  const s64* l;
  const u16* h;
  double* d_out;
  float* f_out;
  s64* l_out;
  u16* h_out;
  s32 count;
};

__device__ const s32 small_table[4] = {10, 20, -30, 40};

extern "C" __global__ void mixed(const MixedArgs args) {
  const s32 i = block_x * threads_x + thread_x;
  if (i < args.count) {
    args.d_out[i] = __builtin_sqrt(__builtin_fabs(args.d[i])) * args.d[i] / 3.0 + args.l[i];
    args.f_out[i] = __builtin_fmaf(args.f[i], args.f[i], static_cast<float>(args.d[i])) +
                    small_table[args.l[i] & 3];
    args.l_out[i] = args.l[i] / 7 + args.l[i] % 13 +
                    (static_cast<u64>(args.l[i]) >> 3) * static_cast<s64>(args.f[i]);
    args.h_out[i] = static_cast<u16>(args.h[i] * 3 + 1);
  }
}

struct ReverseArgs {
  s32* x;
  s32 count;
};

extern __shared__ s32 dynamic[];

extern "C" __global__ void reverse(const ReverseArgs args) {
  const s32 base = block_x * threads_x;
  dynamic[thread_x] = args.x[base + thread_x];
  barrier();
  args.x[base + thread_x] = dynamic[threads_x - 1 - thread_x];
}
