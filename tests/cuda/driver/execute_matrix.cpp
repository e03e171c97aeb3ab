// mma.sync of bytes, ldmatrix and cp.async, by the layouts of fragments in the PTX manual. In all
// of them lane l stands for the row (or column) l / 4 of a fragment and for the place l % 4 in it.
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tests/cuda/driver/lanes.hpp"
#include "tests/cuda/driver/locate.hpp"

namespace standin::STANDIN_TARGET {
namespace {

void whole_warp(Warp& w, const char* name) {
  if (w.mask == all_lanes) return;
  char text[96];
  std::snprintf(text, sizeof text, "%s by the lanes 0x%08x only", name, w.mask);
  fault(launch_failed, text, __builtin_ctz(w.mask | 0x80000000u));
}

// A row of 16 bytes of a fragment is in one register of the four lanes of the row.
template <class T>
void widen(const u32* registers, u32 at, s16* to) {
  T bytes[16];
  std::memcpy(bytes, registers + u64{4} * at, sizeof bytes);
  for (int k = 0; k < 16; ++k) to[k] = static_cast<s16>(+bytes[k]);  // (numbers: + makes int)
}

// d, a, b, c: K / 8 registers of A (16 x K by rows), K / 16 of B (K x 8 by columns), 4 of C and D.
template <class A, class B, int K>
void mma(Warp& w, const Inst& i) {
  whole_warp(w, "mma.sync");
  ++w.block->counters->mma;
  const Ref* list = i.list;
  constexpr int a_registers = K / 8;
  constexpr int b_registers = K / 16;
  alignas(64) s16 a[16][K];
  alignas(64) s16 b[8][K];
  for (int r = 0; r < a_registers; ++r) {
    const u32* registers = row<const u32>(w, list[4 + r]);
    for (u32 g = 0; g < 8; ++g) widen<A>(registers, g, a[g + 8 * (r % 2)] + 16 * (r / 2));
  }
  for (int r = 0; r < b_registers; ++r) {
    const u32* registers = row<const u32>(w, list[4 + a_registers + r]);
    for (u32 g = 0; g < 8; ++g) widen<B>(registers, g, b[g] + 16 * r);
  }
  alignas(64) s32 sums[16][8];
#ifdef __AVX2__
  // Pairs of k, of all columns.
  alignas(64) s16 pairs[K / 2][8][2];
  for (int k = 0; k < K / 2; ++k) {
    for (int n = 0; n < 8; ++n) {
      pairs[k][n][0] = b[n][2 * k];
      pairs[k][n][1] = b[n][2 * k + 1];
    }
  }
  for (int m = 0; m < 16; m += 4) {
    __m256i sum[4] = {};
    for (int k = 0; k < K / 2; ++k) {
      const __m256i columns = _mm256_load_si256(reinterpret_cast<const __m256i*>(pairs[k]));
      for (int r = 0; r < 4; ++r) {
        s32 pair;
        std::memcpy(&pair, a[m + r] + 2 * k, 4);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(_mm256_set1_epi32(pair), columns));
      }
    }
    for (int r = 0; r < 4; ++r) _mm256_store_si256(reinterpret_cast<__m256i*>(sums[m + r]), sum[r]);
  }
#else
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      s32 sum = 0;
      for (int k = 0; k < K; ++k) sum += a[m][k] * b[n][k];
      sums[m][n] = sum;
    }
  }
#endif
  constexpr int c_at = 4 + a_registers + b_registers;
  const u32* c[4];
  u32* d[4];
  u32 result[4][lane_count];
  for (int r = 0; r < 4; ++r) c[r] = row<const u32>(w, list[c_at + r]);
  for (int r = 0; r < 4; ++r) d[r] = row<u32>(w, list[r]);
  for (u32 l = 0; l < lane_count; ++l) {
    for (u32 r = 0; r < 4; ++r) {
      result[r][l] = c[r][l] + static_cast<u32>(sums[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2]);
    }
  }
  for (int r = 0; r < 4; ++r) std::memcpy(d[r], result[r], sizeof result[r]);
}

// Lanes 8m to 8m + 7 have the addresses of the rows of matrix m.
template <int N, bool Transposed>
void ldmatrix(Warp& w, const Inst& i) {
  whole_warp(w, "ldmatrix");
  u64 offset[lane_count];
  const u32 mask = N == 4 ? all_lanes : (1u << (8 * N)) - 1;
  set_mask(w, mask);
  locate_shared(w, i, i.ref[N], 0, 16, offset);
  for (u32 l = 0; l < 8 * N; ++l)
    shared_read(w, static_cast<u32>(offset[l]), 16, static_cast<int>(l));
  if (w.block->counting) count_shared(*w.block, offset, mask, 16);
  set_mask(w, all_lanes);
  for (int m = 0; m < N; ++m) {
    u16 matrix[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(matrix[r], w.block->shared + offset[8 * m + r], 16);
    u32* d = row<u32>(w, i.ref[m]);
    for (u32 l = 0; l < lane_count; ++l) {
      const u32 g = l / 4;
      const u32 t = 2 * (l % 4);
      const u32 low = Transposed ? matrix[t][g] : matrix[g][t];
      const u32 high = Transposed ? matrix[t + 1][g] : matrix[g][t + 1];
      d[l] = low | high << 16;
    }
  }
}

// Two addresses, to shared from global memory; with Zero, how many bytes are read: the rest is
// zeros. The bytes are kept until they are waited for.
template <bool Zero>
void async_copy(Warp& w, const Inst& i) {
  const u32 bytes = i.bytes;
  u64 offset[lane_count];
  locate_shared(w, i, i.ref[0], 0, bytes, offset);
  const u32 mask = w.mask;
  u32 reads = mask;
  const u32* count = Zero ? row<const u32>(w, i.ref[2]) : nullptr;
  if (Zero) {
    for_lanes(mask, [&](u32 l) {
      if (count[l] > bytes)
        fault(launch_failed, "cp.async of more bytes than its size", static_cast<int>(l));
      if (count[l] == 0) reads &= ~(1u << l);
    });
  }
  Located at;
  if (reads != 0) {
    Inst global = i;
    global.space = Space::global;
    if (reads != mask) set_mask(w, reads);
    locate(w, global, i.ref[1], 1, bytes, Access::read, at);
    if (reads != mask) set_mask(w, mask);
  }
  for_lanes(mask, [&](u32 l) {
    AsyncCopy copy{static_cast<u32>(offset[l]), bytes, {}};
    const u32 n = Zero ? count[l] : bytes;
    if (n != 0) std::memcpy(copy.data, at_address<const void>(at.host[l]), n);
    shared_pending(w, copy.shared, bytes, static_cast<int>(l));
    w.uncommitted.push_back(copy);
  });
  if (w.block->counting) count_shared(*w.block, offset, mask, bytes);
}

void land(Warp& w, const std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& c : group) {
    std::memcpy(w.block->shared + c.shared, c.data, c.bytes);
    shared_landed(w, c.shared, c.bytes);
  }
}

// Groups belong to threads; those of a warp are kept together.
void together(Warp& w) {
  if (w.mask != w.live)
    fault(launch_failed, "groups of cp.async in divergent code, which is not modelled",
          __builtin_ctz(w.mask));
}

void commit(Warp& w, const Inst&) {
  together(w);
  w.committed.push_back(std::move(w.uncommitted));
  w.uncommitted.clear();
}

void wait_group(Warp& w, const Inst& i) {
  together(w);
  while (static_cast<s64>(w.committed.size()) > i.imm) {
    land(w, w.committed.front());
    w.committed.erase(w.committed.begin());
  }
}

void wait_all(Warp& w, const Inst& i) {
  commit(w, i);
  for (const auto& group : w.committed) land(w, group);
  w.committed.clear();
}

template <int K>
void add_mma(Operations& t, const std::string& shape) {
  const std::string operands =
      "{WWWW}{" + std::string(K / 8, 'w') + "}{" + std::string(K / 16, 'w') + "}{wwww}";
  const std::string head = "mma.sync.aligned." + shape + ".row.col.s32.";
  t[head + "s8.s8.s32"] = {&mma<s8, s8, K>, operands};
  t[head + "s8.u8.s32"] = {&mma<s8, u8, K>, operands};
  t[head + "u8.s8.s32"] = {&mma<u8, s8, K>, operands};
  t[head + "u8.u8.s32"] = {&mma<u8, u8, K>, operands};
}

template <int N>
void add_ldmatrix(Operations& t) {
  const std::string head = "ldmatrix.sync.aligned.m8n8.x" + std::to_string(N);
  const std::string operands = "{" + std::string(N, 'W') + "}[";
  t[head + ".b16"] = {&ldmatrix<N, false>, operands};
  t[head + ".trans.b16"] = {&ldmatrix<N, true>, operands};
}

}  // namespace

void add_matrix(Operations& t) {
  add_mma<32>(t, "m16n8k32");
  add_mma<16>(t, "m16n8k16");
  add_ldmatrix<1>(t);
  add_ldmatrix<2>(t);
  add_ldmatrix<4>(t);
  t["cp.async"] = {&async_copy<false>, "[["};
  t["cp.async/zero"] = {&async_copy<true>, "[[w"};
  t["cp.async.commit_group"] = {&commit, ""};
  t["cp.async.wait_group"] = {&wait_group, "i"};
  t["cp.async.wait_all"] = {&wait_all, ""};
}

}  // namespace standin::STANDIN_TARGET
