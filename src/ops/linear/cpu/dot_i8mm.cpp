// Arm 8-bit matrix products: smmla multiplies two rows of eight k by two columns of eight k.
#include <arm_neon.h>

#include "ops/linear/cpu/dot.hpp"

namespace octavo::detail {
namespace N_I8MM {
namespace {

constexpr std::int64_t step_bytes = panel_columns * step_k;
constexpr int pairs = panel_columns / 2;  // of columns, in a panel

// `rows` (1 to 4) by one panel, two steps at a time. The second row of an odd number is the first
// once more, and is not stored.
template <int rows>
void tile(const DotCall& call, std::int64_t row, int panel) {
  constexpr int row_pairs = (rows + 1) / 2;
  int32x4_t sums[row_pairs][pairs];
#pragma GCC unroll 8
  for (int r = 0; r < row_pairs; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < pairs; ++c) sums[r][c] = vdupq_n_s32(0);
  const std::int8_t* weights = call.weights + panel * call.panel_bytes;
  const std::int8_t* a[2 * row_pairs];
#pragma GCC unroll 4
  for (int r = 0; r < 2 * row_pairs; ++r)
    a[r] = static_cast<const std::int8_t*>(call.activations) +
           (row + (r < rows ? r : r - 1)) * call.activation_stride;

  for (std::int64_t step = 0; step < call.steps; step += 2) {
    int8x16_t activations[row_pairs];
#pragma GCC unroll 2
    for (int r = 0; r < row_pairs; ++r)
      activations[r] =
          vcombine_s8(vld1_s8(a[2 * r] + step * step_k), vld1_s8(a[2 * r + 1] + step * step_k));
#pragma GCC unroll 4
    for (int c = 0; c < pairs; c += 2) {
      // Four columns of each step; zipped, two columns of both.
      const std::int8_t* at = weights + step * step_bytes + c * 2 * step_k;
      const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(at));
      const int32x4_t second = vreinterpretq_s32_s8(vld1q_s8(at + step_bytes));
      const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(first, second));
      const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(first, second));
#pragma GCC unroll 2
      for (int r = 0; r < row_pairs; ++r) {
        sums[r][c] = vmmlaq_s32(sums[r][c], activations[r], low);
        sums[r][c + 1] = vmmlaq_s32(sums[r][c + 1], activations[r], high);
      }
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < row_pairs; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < pairs; ++c) {
      std::int32_t* to = call.sums + (row + 2 * r) * group_columns + panel * panel_columns + 2 * c;
      vst1_s32(to, vget_low_s32(sums[r][c]));
      if (2 * r + 1 < rows) vst1_s32(to + group_columns, vget_high_s32(sums[r][c]));
    }
}

Target dot(const DotCall& call) {
  constexpr std::int64_t most = 4;
  for (int panel = 0; panel < call.panels; ++panel)
    for (std::int64_t row = 0; row < call.rows; row += most) switch (call.rows - row) {
        case 1:
          tile<1>(call, row, panel);
          break;
        case 2:
          tile<2>(call, row, panel);
          break;
        case 3:
          tile<3>(call, row, panel);
          break;
        default:
          tile<4>(call, row, panel);
      }
  return Target::i8mm;
}

}  // namespace
}  // namespace N_I8MM

const DotKernel dot_i8mm{.form = Form::s8, .k_grain = 2 * step_k, .run = N_I8MM::dot};

}  // namespace octavo::detail
