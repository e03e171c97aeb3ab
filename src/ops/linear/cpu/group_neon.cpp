// NEON without dot products: products of 8 bits are exact in 16, and pairs of them are added to 32.
#include <arm_neon.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_128-inl.hpp"

namespace octavo::detail {
namespace N_NEON_GROUP {

struct Engine : Vectors128 {
  static constexpr Target target = Target::neon;
  static constexpr int rows = 6;
  static Sums add(Sums s, Weights w, Activation a) {
    const int8x16_t codes = vreinterpretq_s8_u8(w);
    const int16x8_t low_half = vmull_s8(vget_low_s8(codes), vget_low_s8(a));
    const int16x8_t high_half = vmull_high_s8(codes, a);
    return vaddq_s32(s, vpaddq_s32(vpaddlq_s16(low_half), vpaddlq_s16(high_half)));
  }
  static Sums add_bytes(Sums s, Weights w, Activation a) {
    return plus(add(s, low(w), a), vshlq_n_s32(add(zero(), high(w), a), 4));
  }
};

}  // namespace N_NEON_GROUP

const GroupKernel group_neon{.rows = N_NEON_GROUP::Engine::rows,
                             .run = run_groups<N_NEON_GROUP::Engine>,
                             .sums = sum_groups<N_NEON_GROUP::Engine>};

}  // namespace octavo::detail
