// AVX-VNNI of the emulator: its arithmetic against the manual's, and against this CPU where it has
// the instructions in another encoding; registers and addresses.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator.hpp"
#include "octavo/octavo.hpp"
#include "ops/elementwise/testing_data.hpp"

namespace octavo::testing::tiles {
namespace {

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
  install(false, true);
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

class EmulatorVectorsDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Target::avx2)) GTEST_SKIP() << "this CPU lacks avx2";
    if (cpu_has_avxvnni()) GTEST_SKIP() << "this CPU has AVX-VNNI of its own";
  }
};

TEST_F(EmulatorVectorsDeathTest, AreThoseOfTheManual) {
  EXPECT_EXIT(std::_Exit(vectors_are_those_of(by_manual) ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

TEST_F(EmulatorVectorsDeathTest, AreThoseOfTheCpu) {
  if (!is_available(Target::avx512vnni)) GTEST_SKIP() << "this CPU lacks avx512vnni";
  EXPECT_EXIT(std::_Exit(vectors_are_those_of(by_cpu) ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// What a register of 512 bits holds, and what an instruction leaves of it. (In one piece: compilers
// may use any register in between.)
struct Register {
  std::uint8_t bytes[64];
};
#define OCTAVO_ON_REGISTERS(instruction)                                      \
  asm volatile(                                                               \
      "vmovdqu64 %0, %%zmm3\n vmovdqu64 %1, %%zmm4\n vmovdqu64 %2, %%zmm13\n" \
      "%{vex%} " instruction "\n vmovdqu64 %%zmm3, %0"                        \
      : "+m"(c)                                                               \
      : "m"(a), "m"(b)                                                        \
      : "xmm3", "xmm4", "xmm13")
using Instruction512 = void (*)(Register& c, const Register& a, const Register& b);

Register made_register(Random& random) {
  Register r;
  for (auto& x : r.bytes) x = static_cast<std::uint8_t>(random.next());
  return r;
}

// The lanes of `bytes` bytes are the manual's, and all above them is zero.
__attribute__((target("avx2"))) bool writes(Instruction512 run, int kind, std::size_t bytes) {
  install(false, true);
  Random random(11);
  for (int i = 0; i < 100; ++i) {
    const Register a = made_register(random), b = made_register(random);
    Register c = made_register(random);
    __m256i v[3];
    const Register* const from[] = {&c, &a, &b};
    for (int j = 0; j < 3; ++j) std::memcpy(&v[j], from[j]->bytes, 32);
    const __m256i product = by_manual(kind, v[0], v[1], v[2]);
    Register expected{};
    std::memcpy(expected.bytes, &product, bytes);
    run(c, a, b);
    if (std::memcmp(c.bytes, expected.bytes, sizeof c.bytes) != 0) return false;
  }
  return true;
}

TEST_F(EmulatorVectorsDeathTest, AreZeroAboveTheirResult) {
  if (!is_available(Target::avx512)) GTEST_SKIP() << "this CPU lacks avx512";
  struct Case {
    Instruction512 run;
    int kind;
    std::size_t bytes;
  };
  using R = Register;
  const Case cases[] = {
      {[](R& c, const R& a, const R& b) { OCTAVO_ON_REGISTERS("vpdpbusd %%ymm13,%%ymm4,%%ymm3"); },
       0, 32},
      {[](R& c, const R& a, const R& b) { OCTAVO_ON_REGISTERS("vpdpbusd %%xmm13,%%xmm4,%%xmm3"); },
       0, 16},
      {[](R& c, const R& a, const R& b) { OCTAVO_ON_REGISTERS("vpdpbusds %%xmm13,%%xmm4,%%xmm3"); },
       1, 16},
      {[](R& c, const R& a, const R& b) { OCTAVO_ON_REGISTERS("vpdpwssd %%xmm13,%%xmm4,%%xmm3"); },
       2, 16},
      {[](R& c, const R& a, const R& b) { OCTAVO_ON_REGISTERS("vpdpwssds %%xmm13,%%xmm4,%%xmm3"); },
       3, 16},
  };
  for (const Case& c : cases)
    EXPECT_EXIT(std::_Exit(writes(c.run, c.kind, c.bytes) ? 0 : 1), ::testing::ExitedWithCode(0),
                "")
        << c.kind << ", " << c.bytes << " bytes";
}

// c += a * what lies at start + step * scale + displacement, by way of the registers that are
// named. (What they held is kept in vectors, so that compilers may need any of them: rbx and rbp.)
#define OCTAVO_ADDRESS(base, index, scale, displacement)                               \
  __attribute__((target("avx2")))                                                      \
  __m256i by_##base(__m256i c, __m256i a, __m128i start, __m128i step) {               \
    __m128i kept[2];                                                                   \
    asm volatile("vmovq %%" #base ", %[k0]\n vmovq %%" #index                          \
                 ", %[k1]\n"                                                           \
                 "vmovq %[start], %%" #base "\n vmovq %[step], %%" #index              \
                 "\n"                                                                  \
                 "%{vex%} vpdpbusd " #displacement "(%%" #base ",%%" #index "," #scale \
                 "), %[a], %[c]\n"                                                     \
                 "vmovq %[k1], %%" #index "\n vmovq %[k0], %%" #base                   \
                 : [c] "+x"(c), [k0] "=&x"(kept[0]), [k1] "=&x"(kept[1])               \
                 : [a] "x"(a), [start] "x"(start), [step] "x"(step)                    \
                 : "memory");                                                          \
    return c;                                                                          \
  }
// (clang-format arranges the list anew each time.)
// clang-format off
#define OCTAVO_ADDRESSES(X) \
  X(rax, rcx, 1, 0) \
  X(rcx, rdx, 2, 8) \
  X(rdx, rbx, 4, -8) \
  X(rbx, rbp, 8, 0x12340) \
  X(rbp, rsi, 1, -0x12340) \
  X(rsi, rdi, 2, 0) \
  X(rdi, r8, 4, 127) \
  X(r8, r9, 8, -128) \
  X(r9, r10, 1, 128) \
  X(r10, r11, 2, -129) \
  X(r11, r12, 4, 0) \
  X(r12, r13, 8, 1) \
  X(r13, r14, 1, 0) \
  X(r14, r15, 2, -0x7fffff00) \
  X(r15, rax, 4, 0x7fffff00)
// clang-format on
OCTAVO_ADDRESSES(OCTAVO_ADDRESS)

// The stack's own register is no index, and as a base it must stay what it is.
__attribute__((target("avx2"))) __m256i by_rsp(__m256i c, __m256i a, __m128i start) {
  asm volatile(
      "vmovq %[start], %%rax\n sub %%rsp, %%rax\n"
      "%{vex%} vpdpbusd (%%rsp,%%rax,1), %[a], %[c]"
      : [c] "+x"(c)
      : [a] "x"(a), [start] "x"(start)
      : "memory", "rax", "cc");
  return c;
}

__attribute__((target("avx2"))) bool addresses_are_right() {
  install(false, true);
  Random random(13);
  const Register r[] = {made_register(random), made_register(random), made_register(random)};
  __m256i c, a, b;
  std::memcpy(&c, r[0].bytes, 32);
  std::memcpy(&a, r[1].bytes, 32);
  const unsigned char* const at = &r[2].bytes[5];
  std::memcpy(&b, at, 32);
  const auto bytes_of = [](const __m256i& v) {
    std::array<std::uint8_t, 32> bytes;
    std::memcpy(bytes.data(), &v, 32);
    return bytes;
  };
  const auto expected = bytes_of(by_manual(0, c, a, b));
  const auto is_right = [&](const __m256i& got) { return bytes_of(got) == expected; };
  const auto address = reinterpret_cast<std::int64_t>(at);
  constexpr std::int64_t step = -1000003;
  const __m128i steps = _mm_set_epi64x(0, step);
  bool right = is_right(by_rsp(c, a, _mm_set_epi64x(0, address)));
#define OCTAVO_CHECK(base, index, scale, displacement) \
  right =                                              \
      right && is_right(by_##base(                     \
                   c, a, _mm_set_epi64x(0, address - step * (scale) - (displacement)), steps));
  OCTAVO_ADDRESSES(OCTAVO_CHECK)
  return right && counts().vectors == 16;
}

TEST_F(EmulatorVectorsDeathTest, AreReadFromAnyAddress) {
  EXPECT_EXIT(std::_Exit(addresses_are_right() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::testing::tiles
