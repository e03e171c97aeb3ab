// The machine that tests run on: its targets, and how slow it is.
#pragma once

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/stream.hpp"

namespace octavo::testing {

inline constexpr std::array all_thread_counts{1, 2, 3, 7, 16};

#if defined(__x86_64__)
inline constexpr std::array machine_targets{Target::scalar, Target::avx2,       Target::avxvnni,
                                            Target::avx512, Target::avx512vnni, Target::amx};
#elif defined(__aarch64__)
inline constexpr std::array machine_targets{Target::scalar, Target::neon, Target::dotprod,
                                            Target::i8mm, Target::sve};
#else
inline constexpr std::array machine_targets{Target::scalar};
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define OCTAVO_SANITIZED 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OCTAVO_SANITIZED 1
#endif
#endif
#ifdef OCTAVO_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

#ifdef __OPTIMIZE__
inline constexpr bool optimized = true;
#else
inline constexpr bool optimized = false;
#endif

/// Whether the CPU is qemu's.
[[nodiscard]] inline bool emulated() {
  static const bool found = [] {
    const char* text = std::getenv("OCTAVO_EMULATED");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return found;
}

/// Whether the tests run many times slower than usual: in an emulator, with a sanitizer, compiled
/// without optimization.
[[nodiscard]] inline bool slow_machine() { return sanitized || !optimized || emulated(); }

/// Why guard pages prove nothing of this target here, or empty.
[[nodiscard]] inline std::string no_guard_tests(Target target) {
  if (!emulated() || target != Target::avx2) return {};
  return "qemu reads a whole vector where a masked load of AVX2 reads some of it";
}

}  // namespace octavo::testing
