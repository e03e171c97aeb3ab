// Arm dot products: nibbles are s8 as well as u8, and bytes are multiplied as two of them.
#include <arm_neon.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_128-inl.hpp"

namespace octavo::detail {
namespace N_DOTPROD_GROUP {

struct Engine : Vectors128 {
  static constexpr Target target = Target::dotprod;
  static constexpr int rows = 6;
  static Sums add(Sums s, Weights w, Activation a) {
    return vdotq_s32(s, vreinterpretq_s8_u8(w), a);
  }
  static Sums add_bytes(Sums s, Weights w, Activation a) {
    return plus(add(s, low(w), a), vshlq_n_s32(add(zero(), high(w), a), 4));
  }
};

}  // namespace N_DOTPROD_GROUP

const GroupKernel group_dotprod{.rows = N_DOTPROD_GROUP::Engine::rows,
                                .run = run_groups<N_DOTPROD_GROUP::Engine>,
                                .sums = sum_groups<N_DOTPROD_GROUP::Engine>};

}  // namespace octavo::detail
