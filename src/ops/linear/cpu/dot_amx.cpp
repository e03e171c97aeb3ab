// AMX: tdpbssd multiplies tiles of s8 by s8. The CPU's tiles are reached by assembly, since the
// compilers' intrinsics want literal tile numbers (g++ 12) and declare too little of the
// configuration as read.
#include "ops/linear/cpu/dot_amx.hpp"

#include <cstring>

namespace octavo::detail {
namespace N_AMX {
namespace {

thread_local constinit TileConfig current{.palette = 0};

struct CpuTiles {
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
  template <int c, int a, int b>
  static void multiply() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

}  // namespace
}  // namespace N_AMX

// Released when a thread is done, so that it pays for no tiles later.
const DotKernel dot_amx{.form = Form::s8,
                        .k_grain = padded_k,
                        .rows = 64,
                        .resident_rows = 256,
                        .products_per_thread = std::int64_t{1} << 22,
                        .run = N_AMX::Kernel<N_AMX::CpuTiles>::run,
                        .end = N_AMX::CpuTiles::release};

}  // namespace octavo::detail
