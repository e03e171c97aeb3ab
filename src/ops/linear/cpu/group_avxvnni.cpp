// AVX-VNNI: as on AVX-512, on half as many lanes and half as many registers.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_256-inl.hpp"

namespace octavo::detail {
namespace N_AVXVNNI_GROUP {

struct Engine : Vectors256 {
  static constexpr Target target = Target::avxvnni;
  static constexpr int rows = 4;
  static constexpr bool whole_bytes = true;
  static Sums add(Sums s, Weights w, Activation a) { return _mm256_dpbusd_avx_epi32(s, w, a); }
  static Sums add_bytes(Sums s, Weights w, Activation a) { return add(s, w, a); }
};

}  // namespace N_AVXVNNI_GROUP

const GroupKernel group_avxvnni{.rows = N_AVXVNNI_GROUP::Engine::rows,
                                .run = run_groups<N_AVXVNNI_GROUP::Engine>,
                                .sums = sum_groups<N_AVXVNNI_GROUP::Engine>};

}  // namespace octavo::detail
