// The dot product as it is defined.
#include "ops/linear/cpu/dot.hpp"

namespace octavo::detail {
namespace {

Target dot(const DotCall& call) {
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const auto* a = static_cast<const std::int8_t*>(call.activations) + r * call.activation_stride;
    for (std::int64_t c = 0; c < call.panels * panel_columns; ++c) {
      const std::int8_t* w =
          call.weights + c / panel_columns * call.panel_bytes + c % panel_columns * step_k;
      std::uint32_t sum = 0;
      for (std::int64_t step = 0; step < call.steps; ++step)
        for (std::int64_t i = 0; i < step_k; ++i)
          sum += static_cast<std::uint32_t>(a[step * step_k + i] *
                                            w[step * step_k * panel_columns + i]);
      call.sums[r * group_columns + c] = static_cast<std::int32_t>(sum);
    }
  }
  return Target::scalar;
}

}  // namespace

const DotKernel dot_scalar{
    .form = Form::s8, .products_per_thread = std::int64_t{1} << 16, .run = dot};

}  // namespace octavo::detail
