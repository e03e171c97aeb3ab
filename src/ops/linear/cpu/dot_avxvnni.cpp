// AVX-VNNI: vpdpbusd as on AVX-512, on half as many lanes and half as many registers.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_AVXVNNI {

struct Engine {
  static constexpr Target target = Target::avxvnni;
  using Activation = __m256i;
  using Weights = __m256i;
  using Sums = __m256i;
  static constexpr std::int64_t columns = 8;
  static constexpr int rows = 6;
  static constexpr int vectors = 2;
  static constexpr int tall_rows = 0;
  static constexpr int tall_vectors = 0;
  static constexpr bool asks_ahead = true;
  static constexpr std::int64_t activation_bytes = 4;

  static Activation activation(const unsigned char* p) {
    int four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static Weights weights(const std::int8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Sums zero() { return _mm256_setzero_si256(); }
  static Sums add(Sums s, Activation a, Weights w) { return _mm256_dpbusd_avx_epi32(s, a, w); }
  static void store(Sums s, std::int32_t* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), s);
  }
};

}  // namespace N_AVXVNNI

const DotKernel dot_avxvnni{.form = Form::u8, .run = dot<N_AVXVNNI::Engine>};

}  // namespace octavo::detail
