// The AMX kernel on tiles that are emulated, so that its logic is tested on every machine: which
// tile is loaded from where, with how many rows, and what is stored.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "octavo/octavo.hpp"
#include "ops/elementwise/testing_data.hpp"
#include "ops/linear/cpu/dot_amx.hpp"
#include "testing/threads.hpp"
#if defined(__x86_64__)
#include "tests/tiles/emulator.hpp"
#endif

namespace octavo::testing {
namespace {

using octavo::detail::block_rows;
using octavo::detail::DotCall;
using octavo::detail::group_columns;
using octavo::detail::group_panels;
using octavo::detail::panel_columns;
namespace amx = octavo::detail::N_AMX;

/// What the manual says of the instructions, for tiles of 64-byte rows.
struct EmulatedTiles {
  static inline amx::TileConfig config;
  static inline std::int8_t tiles[8][16][64];

  static void configure(const amx::TileConfig& c) {
    ASSERT_EQ(c.palette, 1);
    config = c;
    std::memset(tiles, 0, sizeof tiles);
  }
  static void release() { config = {}; }
  template <int t>
  static void zero() {
    std::memset(tiles[t], 0, sizeof tiles[t]);
  }
  template <int t>
  static void load(const void* p, std::int64_t stride) {
    zero<t>();
    for (int r = 0; r < config.rows[t]; ++r)
      std::memcpy(tiles[t][r], static_cast<const char*>(p) + r * stride, config.bytes[t]);
  }
  template <int t>
  static void store(void* p, std::int64_t stride) {
    for (int r = 0; r < config.rows[t]; ++r)
      std::memcpy(static_cast<char*>(p) + r * stride, tiles[t][r], config.bytes[t]);
  }
  template <int c, int a, int b>
  static void multiply() {
    ASSERT_EQ(config.rows[c], config.rows[a]);
    ASSERT_EQ(config.bytes[a], 4 * config.rows[b]);
    ASSERT_EQ(config.bytes[c], config.bytes[b]);
    for (int r = 0; r < config.rows[c]; ++r)
      for (std::ptrdiff_t n = 0; n < config.bytes[c] / 4; ++n) {
        std::uint32_t sum = 0;
        std::memcpy(&sum, &tiles[c][r][4 * n], 4);
        for (int k = 0; k < config.bytes[a]; ++k)
          sum += static_cast<std::uint32_t>(tiles[a][r][k] * tiles[b][k / 4][4 * n + k % 4]);
        std::memcpy(&tiles[c][r][4 * n], &sum, 4);
      }
  }
};

TEST(Amx, MultipliesBlocksOfAnySize) {
  constexpr std::int64_t most_k = 192;
  Random random(5);
  std::vector<std::int8_t> activations(static_cast<std::size_t>(block_rows * (most_k + 64)));
  std::vector<std::int8_t> weights(static_cast<std::size_t>(group_columns * most_k));
  for (auto& a : activations) a = static_cast<std::int8_t>(random.next());
  for (auto& w : weights) w = static_cast<std::int8_t>(random.next());
  for (std::int64_t rows = 1; rows <= block_rows; ++rows)
    for (int panels = 1; panels <= group_panels; ++panels)
      for (std::int64_t k = 64; k <= most_k; k += 64) {
        DotCall call;
        call.activations = activations.data();
        call.activation_stride = most_k + 64;
        call.rows = rows;
        call.weights = weights.data();
        call.panel_bytes = k * panel_columns;
        call.panels = panels;
        call.steps = k / 4;
        call.ahead = weights.data();
        call.ahead_bytes = k * panel_columns * panels;
        std::vector<std::int32_t> expected(static_cast<std::size_t>(block_rows * group_columns),
                                           -77);
        std::vector<std::int32_t> got = expected;
        call.sums = expected.data();
        octavo::detail::dot_scalar.run(call);
        call.sums = got.data();
        ASSERT_EQ(amx::Kernel<EmulatedTiles>::run(call), Target::amx);
        ASSERT_EQ(got, expected) << rows << " rows, " << panels << " panels, k " << k;
      }
}

#if defined(__x86_64__)

// Of this thread: what XGETBV tells, or the emulator.
bool tiles_in_use() {
  if (tiles::emulates_tiles()) return tiles::in_use();
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return ((low >> 18U) & 1U) != 0;
}

// Ones times ones, on all threads of the stream.
void multiply_ones(const Stream& stream) {
  constexpr std::int64_t m = 512, n = 512, k = 64;
  const std::vector<std::int8_t> ones(std::size_t{m} * k, 1);
  std::vector<std::int32_t> y(std::size_t{m} * n);
  const auto plan =
      QuantizedMatmulPlan::select(stream, {.m = m, .n = n, .k = k, .output = DType::s32});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->sku().target, Target::amx);
  const WorkspaceBuffer workspace(plan->workspace_size());
  ASSERT_TRUE(plan->run(stream, workspace,
                        {.input = TensorRef(ones, {m, k}),
                         .weight = TensorRef(ones, {n, k}),
                         .output = TensorMut(y, {m, n})}));
  EXPECT_EQ(y, std::vector<std::int32_t>(y.size(), k));
}

// Tiles that stay in use cost every switch of the thread 8 KB: none are left behind by a run, on
// the caller's thread or on those of the pool, which are there before the run and looked at after
// it.
TEST(Amx, TilesAreReleased) {
  if (!is_available(Target::amx)) GTEST_SKIP() << "this CPU lacks amx";
  [[maybe_unused]] const ManyThreads many;
  for (const int threads : {1, 4}) {
    const Stream stream = Stream::cpu({.threads = threads, .cap = Target::amx});
    const tiles::Counts before = tiles::counts();
    std::atomic<int> left{0};
    const auto look = [&] { left += tiles_in_use() ? 1 : 0; };
    ASSERT_EQ(on_threads_at_once(stream, threads, look), static_cast<std::size_t>(threads));
    multiply_ones(stream);
    ASSERT_EQ(on_threads_at_once(stream, threads, look), static_cast<std::size_t>(threads));
    EXPECT_EQ(left, 0);
    if (!tiles::emulates_tiles()) continue;
    const tiles::Counts after = tiles::counts();
    EXPECT_GE(after.products - before.products, 512 / 16 * (512 / 16));
    // Once for each shape of tiles that a thread needs, not for each block: here there is one.
    EXPECT_LE(after.configured - before.configured, threads);
    EXPECT_GE(after.configured - before.configured, 1);
    EXPECT_LE(after.configured - before.configured, after.released - before.released);
  }
}

#endif

}  // namespace
}  // namespace octavo::testing
