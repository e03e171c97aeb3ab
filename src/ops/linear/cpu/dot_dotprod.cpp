// Arm dot products: sdot adds four products of s8 by s8 to a 32-bit sum.
#include <arm_neon.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_DOTPROD {

struct Engine {
  static constexpr Target target = Target::dotprod;
  using Activation = int8x16_t;
  using Weights = int8x16_t;
  using Sums = int32x4_t;
  static constexpr std::int64_t columns = 4;
  static constexpr int rows = 6;
  static constexpr int vectors = 4;
  static constexpr int tall_rows = 0;
  static constexpr int tall_vectors = 0;
  static constexpr bool asks_ahead = true;
  static constexpr std::int64_t activation_bytes = 4;

  static Activation activation(const unsigned char* p) {
    std::int32_t four = 0;
    std::memcpy(&four, p, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
  static Weights weights(const std::int8_t* p) { return vld1q_s8(p); }
  static Sums zero() { return vdupq_n_s32(0); }
  static Sums add(Sums s, Activation a, Weights w) { return vdotq_s32(s, a, w); }
  static void store(Sums s, std::int32_t* p) { vst1q_s32(p, s); }
};

}  // namespace N_DOTPROD

const DotKernel dot_dotprod{.form = Form::s8, .run = dot<N_DOTPROD::Engine>};

}  // namespace octavo::detail
