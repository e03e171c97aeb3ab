// A product of bytes by mma.sync, with cp.async in two stages and ldmatrix: C (M x N) = A (M x K by
// rows) times B (N x K by rows). A block makes 64 x 64 with four warps; K is a multiple of 32.
#include "device.hpp"

struct GemmArgs {
  const s8* a;
  const s8* b;
  s32* c;
  s32 m, n, k;
};

constexpr s32 tile = 64;
constexpr s32 depth = 32;
// Rows of 32 bytes, of which 16-byte parts change places so that ldmatrix meets no bank twice.
__device__ inline u32 place(s32 row, s32 part) {
  return static_cast<u32>(row * depth + ((part ^ (row >> 2 & 1)) * 16));
}

__device__ inline u32 shared_address(const void* p) {
  u32 r;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(r) : "l"(p));
  return r;
}

__device__ inline void copy(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void load4(u32 (&r)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

__device__ inline void multiply(s32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void gemm(const GemmArgs args) {
  alignas(16) __shared__ s8 a_tiles[2][tile * depth];
  alignas(16) __shared__ s8 b_tiles[2][tile * depth];
  const s32 row0 = block_x * tile;
  const s32 column0 = static_cast<s32>(__nvvm_read_ptx_sreg_ctaid_y()) * tile;
  const s32 lane = thread_x % 32;
  const s32 warp = thread_x / 32;
  // 128 threads: each copies one part of a row of each tile.
  const s32 row = thread_x / 2;
  const s32 part = thread_x % 2;
  const auto fetch = [&](s32 stage, s32 k) {
    const bool in_a = row0 + row < args.m;
    const bool in_b = column0 + row < args.n;
    const s64 at_a = in_a ? s64{row0 + row} * args.k + k + part * 16 : 0;
    const s64 at_b = in_b ? s64{column0 + row} * args.k + k + part * 16 : 0;
    copy(shared_address(a_tiles[stage]) + place(row, part), args.a + at_a, in_a ? 16 : 0);
    copy(shared_address(b_tiles[stage]) + place(row, part), args.b + at_b, in_b ? 16 : 0);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  s32 c[8][4] = {};
  fetch(0, 0);
  for (s32 k = 0; k < args.k; k += depth) {
    const s32 stage = k / depth % 2;
    if (k + depth < args.k) {
      fetch(1 - stage, k + depth);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    barrier();
    u32 a[4];
    load4(a, shared_address(a_tiles[stage]) + place(warp * 16 + lane % 16, lane / 16));
#pragma unroll
    for (s32 j = 0; j < 8; j += 2) {
      u32 b[4];
      load4(b,
            shared_address(b_tiles[stage]) + place(j * 8 + lane % 8 + lane / 16 * 8, lane / 8 % 2));
      multiply(c[j], a, b[0], b[1]);
      multiply(c[j + 1], a, b[2], b[3]);
    }
    barrier();
  }
#pragma unroll
  for (s32 j = 0; j < 8; ++j) {
#pragma unroll
    for (s32 e = 0; e < 4; ++e) {
      const s32 r = row0 + warp * 16 + lane / 4 + e / 2 * 8;
      const s32 n = column0 + j * 8 + lane % 4 * 2 + e % 2;
      if (r < args.m && n < args.n) {
        args.c[s64{r} * args.n + n] = c[j][e];
      }
    }
  }
}
