// AVX-512 without VNNI: pairs of products by nibbles are exact in 16 bits (15 * 128 * 2), and bytes
// are multiplied as two nibbles.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_512-inl.hpp"

namespace octavo::detail {
namespace N_AVX512_GROUP {

struct Engine : Vectors512 {
  static constexpr Target target = Target::avx512;
  static constexpr int rows = 6;
  static constexpr bool whole_bytes = false;
  static Sums add_times(Sums s, Weights w, Activation a, short factor) {
    return _mm512_add_epi32(
        s, _mm512_madd_epi16(_mm512_maddubs_epi16(w, a), _mm512_set1_epi16(factor)));
  }
  static Sums add(Sums s, Weights w, Activation a) { return add_times(s, w, a, 1); }
  static Sums add_bytes(Sums s, Weights w, Activation a) {
    return add_times(add(s, low(w), a), high(w), a, 16);
  }
};

}  // namespace N_AVX512_GROUP

const GroupKernel group_avx512{.rows = N_AVX512_GROUP::Engine::rows,
                               .run = run_groups<N_AVX512_GROUP::Engine>,
                               .sums = sum_groups<N_AVX512_GROUP::Engine>};

}  // namespace octavo::detail
