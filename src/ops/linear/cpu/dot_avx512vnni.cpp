// AVX-512 VNNI: vpdpbusd multiplies u8 by s8 and adds four products to a 32-bit sum, unsaturated.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_AVX512VNNI {

struct Engine {
  static constexpr Target target = Target::avx512vnni;
  using Activation = __m512i;
  using Weights = __m512i;
  using Sums = __m512i;
  static constexpr std::int64_t columns = 16;
  static constexpr int rows = 6;
  static constexpr int vectors = 4;
  static constexpr int tall_rows = 8;
  static constexpr int tall_vectors = 2;
  static constexpr std::int64_t activation_bytes = 4;

  static Activation activation(const unsigned char* p) {
    int four = 0;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }
  static Weights weights(const std::int8_t* p) { return _mm512_loadu_si512(p); }
  static Sums zero() { return _mm512_setzero_si512(); }
  static void store(Sums s, std::int32_t* p) { _mm512_storeu_si512(p, s); }
};

// (As an intrinsic, GCC 12 copies each sum twice a step, which is more than these CPUs begin in a
// cycle.)
struct BusyEngine : Engine {
  static constexpr bool asks_ahead = true;
  static Sums add(Sums s, Activation a, Weights w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(w));
    return s;
  }
};

// Copies cost nothing here, and asking ahead takes a twentieth of the time of 16 rows.
struct IdleEngine : Engine {
  static constexpr bool asks_ahead = false;
  static Sums add(Sums s, Activation a, Weights w) { return _mm512_dpbusd_epi32(s, a, w); }
};

}  // namespace N_AVX512VNNI

const DotKernel dot_avx512vnni{.form = Form::u8, .run = dot<N_AVX512VNNI::BusyEngine>};
const DotKernel dot_avx512vnni_idle{.form = Form::u8, .run = dot<N_AVX512VNNI::IdleEngine>};

}  // namespace octavo::detail
