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
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/stream.hpp"
#include "on.hpp"

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

/// One number, or an array of them; which, on a device, nobody reads here.
class Numbers {
 public:
  /// Of floats (scales, bias) or of integers (zero points), for a call. One number of the host's
  /// serves everywhere.
  Numbers(nb::handle value, const char* argument, bool integers, On& on);

  [[nodiscard]] bool given() const { return given_; }
  /// Whether it is one number, and then whether its value is known.
  [[nodiscard]] bool one() const { return one_; }
  [[nodiscard]] bool single() const { return single_; }
  [[nodiscard]] bool on_device() const { return array_ && array_->device >= 0; }
  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] std::int32_t integer() const { return static_cast<std::int32_t>(value_); }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t numel() const { return array_ ? array_->numel() : 1; }
  [[nodiscard]] double at(std::int64_t i) const { return array_ ? array_->as_double(i) : value_; }
  /// Whether zero points are more than one 0, which is as good as none.
  [[nodiscard]] bool matter() const { return !single_ || integer() != 0; }
  /// The array, contiguous; a single number is repeated `count` times. (One of Python's is f64,
  /// one from an array of floats of that array's type.) It lies where the call runs.
  [[nodiscard]] TensorRef ref(std::int64_t count, On& on) {
    return on_device() ? device_ref(count) : on.there(host_ref(count));
  }
  /// Refuses an output that lies over what was given (of which `ref` may be a copy).
  void check_apart(const Array& out) const;

 private:
  void read(nb::handle value, On& on);
  void take(Array array, On& on);
  void read_one(const Array& array);
  void convert_on_device(Array& array, On& on) const;
  [[nodiscard]] TensorRef host_ref(std::int64_t count);
  [[nodiscard]] TensorRef device_ref(std::int64_t count) const;

  const char* argument_;
  bool integers_;
  bool given_ = true;
  bool one_ = false;
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

}  // namespace octavo::python
