// One linear call behind linear, smoothquant_linear, quantized_matmul, int_matmul and
// float_linear; and what an embedding shares with it: rows, and weights with their scales.
#pragma once

#include "functions.hpp"
#include "octavo/linear.hpp"

namespace octavo::python {

inline std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i < shape.rank() - 1; ++i) rows *= shape[i];
  return rows;
}

// [rows, columns] of an array whose leading dimensions are rows, if one stride leads through them.
template <class Tensor>
std::optional<Tensor> as_matrix(const Array& a) {
  const int rank = a.rank();
  const std::int64_t columns = a.shape[rank - 1];
  const std::int64_t rows = rows_of(a.shape);
  if (columns > 1 && a.strides[rank - 1] != 1) return std::nullopt;
  std::int64_t stride = columns;
  std::int64_t below = -1;  // what a step of the next dimension up must be
  for (int i = rank - 2; i >= 0 && rows > 0; --i) {
    if (a.shape[i] == 1) continue;
    if (below < 0) {
      stride = a.strides[i];
    } else if (a.strides[i] != below) {
      return std::nullopt;
    }
    below = a.strides[i] * a.shape[i];
    if (below < 0) return std::nullopt;  // (rows that run backwards are copied)
  }
  return Tensor(a.data, a.dtype(), Shape{rows, columns}, Shape{stride, 1});
}

// An input, copied if its rows are not what the library reads in place.
class Rows {
 public:
  Rows(nb::handle object, const char* argument, On& on) : array_(object, argument, on) {
    if (array_.rank() == 0) invalid(argument, "expected at least one dimension, got a scalar");
    extent_ = array_.extent();
    std::optional<TensorRef> found = as_matrix<TensorRef>(array_);
    if (!found) {
      array_ = array_.contiguous(&on);
      found = as_matrix<TensorRef>(array_);
    }
    ref = *found;
  }
  [[nodiscard]] const Array& array() const { return array_; }
  /// The library refuses overlaps, but a copy hides them from it.
  void check_apart(const Array& out) const {
    const auto [begin, end] = out.extent();
    if (ref.data != out.data && extent_.first < end && begin < extent_.second)
      invalid("out", fmt::format("expected memory apart from {}, got an overlap", array_.argument));
  }
  TensorRef ref;

 private:
  Array array_;
  std::pair<std::uintptr_t, std::uintptr_t> extent_;  // of what was given
};

/// What is written, [rows, columns]: a given `out`, or a new array.
class OutputRows {
 public:
  /// `shape` has any rank; `asked_by` is the argument that decided the type.
  OutputRows(nb::handle out, Maker maker, const Shape& shape, DType dtype, On& on,
             const char* asked_by)
      : array(out.is_none() ? Array::make(maker, shape, dtype, asked_by, &on)
                            : Array(out, "out", on, true)) {
    if (!(array.shape == shape))
      invalid("out",
              fmt::format("expected shape {}, got {}", to_string(shape), to_string(array.shape)));
    const std::optional<TensorMut> matrix = as_matrix<TensorMut>(array);
    if (!matrix)
      invalid("out",
              "expected rows of consecutive elements with one stride between them, got others");
    mut = *matrix;
  }
  const Array array;
  TensorMut mut;
};

/// A weight [N, K] of any type.
[[nodiscard]] TensorRef weight_of(const Rows& rows, nb::handle q_dtype, nb::handle length);
/// How many of the K weights of a row share a scale; 0: all of them.
[[nodiscard]] std::int64_t parse_weight_group(nb::handle group_size, std::int64_t k);
/// Scales or zero points of weights: one for each output channel, or, where there are groups, for
/// each group of every one; or one for all. `what` has n of them.
void check_weight_numbers(const Numbers& numbers, const char* argument, std::int64_t n,
                          std::int64_t k, std::int64_t group, const char* what = "output channel");

/// What was given. Invalid handles: the call has none.
struct LinearCall {
  detail::LinearProblem problem;
  nb::handle x, weight;
  nb::handle weight_scale = {};
  nb::handle bias = {};
  nb::handle residual = {};
  nb::handle out, stream;
  nb::handle act_scale = {};
  nb::handle act_zero_point = {};
  nb::handle weight_zero_point = {};
  nb::handle group_size = Py_None;
  nb::handle q_dtype = Py_None;
  nb::handle length = Py_None;
  nb::handle out_scale = {};
  nb::handle out_zero_point = {};
  const char* x_name = "x_q";
  const char* weight_name = "weight_q";
  bool output_like_x = false;  // the output has x's type, which has to be a float
};

/// Reads the arguments, runs the plan and returns the output.
[[nodiscard]] nb::object run_linear(LinearCall& call);

}  // namespace octavo::python
