// NEON without dot products: products of 8 bits are exact in 16, and pairs of them are added to 32.
#include <arm_neon.h>

#include <cstring>

#include "ops/linear/cpu/dot-inl.hpp"

namespace octavo::detail {
namespace N_NEON_DOT {

struct Engine {
  static constexpr Target target = Target::neon;
  using Activation = int8x16_t;
  using Weights = int8x16_t;
  using Sums = int32x4x2_t;  // two for each column
  static constexpr std::int64_t columns = 4;
  static constexpr int rows = 4;
  static constexpr int vectors = 2;
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
  static Sums zero() { return {{vdupq_n_s32(0), vdupq_n_s32(0)}}; }
  static Sums add(Sums s, Activation a, Weights w) {
    return {{vpadalq_s16(s.val[0], vmull_s8(vget_low_s8(a), vget_low_s8(w))),
             vpadalq_s16(s.val[1], vmull_high_s8(a, w))}};
  }
  static void store(Sums s, std::int32_t* p) { vst1q_s32(p, vpaddq_s32(s.val[0], s.val[1])); }
};

}  // namespace N_NEON_DOT

const DotKernel dot_neon{.form = Form::s8, .run = dot<N_NEON_DOT::Engine>};

}  // namespace octavo::detail
