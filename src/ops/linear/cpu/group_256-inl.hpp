// Vectors of 256 bits, for the kernels on weights in groups (group-inl.hpp).
#pragma once

namespace octavo::detail {
namespace {

struct Vectors256 {
  using Activation = __m256i;
  using Weights = __m256i;
  using Sums = __m256i;
  using Floats = __m256;
  static constexpr std::int64_t columns = 8;
  static constexpr int together(int /*chains*/) { return 1; }
  static constexpr bool one_by_one = false;
  static constexpr int steps_at_once = 1;
  static constexpr std::int64_t ahead(int /*chains*/) { return 2048; }

  static Activation activation(const std::int8_t* p) {
    int four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static Weights load(const unsigned char* p) {
    __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    __asm__("" : "+x"(w));  // as on 512 bits
    return w;
  }
  static Weights low(Weights w) { return _mm256_and_si256(w, _mm256_set1_epi8(0x0F)); }
  static Weights high(Weights w) { return low(_mm256_srli_epi16(w, 4)); }
  static Weights upper(Weights w) { return _mm256_andnot_si256(_mm256_set1_epi8(0x0F), w); }

  static Sums zero() { return _mm256_setzero_si256(); }
  static Sums repeated(std::int32_t v) { return _mm256_set1_epi32(v); }
  static Sums integers(const std::int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Sums bytes(const unsigned char* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static Sums plus(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
  static Sums minus(Sums a, Sums b) { return _mm256_sub_epi32(a, b); }
  static Sums times(Sums a, Sums b) { return _mm256_mullo_epi32(a, b); }
  static Sums times256(Sums a) { return _mm256_slli_epi32(a, 8); }
  static Sums sixteenth(Sums a) { return _mm256_srai_epi32(a, 4); }
  static void store(Sums s, std::int32_t* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), s);
  }

  static Floats no_value() { return _mm256_setzero_ps(); }
  static Floats value(Sums s) { return _mm256_cvtepi32_ps(s); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats sum(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats scales(const unsigned char* p, DType type, std::int64_t column) {
    if (type == DType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p + column * 4));
    if (type == DType::f64) {
      const auto* wide = reinterpret_cast<const double*>(p + column * 8);
      return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(wide + 4)),
                             _mm256_cvtpd_ps(_mm256_loadu_pd(wide)));
    }
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + column * 2));
    if (type == DType::f16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static void store(Floats v, float* p) { _mm256_storeu_ps(p, v); }
};

}  // namespace
}  // namespace octavo::detail
