// From values of the compute type to the output: rounded to its type, or quantized.
#pragma once

#include "numerics/linear.hpp"
#include "octavo/linear.hpp"
#include "ops/elementwise/parameters.hpp"
#include "ops/linear/dot.hpp"

namespace octavo::detail {

template <class C>
class Store {
 public:
  Store(const LinearProblem& p, const LinearOperands& o, Target vector_target)
      : type_(p.output),
        profile_(p.profile),
        output_(*o.output),
        vector_target_(vector_target) {
    if (!is_quantized(type_)) return;
    quantize_.compute = quantize_.scale_type = dtype_of<C>;
    quantize_.range = storage_range(type_);
    quantize_.scalar_scale = o.output_scale;
    quantize_.scalar_zero_point = o.output_zero_point;
    (void)prepare_here(quantize_, nullptr);  // (checked before)
  }
  Store(const Store&) = delete;  // (parameters point into themselves)
  Store& operator=(const Store&) = delete;
  ~Store() = default;

  [[nodiscard]] unsigned char* at(std::int64_t row, std::int64_t column) const {
    return static_cast<unsigned char*>(output_.data) +
           (row * output_.strides[0] + column) * (bits(type_) / 8);
  }

  /// `values` are group_columns apart.
  void operator()(const C* values, std::int64_t row, std::int64_t rows, std::int64_t column,
                  std::int64_t columns) const {
    switch (type_) {
      case DType::f64:
        return round<double>(values, row, rows, column, columns);
      case DType::f16:
        return round<f16>(values, row, rows, column, columns);
      case DType::bf16:
        return round<bf16>(values, row, rows, column, columns);
      case DType::f32:
        return round<float>(values, row, rows, column, columns);
      default:
        return quantize(values, row, rows, column, columns);
    }
  }

 private:
  template <class T>
  void round(const C* values, std::int64_t row, std::int64_t rows, std::int64_t column,
             std::int64_t columns) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      auto* to = reinterpret_cast<T*>(at(row + r, column));
      for (std::int64_t c = 0; c < columns; ++c)
        to[c] = numerics::stored<T>(values[r * group_columns + c]);
    }
  }

  void quantize(const C* values, std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns) const {
    KernelCall call;
    call.input = values;
    call.input_step = group_columns;
    call.output = at(row, column);
    call.output_step = output_.strides[0];
    call.count = rows;
    call.length = columns;
    call.range = quantize_.range;
    call.profile = profile_;
    set_parameters(call, quantize_);
    const Target target = quantize_.beyond_simd ? Target::scalar : vector_target_;
    kernels_of(target).find({Op::quantize, dtype_of<C>, type_, false})(call);
  }

  DType type_;
  Profile profile_;
  const TensorMut& output_;
  Target vector_target_;
  Parameters quantize_;
};

}  // namespace octavo::detail
