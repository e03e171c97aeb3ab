// The emulator itself: its decoder against the assembler, its arithmetic against this CPU where it
// has the instructions in another encoding, and all that it must refuse.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "core/target.hpp"
#include "decode.hpp"
#include "emulator.hpp"
#include "octavo/octavo.hpp"
#include "offline/testing_files.hpp"
#include "ops/elementwise/testing_data.hpp"

namespace octavo::testing::tiles {
namespace {

int below(Random& random, int n) {
  return static_cast<int>(random.next() % static_cast<unsigned>(n));
}

Operand made_memory(Random& random, bool sib) {
  Operand o;
  o.is_memory = true;
  o.base = below(random, 17);
  if (o.base == 16 && sib) o.base = -1;  // rip has no index
  o.index = o.base == 16 ? -1 : below(random, 16);
  if (o.index == 4) o.index = sib ? 5 : -1;
  if (o.index >= 0) o.scale = 1 << below(random, 4);
  if (o.base < 0 || below(random, 2) == 0)
    o.displacement = below(random, 2) == 0 ? below(random, 256) - 128
                                           : static_cast<std::int32_t>(random.next() >> 33U);
  return o;
}

Instruction made_instruction(Random& random) {
  Instruction i;
  i.kind = static_cast<Kind>(below(random, static_cast<int>(Kind::vpdpwssds) + 1));
  const bool vector = i.kind >= Kind::vpdpbusd;
  const bool product = i.kind >= Kind::tdpbssd && !vector;
  const bool moves =
      i.kind == Kind::tileloadd || i.kind == Kind::tileloaddt1 || i.kind == Kind::tilestored;
  if (i.kind == Kind::tilerelease) return i;
  if (i.kind != Kind::ldtilecfg && i.kind != Kind::sttilecfg)
    i.reg = below(random, vector ? 16 : 8);
  if (i.kind == Kind::tilezero) return i;
  if (product || vector) i.vvvv = below(random, vector ? 16 : 8);
  if (vector) i.wide = below(random, 2) == 0;
  if (product) {  // three different tiles, or the assembler refuses
    i.vvvv = (i.reg + 1 + below(random, 3)) % 8;
    i.rm.reg = (i.reg + 4 + below(random, 4)) % 8;
  } else if (vector && below(random, 2) == 0)
    i.rm.reg = below(random, 16);
  else
    i.rm = made_memory(random, moves);
  return i;
}

TEST(Decoder, ReadsWhatTheAssemblerWrites) {
  if (std::system("as --version >/dev/null 2>&1 && objcopy --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no assembler";
  const TemporaryDirectory dir;
  Random random(1);
  std::vector<std::string> wanted;
  {
    std::ofstream source(dir / "a.s");
    for (int i = 0; i < 20000; ++i) {
      wanted.push_back(to_string(made_instruction(random)));
      source << wanted.back() << "\n";
    }
  }
  const std::string base = dir.path().string();
  ASSERT_EQ(
      std::system(
          ("cd " + base + " && as a.s -o a.o && objcopy -O binary -j .text a.o a.bin").c_str()),
      0);
  std::ifstream in(dir / "a.bin", std::ios::binary);
  std::vector<std::uint8_t> code{std::istreambuf_iterator<char>(in), {}};
  const std::size_t size = code.size();
  code.resize(size + 16);
  std::size_t at = 0;
  for (const std::string& text : wanted) {
    const auto decoded = decode(&code[at]);
    ASSERT_TRUE(decoded) << text;
    ASSERT_EQ(to_string(*decoded), text);
    at += static_cast<std::size_t>(decoded->length);
  }
  EXPECT_EQ(at, size);
}

TEST(Decoder, RefusesWhatTheManualForbids) {
  const auto refused = [](std::vector<std::uint8_t> code) {
    code.resize(16);
    return !decode(code.data());
  };
  EXPECT_FALSE(refused({0xC4, 0xE2, 0x78, 0x49, 0xC0}));       // tilerelease
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x70, 0x49, 0xC0}));        // with vvvv
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x7C, 0x49, 0xC0}));        // 256 bits
  EXPECT_TRUE(refused({0xC4, 0xE2, 0xF8, 0x49, 0xC0}));        // W = 1
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x7B, 0x4B, 0x18}));        // tileloadd without SIB
  EXPECT_TRUE(refused({0xC4, 0x62, 0x7B, 0x4B, 0x1C, 0x18}));  // tile 11
  EXPECT_TRUE(refused({0xC4, 0xC2, 0x73, 0x5E, 0xDA}));        // tile 10 in rm
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x33, 0x5E, 0xDA}));        // tile 9 in vvvv
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x78, 0x4B, 0x1C, 0x18}));  // no prefix
  EXPECT_TRUE(refused({0x0F, 0x0B}));                          // ud2
}

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

#define OCTAVO_DIES(reason, ...) \
  EXPECT_DEATH(                  \
      {                          \
        granted();               \
        __VA_ARGS__;             \
      },                         \
      reason)

TEST(EmulatorDeathTest, FaultsAsTheCpuDoes) {
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
  OCTAVO_DIES("beyond the eighth", config[16 + 16] = 64; config[48 + 8] = 1; configure());
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
  OCTAVO_DIES("shapes that do not fit", config[48 + 2] = 15; configure();
              asm volatile("tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n"
                           "tdpbssd %tmm2, %tmm1, %tmm0"));
  OCTAVO_DIES("none of AMX", asm volatile("ud2"));
}

bool refused_tiles_are_not_available() {
  install(true, false, false);
  const bool before = is_available(Target::amx);
  const auto plan = QuantizedMatmulPlan::select(Stream::cpu(), {.m = 1, .n = 1, .k = 1});
  return before && plan && plan->sku().target != Target::amx && !is_available(Target::amx) &&
         !QuantizedMatmulPlan::select(Stream::cpu({.cap = Target::amx}), {.m = 1, .n = 1, .k = 1});
}

// In a process of its own: what is installed stays. (And before anything asks for targets here.)
TEST(EmulatorDeathTest, TilesThatTheSystemRefusesAreNotAvailable) {
  EXPECT_EXIT(std::_Exit(refused_tiles_are_not_available() ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

TEST(EmulatorDeathTest, StoresItsConfigurationAndReleases) {
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

TEST(EmulatorDeathTest, MultipliesSignedAndUnsigned) {
  EXPECT_EXIT(std::_Exit(multiplies_right() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// By this CPU's own instruction in its other encoding, where it has that.
__attribute__((target("avx512vl,avx512vnni"))) __m256i by_cpu(int kind, __m256i c, __m256i a,
                                                              __m256i b) {
  switch (kind) {
    case 0:
      return _mm256_dpbusd_epi32(c, a, b);
    case 1:
      return _mm256_dpbusds_epi32(c, a, b);
    case 2:
      return _mm256_dpwssd_epi32(c, a, b);
    default:
      return _mm256_dpwssds_epi32(c, a, b);
  }
}
__attribute__((target("avx2"))) __m256i by_emulator(int kind, __m256i c, __m256i a, __m256i b) {
  switch (kind) {
    case 0:
      asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "m"(b));
      break;
    case 1:
      asm volatile("%{vex%} vpdpbusds %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
      break;
    case 2:
      asm volatile("%{vex%} vpdpwssd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
      break;
    default:
      asm volatile("%{vex%} vpdpwssds %2, %1, %0" : "+x"(c) : "x"(a), "m"(b));
  }
  return c;
}

// By the manual, in exact numbers.
__attribute__((target("avx2"))) __m256i by_manual(int kind, __m256i c, __m256i a, __m256i b) {
  const auto lanes = [](auto element, const __m256i& v) {
    std::array<decltype(element), 32 / sizeof element> out;
    std::memcpy(out.data(), &v, 32);
    return out;
  };
  auto sums = lanes(std::int32_t{}, c);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::int64_t exact = sums[i];
    for (std::size_t j = 0; j < 4 && kind < 2; ++j)
      exact +=
          std::int64_t{lanes(std::uint8_t{}, a)[4 * i + j]} * lanes(std::int8_t{}, b)[4 * i + j];
    for (std::size_t j = 0; j < 2 && kind >= 2; ++j)
      exact +=
          std::int64_t{lanes(std::int16_t{}, a)[2 * i + j]} * lanes(std::int16_t{}, b)[2 * i + j];
    const bool saturates = kind % 2 == 1;
    if (saturates) exact = std::clamp<std::int64_t>(exact, INT32_MIN, INT32_MAX);
    sums[i] = static_cast<std::int32_t>(exact);  // (modulo 2^32)
  }
  std::memcpy(&c, sums.data(), 32);
  return c;
}

// 20,000 products of vectors, a third of them of the same byte, so that sums saturate.
using Vectors = __m256i (*)(int kind, __m256i c, __m256i a, __m256i b);
__attribute__((target("avx2"))) bool vectors_are_those_of(Vectors reference) {
  granted();
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    std::uint8_t bytes[3][32];
    for (auto& v : bytes) {
      const auto same = static_cast<std::uint8_t>(random.next() % 2 == 0 ? 0x80 : 0x7F);
      for (auto& x : v) x = i % 3 == 0 ? same : static_cast<std::uint8_t>(random.next());
    }
    __m256i v[3];
    std::memcpy(v, bytes, sizeof v);
    const __m256i difference =
        _mm256_xor_si256(reference(i % 4, v[0], v[1], v[2]), by_emulator(i % 4, v[0], v[1], v[2]));
    if (_mm256_testz_si256(difference, difference) == 0) return false;
  }
  return true;
}

TEST(EmulatorDeathTest, VectorsAreThoseOfTheManual) {
  if (!is_available(Target::avx2)) GTEST_SKIP() << "this CPU lacks avx2";
  EXPECT_EXIT(std::_Exit(vectors_are_those_of(by_manual) ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

TEST(EmulatorDeathTest, VectorsAreThoseOfTheCpu) {
  if (!is_available(Target::avx512vnni)) GTEST_SKIP() << "this CPU lacks avx512vnni";
  EXPECT_EXIT(std::_Exit(vectors_are_those_of(by_cpu) ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::testing::tiles
