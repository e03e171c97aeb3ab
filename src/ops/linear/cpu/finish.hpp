// From the sums of a block to the output: through an epilogue kernel, and where that does not write
// the output's type, rounded or quantized in a second step.
#pragma once

#include "core/fp_environment.hpp"
#include "numerics/linear.hpp"
#include "ops/linear/cpu/rows.hpp"
#include "ops/runs/cpu/parameters.hpp"

namespace octavo::detail {

/// What an epilogue needs to know of the columns of a group; past the last one it reads zeros.
template <class C>
struct ColumnScales {
  C scale[group_columns];
  C bias[group_columns];
};

template <class C>  // what is computed in
class Finish {
 public:
  Finish(const LinearProblem& p, const LinearOperands& o, const LinearKernels& kernels)
      : p_(p),
        o_(o),
        kernels_(kernels),
        epilogue_(kernels.epilogue<C>()),
        raw_(p.output == DType::s32),
        has_bias_(contains(p.epilogue, Epilogue::bias)),
        has_residual_(contains(p.epilogue, Epilogue::residual)),
        has_relu_(contains(p.epilogue, Epilogue::relu)),
        has_column_scales_(p.group == 0 && !is_float_linear(p)) {
    if (!is_quantized(p.output)) return;
    const FpEnvironment environment;  // (the scale is rounded to C)
    quantize_.compute = quantize_.scale_type = dtype_of<C>;
    quantize_.range = storage_range(p.output);
    quantize_.scalar_scale = o.output_scale;
    quantize_.scalar_zero_point = o.output_zero_point;
    (void)prepare(quantize_, nullptr);  // (checked before)
  }
  Finish(const Finish&) = delete;  // (parameters point into themselves)
  Finish& operator=(const Finish&) = delete;
  ~Finish() = default;

  /// Whether the output is the sums.
  [[nodiscard]] bool is_raw() const { return raw_; }

  void gather(std::int64_t column, std::int64_t columns, ColumnScales<C>& to) const {
    if (raw_) return;
    if (columns < group_columns) to = {};
    if (has_column_scales_) {
      const TensorRef& scales = *o_.weight_scales;
      load_floats(scales.data, scales.dtype, is_single(scales), column, columns, to.scale);
    }
    if (has_bias_) load_floats(o_.bias->data, o_.bias->dtype, false, column, columns, to.bias);
  }

  /// `call` has its rows, columns and sums, what zero points take off them, and the rows' scales.
  void operator()(EpilogueCall<C>& call, const ColumnScales<C>& columns, std::int64_t row,
                  std::int64_t column) const {
    if (has_column_scales_) call.column_scale = columns.scale;
    call.bias = has_bias_ ? columns.bias : nullptr;
    call.relu = has_relu_;
    if (!kernels_.direct) return through_values(call, row, column);
    call.output = output_at(row, column);
    call.output_stride = o_.output->strides[0];
    if (has_residual_) point_to_residual(call, row, column);
    epilogue_(call);
  }

  /// The same for up to wide_rows of exact sums in 64 bits, group_columns apart, element by
  /// element.
  void wide(const std::int64_t* sums, const C* row_scale, const ColumnScales<C>& scales,
            std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
    alignas(64) C values[wide_rows * group_columns];
    alignas(64) C residual[wide_rows * group_columns] = {};
    if (has_residual_) load_residual(row, rows, column, columns, residual);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t at = r * group_columns + c;
        values[at] = numerics::finished_sum(sums[at], row_scale[r], scales.scale[c],
                                            has_bias_ ? scales.bias + c : nullptr,
                                            has_residual_ ? residual + at : nullptr, has_relu_);
      }
    store(values, row, rows, column, columns);
  }

 private:
  [[nodiscard]] unsigned char* output_at(std::int64_t row, std::int64_t column) const {
    return static_cast<unsigned char*>(o_.output->data) +
           (row * o_.output->strides[0] + column) * (bits(p_.output) / 8);
  }

  // Through C: what is left is to round it to the output type, or to quantize it. (Not inlined: its
  // stack is not for those who do not need it.)
  __attribute__((noinline)) void through_values(EpilogueCall<C>& call, std::int64_t row,
                                                std::int64_t column) const {
    alignas(64) C values[block_rows * group_columns];
    if (has_residual_ && o_.residual->dtype == dtype_of<C>) {
      point_to_residual(call, row, column);
    } else if (has_residual_) {
      load_residual(row, call.rows, column, call.columns, values);
      call.residual = values;
      call.residual_stride = group_columns;
    }
    call.output = values;
    call.output_stride = group_columns;
    epilogue_(call);
    store(values, row, call.rows, column, call.columns);
  }

  void point_to_residual(EpilogueCall<C>& call, std::int64_t row, std::int64_t column) const {
    const TensorRef& residual = *o_.residual;
    call.residual_stride = residual.strides[0];
    call.residual = static_cast<const unsigned char*>(residual.data) +
                    (row * call.residual_stride + column) * (bits(residual.dtype) / 8);
  }

  void load_residual(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                     C* to) const {
    for (std::int64_t r = 0; r < rows; ++r)
      load_floats(o_.residual->data, o_.residual->dtype, false,
                  (row + r) * o_.residual->strides[0] + column, columns, to + r * group_columns);
  }

  /// `values` are group_columns apart.
  void store(const C* values, std::int64_t row, std::int64_t rows, std::int64_t column,
             std::int64_t columns) const {
    numerics::with_type(LinearOutputs(), p_.output, [&]<DType type>() {
      if constexpr (is_float(type)) {
        using T = typename numerics::Type<type>::Storage;
        for (std::int64_t r = 0; r < rows; ++r) {
          auto* to = reinterpret_cast<T*>(output_at(row + r, column));
          for (std::int64_t c = 0; c < columns; ++c)
            to[c] = numerics::stored<T>(values[r * group_columns + c]);
        }
      } else {
        quantize(values, row, rows, column, columns);
      }
    });
  }

  void quantize(const C* values, std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns) const {
    KernelCall call;
    call.input = values;
    call.input_step = group_columns;
    call.output = output_at(row, column);
    call.output_step = o_.output->strides[0];
    call.count = rows;
    call.length = columns;
    call.range = quantize_.range;
    call.profile = p_.profile;
    set_parameters(call, quantize_);
    (quantize_.beyond_simd ? kernels_.quantize_reference : kernels_.quantize)(call);
  }

  const LinearProblem& p_;
  const LinearOperands& o_;
  const LinearKernels& kernels_;
  EpilogueFunction<C> epilogue_;
  bool raw_;
  bool has_bias_;
  bool has_residual_;
  bool has_relu_;
  bool has_column_scales_;
  Parameters quantize_;
};

}  // namespace octavo::detail
