// Arm 8-bit matrix products: usmmla multiplies two columns of eight codes, which are unsigned, by
// two rows of eight activations. Where there is one row, or groups are not of eight k, it is Arm's
// dot products that do it.
#include <arm_neon.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_128-inl.hpp"

namespace octavo::detail {
namespace N_I8MM_GROUP {

constexpr std::int64_t eight = 2 * step_k;

struct Steps : Vectors128 {
  static constexpr Target target = Target::i8mm;
  static constexpr int rows = 8;
  static Sums add(Sums s, Weights w, Activation a) { return vusdotq_s32(s, w, a); }
  static Sums add_bytes(Sums s, Weights w, Activation a) { return add(s, w, a); }
};

struct Pairs : Steps {
  // Two steps of four columns are two vectors of two columns by eight k.
  struct Codes {
    uint8x16_t of[2];
  };
  static Codes zip(uint8x16_t first, uint8x16_t second) {
    const uint32x4_t a = vreinterpretq_u32_u8(first);
    const uint32x4_t b = vreinterpretq_u32_u8(second);
    return {vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))};
  }

  // s[r][0] of four columns, s[r][1] of those 16 further.
  template <int chains, bool nibbles>
  static void add_rows(const std::int8_t* a, const unsigned char* codes, std::int64_t steps,
                       Sums (&s)[chains][2]) {
    constexpr int pairs = (chains + 1) / 2;
    constexpr std::int64_t code_bytes = nibbles ? 64 : 128;
    Sums sums[pairs][2][2];
#pragma GCC unroll 4
    for (int r = 0; r < pairs; ++r)
      sums[r][0][0] = sums[r][0][1] = sums[r][1][0] = sums[r][1][1] = zero();
    for (std::int64_t i = 0; i < steps; i += 2, a += eight * chains, codes += 2 * code_bytes) {
      Codes w[2];
      if constexpr (nibbles) {
        const Codes both = zip(load(codes), load(codes + code_bytes));
        w[0] = {low(both.of[0]), low(both.of[1])};
        w[1] = {high(both.of[0]), high(both.of[1])};
      } else {
        w[0] = zip(load(codes), load(codes + code_bytes));
        w[1] = zip(load(codes + 64), load(codes + 64 + code_bytes));
      }
#pragma GCC unroll 4
      for (int r = 0; r < pairs; ++r) {
        int8x16_t x;
        if constexpr (chains % 2 != 0) {
          // (Of an odd number the last row is alone: its pair is not there to be read.)
          x = r + 1 < pairs ? vld1q_s8(a + 2 * eight * r)
                            : vcombine_s8(vld1_s8(a + 2 * eight * r), vdup_n_s8(0));
        } else {
          x = vld1q_s8(a + 2 * eight * r);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          sums[r][half][0] = vusmmlaq_s32(sums[r][half][0], w[half].of[0], x);
          sums[r][half][1] = vusmmlaq_s32(sums[r][half][1], w[half].of[1], x);
        }
      }
    }
    // A product has both rows of one column, and then of the next.
#pragma GCC unroll 8
    for (int r = 0; r < chains; ++r)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const Sums(&found)[2] = sums[r / 2][half];
        s[r][half] = plus(s[r][half], r % 2 == 0 ? vuzp1q_s32(found[0], found[1])
                                                 : vuzp2q_s32(found[0], found[1]));
      }
  }
};

namespace {

Target run(const GroupCall& call, bool nibbles) {
  return call.run == eight && call.rows * call.parts > 1 ? run_groups<Pairs>(call, nibbles)
                                                         : run_groups<Steps>(call, nibbles);
}

Target sums(const GroupSumsCall& call, bool nibbles) {
  return call.run == eight && call.rows * call.parts > 1 ? sum_groups<Pairs>(call, nibbles)
                                                         : sum_groups<Steps>(call, nibbles);
}

}  // namespace
}  // namespace N_I8MM_GROUP

const GroupKernel group_i8mm{.rows = N_I8MM_GROUP::Steps::rows,
                             .most_together = N_I8MM_GROUP::eight,
                             .run = N_I8MM_GROUP::run,
                             .sums = N_I8MM_GROUP::sums};

}  // namespace octavo::detail
