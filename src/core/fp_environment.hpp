// The floating-point environment every result is computed in: round to nearest even, subnormals
// kept, no traps. The caller's own, its sticky exception flags included, is put back afterwards.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#error "Octavo runs on x86-64 and aarch64"
#endif

namespace octavo::detail {

class FpEnvironment {
 public:
#if defined(__x86_64__)
  // (Loading the register takes as long as a hundred additions; its low bits are the flags.)
  FpEnvironment() noexcept : saved_(_mm_getcsr()) {
    if ((saved_ & ~0x3FU) != 0x1F80U) _mm_setcsr(0x1F80U);
  }
  ~FpEnvironment() { _mm_setcsr(saved_); }
#else
  FpEnvironment() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("mrs %0, fpsr" : "=r"(flags_));
    if (saved_ != 0) asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~FpEnvironment() {
    if (saved_ != 0) asm volatile("msr fpcr, %0" : : "r"(saved_));
    asm volatile("msr fpsr, %0" : : "r"(flags_));
  }
#endif
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  std::uint32_t saved_;
#else
  std::uint64_t saved_ = 0;
  std::uint64_t flags_ = 0;
#endif
};

}  // namespace octavo::detail
