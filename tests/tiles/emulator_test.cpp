// Tiles of the emulator: their arithmetic, and all that it must refuse. Each in a process of its
// own, for what is installed stays.
#include <gtest/gtest.h>

#include <cstring>

#include "core/target.hpp"
#include "emulator.hpp"
#include "octavo/octavo.hpp"
#include "ops/elementwise/testing_data.hpp"

namespace octavo::testing::tiles {
namespace {

alignas(64) std::uint8_t config[64];
void usual_configuration() {
  std::memset(config, 0, sizeof config);
  config[0] = 1;
  for (int t = 0; t < 8; ++t) {
    config[16 + 2 * t] = 64;
    config[48 + t] = 16;
  }
}
void configure() { asm volatile("ldtilecfg %0" : : "m"(config)); }
void granted() {
  usual_configuration();
  install(true, true);
  ASSERT_TRUE(octavo::detail::may_run(Target::amx));
}

class EmulatorDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu_has_tiles()) GTEST_SKIP() << "this CPU has tiles of its own";
  }
};

#define OCTAVO_DIES(reason, ...) \
  EXPECT_DEATH(                  \
      {                          \
        granted();               \
        __VA_ARGS__;             \
      },                         \
      reason)

TEST_F(EmulatorDeathTest, FaultsAsTheCpuDoes) {
  std::uint8_t memory[1024] = {};
  EXPECT_DEATH(
      {
        usual_configuration();
        install(true, false, false);
        configure();
      },
      "without the system's permission");
  OCTAVO_DIES("a palette that there is not", config[0] = 2; configure());
  OCTAVO_DIES("reserved bytes", config[2] = 1; configure());
  OCTAVO_DIES("reserved bytes", config[15] = 1; configure());
  OCTAVO_DIES("start_row", config[1] = 1; configure());
  OCTAVO_DIES("too large", config[16] = 65; configure());
  OCTAVO_DIES("too large", config[48] = 17; configure());
  OCTAVO_DIES("rows without bytes", config[16] = 0; configure());
  OCTAVO_DIES("beyond the eighth", config[16 + 16] = 64; configure());
  OCTAVO_DIES("beyond the eighth", config[48 + 8] = 1; configure());
  OCTAVO_DIES("beyond the eighth", config[16 + 31] = 1; configure());
  OCTAVO_DIES("beyond the eighth", config[48 + 15] = 1; configure());
  OCTAVO_DIES("not configured", asm volatile("tilezero %tmm0"));
  OCTAVO_DIES("not configured", configure(); asm volatile("tilerelease\n tilezero %tmm0"));
  OCTAVO_DIES("has no shape", config[16] = config[48] = 0; configure();
              asm volatile("tilezero %tmm0"));
  OCTAVO_DIES("never written", configure(); asm volatile("tilestored %%tmm0, (%0,%1,1)"
                                                         :
                                                         : "r"(memory), "r"(64L)
                                                         : "memory"));
  OCTAVO_DIES("one tile in two places", configure();
              asm volatile("tilezero %tmm0\n tilezero %tmm1\n .byte 0xc4, 0xe2, 0x73, 0x5e, 0xc1"));
  OCTAVO_DIES("none of AMX", asm volatile("ud2"));
}

// Tile 0 += tile 1 * tile 2.
void multiply() {
  configure();
  asm volatile(
      "tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n"
      "tdpbssd %tmm2, %tmm1, %tmm0");
}

TEST_F(EmulatorDeathTest, RefusesShapesThatDoNotFit) {
  constexpr int c = 0, a = 1, b = 2;
  const auto bytes = [](int tile) -> std::uint8_t& { return config[16 + 2 * tile]; };
  const auto rows = [](int tile) -> std::uint8_t& { return config[48 + tile]; };
  OCTAVO_DIES("shapes that do not fit", rows(b) = 15; multiply());   // of a's bytes
  OCTAVO_DIES("shapes that do not fit", bytes(a) = 60; multiply());  // of b's rows
  OCTAVO_DIES("shapes that do not fit", rows(c) = 15; multiply());   // of a's rows
  OCTAVO_DIES("shapes that do not fit", rows(a) = 15; multiply());
  OCTAVO_DIES("shapes that do not fit", bytes(c) = 60; multiply());  // of b's bytes
  OCTAVO_DIES("shapes that do not fit", bytes(b) = 60; multiply());
  OCTAVO_DIES("shapes that do not fit", bytes(c) = bytes(b) = 62; multiply());  // no whole sums
  EXPECT_EXIT(
      {
        granted();
        rows(c) = rows(a) = 3;
        bytes(a) = 20;
        rows(b) = 5;
        bytes(c) = bytes(b) = 8;
        multiply();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

bool refused_tiles_are_not_available() {
  octavo::detail::pretend(
      {.targets = 1U << static_cast<unsigned>(Target::amx), .ask_for_tiles = [] { return false; }});
  const bool before = is_available(Target::amx);
  const auto plan = QuantizedMatmulPlan::select(Stream::cpu(), {.m = 1, .n = 1, .k = 1});
  return before && plan && plan->sku().target != Target::amx && !is_available(Target::amx) &&
         !QuantizedMatmulPlan::select(Stream::cpu({.cap = Target::amx}), {.m = 1, .n = 1, .k = 1});
}

// On CPUs with tiles, too. In a process that has run no other test: targets are looked for once.
TEST(EmulatorTargetsDeathTest, TilesThatTheSystemRefusesAreNotAvailable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(refused_tiles_are_not_available() ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

TEST_F(EmulatorDeathTest, StoresItsConfigurationAndReleases) {
  EXPECT_EXIT(
      {
        granted();
        config[48 + 3] = 7;
        configure();
        alignas(64) std::uint8_t stored[64];
        asm volatile("sttilecfg %0" : "=m"(stored));
        bool right = std::memcmp(stored, config, 64) == 0 && in_use();
        asm volatile("tilerelease\n sttilecfg %0" : "=m"(stored));
        const std::uint8_t nothing[64] = {};
        right = right && std::memcmp(stored, nothing, 64) == 0 && !in_use();
        std::_Exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// The tests before have the library's kernels; here each kind of product, by bytes.
template <class A, class B>
std::int32_t dot(const std::uint8_t* a, const std::uint8_t* b) {
  std::int32_t sum = 0;
  for (int k = 0; k < 64; ++k)
    sum += static_cast<A>(a[k]) * static_cast<B>(b[64 * (k / 4) + k % 4]);
  return sum;
}

bool multiplies_right() {
  granted();
  configure();
  std::uint8_t a[16][64], b[16][64];
  Random random(7);
  for (auto& row : a)
    for (auto& x : row) x = static_cast<std::uint8_t>(random.next());
  for (auto& row : b)
    for (auto& x : row) x = static_cast<std::uint8_t>(random.next());
  std::int32_t c[4][16][16];
  asm volatile("tileloadd (%0,%1,1), %%tmm4\n tileloaddt1 (%2,%1,1), %%tmm5"
               :
               : "r"(a), "r"(64L), "r"(b)
               : "memory");
  asm volatile(
      "tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n tilezero %tmm3\n"
      "tdpbssd %tmm5, %tmm4, %tmm0\n tdpbsud %tmm5, %tmm4, %tmm1\n"
      "tdpbusd %tmm5, %tmm4, %tmm2\n tdpbuud %tmm5, %tmm4, %tmm3");
  asm volatile(
      "tilestored %%tmm0, (%0,%4,1)\n tilestored %%tmm1, (%1,%4,1)\n"
      "tilestored %%tmm2, (%2,%4,1)\n tilestored %%tmm3, (%3,%4,1)"
      :
      : "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(64L)
      : "memory");
  bool right = true;
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      const std::uint8_t *x = a[m], *y = b[0] + std::ptrdiff_t{4} * n;
      right = right && c[0][m][n] == dot<std::int8_t, std::int8_t>(x, y) &&
              c[1][m][n] == dot<std::int8_t, std::uint8_t>(x, y) &&
              c[2][m][n] == dot<std::uint8_t, std::int8_t>(x, y) &&
              c[3][m][n] == dot<std::uint8_t, std::uint8_t>(x, y);
    }
  return right;
}

TEST_F(EmulatorDeathTest, MultipliesSignedAndUnsigned) {
  EXPECT_EXIT(std::_Exit(multiplies_right() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::testing::tiles
