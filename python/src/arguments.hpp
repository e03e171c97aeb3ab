// Arguments that are not arrays, or not only: names, numbers, scales and zero points, streams.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/stream.hpp"

namespace octavo::python {

/// For messages: its repr, if it has one.
[[nodiscard]] std::string describe(nb::handle value);
/// The text of a string; empty for anything else.
[[nodiscard]] std::string_view text_of(nb::handle value);
/// A name to be kept: a string, without NUL, which would end it elsewhere, and without lone
/// surrogates, which no encoding has.
[[nodiscard]] std::string parse_text(nb::handle value, const char* argument);
/// A path as os.fsencode has it: of str, of bytes or of what has __fspath__.
[[nodiscard]] std::string parse_path(nb::handle value, const char* argument);

[[nodiscard]] DType parse_dtype(nb::handle value, const char* argument);
[[nodiscard]] Profile parse_profile(nb::handle value);
[[nodiscard]] RangeMode parse_mode(nb::handle value);
/// An integer, or nothing for None.
[[nodiscard]] std::optional<std::int64_t> parse_integer(nb::handle value, const char* argument);
[[nodiscard]] std::optional<std::int32_t> parse_int32(nb::handle value, const char* argument);
[[nodiscard]] bool parse_bool(nb::handle value, const char* argument);
/// One number, or an array of one. None is 0 for a zero point.
[[nodiscard]] double parse_number(nb::handle value, const char* argument);
[[nodiscard]] std::int32_t parse_zero_point(nb::handle value, const char* argument);

/// `in`, a view of an array of integers, as `q_dtype` and `length` say: of s4 and u4 there are two
/// to a byte, and rows of `length`.
[[nodiscard]] TensorRef read_as(TensorRef in, const Array& array, nb::handle q_dtype,
                                nb::handle length);

/// The class Stream of the module.
struct PyStream {
  Stream stream;
};
/// The default stream for None.
[[nodiscard]] const Stream& parse_stream(nb::handle value);

/// What shares a scale.
struct Granularity {
  Layout layout = Layout::per_tensor;
  int axis = 0;                 // of per_channel, counted from the first
  std::int64_t group_size = 0;  // of per_group
  Shape shape;                  // of the scales
  std::int64_t count = 1;
};
/// From `axis` (None, an integer or "token") and `group_size`, for a tensor of this shape.
[[nodiscard]] Granularity parse_granularity(const Shape& shape, nb::handle axis,
                                            nb::handle group_size);

/// One number, or an array of them.
class Numbers {
 public:
  /// Of floats (scales, bias) or of integers (zero points).
  Numbers(nb::handle value, const char* argument, bool integers);

  [[nodiscard]] bool given() const { return given_; }
  [[nodiscard]] bool single() const { return single_; }
  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] std::int32_t integer() const { return static_cast<std::int32_t>(value_); }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t numel() const { return array_ ? array_->numel() : 1; }
  [[nodiscard]] double at(std::int64_t i) const { return array_ ? array_->as_double(i) : value_; }
  /// Whether zero points are more than one 0, which is as good as none.
  [[nodiscard]] bool matter() const { return !single_ || integer() != 0; }
  /// The array, contiguous; a single number is repeated `count` times. (One of Python's is f64,
  /// one from an array of floats of that array's type.)
  [[nodiscard]] TensorRef ref(std::int64_t count);
  /// Refuses an output that lies over what was given (of which `ref` may be a copy).
  void check_apart(const Array& out) const;

 private:
  const char* argument_;
  bool integers_;
  bool given_ = true;
  bool single_ = false;
  double value_ = 0;
  DType held_as_ = DType::f64;          // of a float that was an array's: its type,
  std::array<std::byte, 8> element_{};  // and the number in it
  Shape shape_;
  std::pair<std::uintptr_t, std::uintptr_t> extent_;  // of an array that was given
  std::optional<Array> array_;
  std::vector<double> doubles_;
  std::vector<std::byte> repeated_;
  std::vector<std::int32_t> int32s_;
};

/// Memory of this thread, kept from call to call.
[[nodiscard]] Workspace thread_workspace(std::size_t bytes);

/// Runs a plan without the GIL.
template <class Plan, class Args>
[[nodiscard]] Status run_plan(const Plan& plan, const Stream& stream, const Args& args) {
  const Workspace workspace = thread_workspace(plan.workspace_size());
  const WithoutGil released;
  return plan.run(stream, workspace, args);
}

}  // namespace octavo::python
