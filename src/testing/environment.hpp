// Floating-point environments that a caller may be in.
#pragma once

#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace octavo::testing {

/// The control and status of this thread, as the CPU holds them.
struct Environment {
  std::uint64_t control = 0;
  std::uint64_t status = 0;
};

#if defined(__x86_64__)
inline Environment environment() { return {_mm_getcsr(), 0}; }
inline void set(const Environment& e) { _mm_setcsr(static_cast<unsigned>(e.control)); }
/// Four rounding modes, flush-to-zero, denormals-are-zero, traps, and a flag that was raised.
inline std::vector<Environment> environments() {
  std::vector<Environment> all;
  for (const unsigned rounding : {0U, 0x2000U, 0x4000U, 0x6000U})
    for (const unsigned flush : {0U, 0x8000U, 0x0040U, 0x8040U})
      for (const unsigned masks : {0x1F80U, 0U})
        for (const unsigned raised : {0U, 0x20U})
          if (masks != 0 || raised == 0) all.push_back({rounding | flush | masks | raised, 0});
  return all;
}
#else
inline Environment environment() {
  Environment e;
  asm volatile("mrs %0, fpcr" : "=r"(e.control));
  asm volatile("mrs %0, fpsr" : "=r"(e.status));
  return e;
}
inline void set(const Environment& e) {
  asm volatile("msr fpcr, %0" : : "r"(e.control));
  asm volatile("msr fpsr, %0" : : "r"(e.status));
}
/// Four rounding modes, flush-to-zero for f32 and f64 and for f16, default NaN, and a raised flag.
inline std::vector<Environment> environments() {
  std::vector<Environment> all;
  for (std::uint64_t rounding = 0; rounding < 4; ++rounding)
    for (const std::uint64_t flush : {0U, 1U << 24, 1U << 19, 1U << 25})
      for (const std::uint64_t raised : {0U, 0x10U})
        all.push_back({rounding << 22 | flush, raised});
  // What the CPU does not have reads as 0.
  const Environment usual = environment();
  for (Environment& e : all) {
    set(e);
    e.control = environment().control;
  }
  set(usual);
  return all;
}
#endif

}  // namespace octavo::testing
