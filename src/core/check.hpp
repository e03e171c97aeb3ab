// Checking tensors, shared by all plans. A check names the argument, what was expected and what
// came; it never touches the tensor's memory.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/stream.hpp"
#include "octavo/result.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::detail {

std::string to_string(const Shape& shape);

inline Error invalid(const char* argument, const std::string& text) {
  return {ErrorCode::invalid_problem, argument, fmt::format("{}: {}", argument, text)};
}
inline Error unsupported(const char* argument, const std::string& text) {
  return {ErrorCode::unsupported, argument, fmt::format("{}: {}", argument, text)};
}

/// A type that is in a family's list (numerics/types.hpp). If that is the list of a case only,
/// `when` says which (" in mode symmetric"), and `advice` what else there is.
template <class List>
Status check_type(const char* argument, DType type, const char* when = "",
                  const char* advice = "") {
  if (List::has(type)) return {};
  return unsupported(
      argument, fmt::format("expected {}{}, got {}{}", List::words(), when, name(type), advice));
}

/// The product of the sizes; an error for a rank above 8, a negative size or a product (in bytes of
/// up to 8 per element) beyond int64.
Result<std::int64_t> count_elements(const char* argument, const Shape& shape);

/// The bytes from the first to one past the last that a tensor touches; empty if it has no element.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool overlaps(const Extent& other) const {
    return begin < other.end && other.begin < end;
  }
};

struct Checked {
  std::int64_t numel = 0;
  Extent extent;
};

/// Type, shape, strides, null, alignment and buffer size of a tensor that is read.
Result<Checked> check_input(const char* argument, const TensorRef& tensor, DType dtype);
/// The same for one that is written: its last stride is 1, and no two elements share memory.
Result<Checked> check_output(const char* argument, const TensorMut& tensor, DType dtype);
/// A contiguous array of `count` elements, of any shape.
Result<Checked> check_array(const char* argument, const TensorRef& tensor, DType dtype,
                            std::int64_t count);
/// The workspace that was lent: its size, its alignment, and that no argument lies in it (null ones
/// are none), for it is written before anything else.
Status check_workspace(const Workspace& workspace, std::size_t needed,
                       std::initializer_list<const TensorRef*> arguments = {});
/// The workspace that a plan needs, against what its caller allows; `what_for` says what it holds.
Status check_max_workspace(const PlanPreference& preference, std::size_t needed,
                           const char* what_for);

/// That a plan runs on a stream of the backend that it was made for.
Error wrong_stream(const Stream& stream, Backend backend);
inline Status check_stream(const Stream& stream, Backend backend) {
  return stream.impl().backend == backend ? Status() : Status(wrong_stream(stream, backend));
}

/// Whether both views have the same strides wherever it matters.
bool same_strides(const TensorRef& a, const TensorRef& b);

}  // namespace octavo::detail
