// The scalar target: numerics/linear.hpp applied element by element.
#include "numerics/linear.hpp"
#include "ops/linear/epilogue.hpp"

namespace octavo::detail {
namespace {

template <class C>
std::int32_t sum_of(const EpilogueCall<C>& call, std::int64_t row, std::int64_t column) {
  const auto at = [](const std::int32_t* values, std::int64_t i) {
    return values == nullptr ? 0U : static_cast<std::uint32_t>(values[i]);
  };
  auto sum = static_cast<std::uint32_t>(call.sums[row * group_columns + column]);
  sum -= at(call.column_term, column);
  sum -= at(call.row_zero, row) * at(call.column_sum, column);
  sum -= at(call.row_term, row) * at(call.weight_zero, column);
  return static_cast<std::int32_t>(sum);
}

template <class T, class C>
C widened(T x) {
  if constexpr (sizeof(T) == 2) {
    return numerics::widen(x);
  } else {
    return x;
  }
}

template <class C, class T>
void kernel(const EpilogueCall<C>& call) {
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = 0; column < call.columns; ++column) {
      C y = numerics::scaled_sum(sum_of(call, row, column), call.row_scale[row],
                                 call.column_scale[column],
                                 call.bias == nullptr ? nullptr : call.bias + column);
      if (call.residual != nullptr)
        y += widened<T, C>(
            static_cast<const T*>(call.residual)[row * call.residual_stride + column]);
      if (call.relu) y = numerics::relu(y);
      static_cast<T*>(call.output)[row * call.output_stride + column] = numerics::stored<T>(y);
    }
}

template <class C>
void sums_kernel(const EpilogueCall<C>& call) {
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = 0; column < call.columns; ++column)
      static_cast<std::int32_t*>(call.output)[row * call.output_stride + column] =
          sum_of(call, row, column);
}

}  // namespace

template <>
EpilogueFunction<float> find_epilogue<Target::scalar, float>(DType output) {
  switch (output) {
    case DType::f32:
      return kernel<float, float>;
    case DType::f16:
      return kernel<float, f16>;
    case DType::bf16:
      return kernel<float, bf16>;
    case DType::s32:
      return sums_kernel<float>;
    default:
      return nullptr;
  }
}
template <>
EpilogueFunction<double> find_epilogue<Target::scalar, double>(DType output) {
  return output == DType::f64 ? kernel<double, double> : nullptr;
}

}  // namespace octavo::detail
