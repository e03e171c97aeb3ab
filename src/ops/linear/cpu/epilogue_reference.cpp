// The scalar target: numerics/linear.hpp applied element by element.
#include "numerics/linear.hpp"
#include "ops/linear/cpu/epilogue.hpp"

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

template <class C>
C acc_of(const EpilogueCall<C>& call, std::int64_t row, std::int64_t column) {
  if (call.values != nullptr) return call.values[row * group_columns + column];
  if (call.halves == 1) return static_cast<C>(sum_of(call, row, column));
  return static_cast<C>(std::int64_t{sum_of(call, 2 * row, column)} * 256 +
                        sum_of(call, 2 * row + 1, column));
}

template <class C, DType type>
void kernel(const EpilogueCall<C>& call) {
  using T = numerics::Type<type>;
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = 0; column < call.columns; ++column) {
      const std::int64_t at = row * call.output_stride + column;
      if constexpr (type == DType::s32) {
        T::write(call.output, at, sum_of(call, row, column));
      } else {
        C residual = 0;
        if (call.residual != nullptr)
          residual = T::read(call.residual, row * call.residual_stride + column);
        C scale = call.row_scale[row];
        if (call.column_scale != nullptr) scale = scale * call.column_scale[column];
        const C y = numerics::finished(acc_of(call, row, column), scale,
                                       call.bias == nullptr ? nullptr : call.bias + column,
                                       call.residual == nullptr ? nullptr : &residual, call.relu);
        static_cast<typename T::Storage*>(call.output)[at] =
            numerics::stored<typename T::Storage>(y);
      }
    }
}

template <class C>
void terms(const EpilogueCall<C>& call) {
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = 0; column < call.columns; ++column) {
      C& y = static_cast<C*>(call.output)[row * group_columns + column];
      y = std::fma(acc_of(call, row, column), call.column_scale[column], y);
    }
}

template <class C>
EpilogueFunction<C> find(DType output) {
  return numerics::find_type(EpilogueTypes<C>(), output,
                             []<DType type>() -> EpilogueFunction<C> { return kernel<C, type>; });
}

}  // namespace

template <>
EpilogueFunction<float> find_epilogue<Target::scalar, float>(DType output) {
  return find<float>(output);
}
template <>
EpilogueFunction<double> find_epilogue<Target::scalar, double>(DType output) {
  return find<double>(output);
}
template <>
EpilogueFunction<float> find_terms<Target::scalar, float>() {
  return terms<float>;
}
template <>
EpilogueFunction<double> find_terms<Target::scalar, double>() {
  return terms<double>;
}

}  // namespace octavo::detail
