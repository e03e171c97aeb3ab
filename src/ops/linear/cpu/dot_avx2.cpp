// AVX2: as AVX-512 without VNNI, on half as many lanes.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_AVX2 {

struct Engine {
  static constexpr Target target = Target::avx2;
  using Activation = __m256i;
  using Weights = __m256i;
  using Sums = __m256i;  // two for each column
  static constexpr std::int64_t columns = 4;
  static constexpr int rows = 4;
  static constexpr int vectors = 2;
  static constexpr int tall_rows = 0;
  static constexpr int tall_vectors = 0;
  static constexpr bool asks_ahead = true;
  static constexpr std::int64_t activation_bytes = 8;

  static Activation activation(const unsigned char* p) {
    long long four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi64x(four);
  }
  static Weights weights(const std::int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Sums zero() { return _mm256_setzero_si256(); }
  static Sums add(Sums s, Activation a, Weights w) {
    return _mm256_add_epi32(s, _mm256_madd_epi16(a, w));
  }
  static void store(Sums s, std::int32_t* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_hadd_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
  }
};

}  // namespace N_AVX2

const DotKernel dot_avx2{.form = Form::s16, .run = dot<N_AVX2::Engine>};

}  // namespace octavo::detail
