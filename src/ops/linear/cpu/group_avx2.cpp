// AVX2: as AVX-512 without VNNI, on half as many lanes.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_256-inl.hpp"

namespace octavo::detail {
namespace N_AVX2_GROUP {

struct Engine : Vectors256 {
  static constexpr Target target = Target::avx2;
  static constexpr int rows = 4;
  static constexpr bool whole_bytes = false;
  static Sums add_times(Sums s, Weights w, Activation a, short factor) {
    return _mm256_add_epi32(
        s, _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(factor)));
  }
  static Sums add(Sums s, Weights w, Activation a) { return add_times(s, w, a, 1); }
  static Sums add_bytes(Sums s, Weights w, Activation a) {
    return add_times(add(s, low(w), a), high(w), a, 16);
  }
};

}  // namespace N_AVX2_GROUP

const GroupKernel group_avx2{.rows = N_AVX2_GROUP::Engine::rows,
                             .run = run_groups<N_AVX2_GROUP::Engine>,
                             .sums = sum_groups<N_AVX2_GROUP::Engine>};

}  // namespace octavo::detail
