// AVX-512 without VNNI: weights are widened to 16 bits, as the activations are already, and
// vpmaddwd adds two products exactly. (vpmaddubsw, on 8 bits, would saturate.)
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_AVX512 {

struct Engine {
  static constexpr Target target = Target::avx512;
  using Activation = __m512i;
  using Weights = __m512i;
  using Sums = __m512i;  // two for each column
  static constexpr std::int64_t columns = 8;
  static constexpr int rows = 6;
  static constexpr int vectors = 4;
  static constexpr int tall_rows = 0;
  static constexpr int tall_vectors = 0;
  static constexpr bool asks_ahead = true;
  static constexpr std::int64_t activation_bytes = 8;

  static Activation activation(const unsigned char* p) {
    long long four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi64(four);
  }
  static Weights weights(const std::int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Sums zero() { return _mm512_setzero_si512(); }
  static Sums add(Sums s, Activation a, Weights w) {
    return _mm512_add_epi32(s, _mm512_madd_epi16(a, w));
  }
  static void store(Sums s, std::int32_t* p) {
    // Through memory, for g++ 12 warns falsely of the intrinsics that halve a vector.
    alignas(64) std::int32_t pairs[16];
    _mm512_store_si512(pairs, s);
    const __m256i mixed =
        _mm256_hadd_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs)),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(pairs + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xD8));
  }
};

}  // namespace N_AVX512

const DotKernel dot_avx512{.form = Form::s16, .run = dot<N_AVX512::Engine>};

}  // namespace octavo::detail
