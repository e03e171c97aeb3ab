// What comes from C, read with suspicion: pointers may be null, structs older or newer, enumerators
// any number.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/check.hpp"
#include "octavo/octavo.h"
#include "octavo/result.hpp"
#include "octavo/sku.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

struct octavo_stream {
  octavo::Stream stream;
};

namespace octavo::c {

/// Copies `given`, which says its own size, to `known`, which is all zero. What `given` lacks stays
/// 0; what it has beyond `known` must be.
Status read_struct(const char* argument, const void* given, void* known, std::size_t size);
/// Copies `known` to `to`, which says its own size: as much as there is room for, and 0 beyond.
Status write_struct(const char* argument, const void* known, std::size_t size, void* to);

/// Reads arguments one after another. The first refusal is kept, and what is read after it is of no
/// use; so a caller reads everything and asks once.
class Reader {
 public:
  [[nodiscard]] bool ok() const noexcept { return !error_; }
  [[nodiscard]] const Error& error() const { return *error_; }
  void refuse(const Error& error) {
    if (!error_) error_ = error;
  }
  void require(const Status& status) {
    if (!status) refuse(status.error());
  }

  /// The struct behind `given`; a null one is refused, or is as if all zero.
  template <class T>
  T need(const char* argument, const T* given) {
    T known{};
    if (not_null(argument, given)) require(read_struct(argument, given, &known, sizeof known));
    return known;
  }
  template <class T>
  T maybe(const char* argument, const T* given) {
    return given == nullptr ? T{} : need(argument, given);
  }

  bool not_null(const char* argument, const void* given) {
    if (given == nullptr) refuse(detail::invalid(argument, "expected a pointer, got NULL"));
    return given != nullptr;
  }

  /// One of the enumerators 0 to count - 1.
  template <class E>
  E enumerator(const char* argument, std::int32_t value, int count) {
    if (value >= 0 && value < count) return static_cast<E>(value);
    refuse(
        detail::unsupported(argument, fmt::format("expected 0 to {}, got {}", count - 1, value)));
    return E{};
  }
  DType dtype(const char* argument, std::int32_t value) {
    return enumerator<DType>(argument, value, dtype_count);
  }
  Target target(const char* argument, std::int32_t value) {
    return enumerator<Target>(argument, value, target_count);
  }
  std::optional<DType> dtype(const char* argument, const octavo_optional& value) {
    if (value.is_set == 0) return std::nullopt;
    return dtype(argument, value.value);
  }
  std::optional<Target> target(const char* argument, const octavo_optional& value) {
    if (value.is_set == 0) return std::nullopt;
    return target(argument, value.value);
  }
  Layout layout(const char* argument, std::int32_t value) {
    return enumerator<Layout>(argument, value, 4);
  }
  Profile profile(std::int32_t value) { return enumerator<Profile>("profile", value, 2); }

  Shape sizes(const char* argument, std::int32_t rank, const std::int64_t* sizes);
  /// A tensor that must be given, one that may be, and one that this plan has no use for.
  TensorMut tensor(const char* argument, const octavo_tensor* given);
  TensorMut maybe_tensor(const char* argument, const octavo_tensor* given) {
    return given == nullptr ? TensorMut{} : tensor(argument, given);
  }
  void absent(const char* argument, const void* given, const char* why);

  const Stream* stream(const octavo_stream* given) {
    return not_null("stream", given) ? &given->stream : nullptr;
  }
  PlanPreference preference(const octavo_preference* given);

 private:
  std::optional<Error> error_;
};

inline std::optional<std::int32_t> to_optional(const octavo_optional& value) {
  return value.is_set == 0 ? std::nullopt : std::optional(value.value);
}

}  // namespace octavo::c
