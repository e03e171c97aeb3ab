// Vectors of 512 bits, for the kernels on weights in groups (group-inl.hpp).
#pragma once

namespace octavo::detail {
namespace {

struct Vectors512 {
  using Activation = __m512i;
  using Weights = __m512i;
  using Sums = __m512i;
  using Floats = __m512;
  static constexpr std::int64_t columns = 16;
  static constexpr int together(int /*chains*/) { return 1; }
  static constexpr bool one_by_one = false;
  static constexpr int steps_at_once = 1;
  static constexpr std::int64_t ahead(int /*chains*/) { return 2048; }
  // (The intrinsics without a mask make GCC 12 warn of its own undefined vectors.)
  static constexpr __mmask16 all = 0xFFFF;

  static Activation activation(const std::int8_t* p) {
    int four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }
  // In a register, or the compiler reads memory anew for each use, and reads are what there is too
  // little of.
  static Weights load(const unsigned char* p) {
    __m512i w = _mm512_loadu_si512(p);
    __asm__("" : "+v"(w));
    return w;
  }
  static Weights low(Weights w) { return w & _mm512_set1_epi8(0x0F); }
  static Weights high(Weights w) { return low(_mm512_srli_epi16(w, 4)); }
  static Weights upper(Weights w) { return w & _mm512_set1_epi8(static_cast<char>(0xF0)); }

  static Sums zero() { return _mm512_setzero_si512(); }
  static Sums repeated(std::int32_t v) { return _mm512_set1_epi32(v); }
  static Sums integers(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static Sums bytes(const unsigned char* p) {
    return _mm512_maskz_cvtepu8_epi32(all, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Sums plus(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  static Sums minus(Sums a, Sums b) { return _mm512_sub_epi32(a, b); }
  static Sums times(Sums a, Sums b) { return _mm512_mullo_epi32(a, b); }
  static Sums times256(Sums a) { return _mm512_maskz_slli_epi32(all, a, 8); }
  static Sums sixteenth(Sums a) { return _mm512_maskz_srai_epi32(all, a, 4); }
  static void store(Sums s, std::int32_t* p) { _mm512_storeu_si512(p, s); }

  static Floats no_value() { return _mm512_setzero_ps(); }
  static Floats value(Sums s) { return _mm512_maskz_cvtepi32_ps(all, s); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats sum(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats scales(const unsigned char* p, DType type, std::int64_t column) {
    if (type == DType::f32) return _mm512_loadu_ps(p + column * 4);
    if (type == DType::f64) {
      const __m256 first = _mm512_maskz_cvtpd_ps(0xFF, _mm512_loadu_pd(p + column * 8));
      const __m256 second = _mm512_maskz_cvtpd_ps(0xFF, _mm512_loadu_pd(p + column * 8 + 64));
      return _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
    }
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + column * 2));
    if (type == DType::f16) return _mm512_maskz_cvtph_ps(all, half);
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, half), 16));
  }
  static void store(Floats v, float* p) { _mm512_storeu_ps(p, v); }
};

// (GroupKernel::widen; a template, so that it belongs to an instruction set by its name.)
template <class E>
void widen(const unsigned char* nibbles, std::int64_t steps, unsigned char* bytes) {
  for (; steps > 0; --steps, nibbles += 64, bytes += 128) {
    __builtin_prefetch(nibbles + 2048);
    const auto both = E::load(nibbles);
    _mm512_storeu_si512(bytes, E::low(both));
    _mm512_storeu_si512(bytes + 64, E::high(both));
  }
}

}  // namespace
}  // namespace octavo::detail
