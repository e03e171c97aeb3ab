// The CPU's tiles, which hold 16 rows of 64 bytes: how they are configured, and the instructions.
// By assembly, since the compilers' intrinsics want literal tile numbers (g++ 12) and declare too
// little of the configuration as read.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo::detail::N_AMX {

inline constexpr std::int64_t tile_rows = 16;
inline constexpr std::int64_t tile_bytes = 64;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};
};

#if defined(__x86_64__)
namespace {

struct CpuTiles {
  // What this file's kernel has configured: it releases its tiles before another one runs.
  static inline thread_local constinit TileConfig current{.palette = 0};

  // LDTILECFG waits for all that went before and clears every tile, and a run of many blocks needs
  // one or two shapes only: each thread keeps what it has until it is done.
  static void configure(const TileConfig& config) {
    if (std::memcmp(&current, &config, sizeof config) == 0) return;
    current = config;
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  static void release() {
    current.palette = 0;  // that of no configuration
    asm volatile("tilerelease");
  }
  template <int t>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  static void load(const void* p, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static void store(void* p, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  /// Tile c += tile a * tile b, s8 by s8; or s8 by u8.
  template <int c, int a, int b>
  static void multiply() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void multiply_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

}  // namespace
#endif

}  // namespace octavo::detail::N_AMX
