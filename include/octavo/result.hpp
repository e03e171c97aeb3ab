// Errors are values: a Result<T> holds a T, or an Error that says what was wrong.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "octavo/export.h"

namespace octavo {

/// Why something was refused. Values are pinned: they cross the C ABI.
enum class ErrorCode : int {
  unsupported = 1,          ///< a type, target or combination that is not offered
  invalid_problem = 2,      ///< a size, shape, stride, range, scale or overlap that makes no sense
  misaligned_operand = 3,   ///< a pointer that is not aligned to its element
  workspace_too_small = 4,  ///< `needed` and `got` are bytes
  buffer_too_small = 5,     ///< `needed` and `got` are bytes
  backend = 6,              ///< the machine or its driver failed
};

[[nodiscard]] OCTAVO_API std::string_view name(ErrorCode code) noexcept;

/// What was refused, and why. `message` is one sentence for a person: the argument, what was
/// expected, what came, and what to do about it.
class Error {
 public:
  Error(ErrorCode code, std::string argument, std::string message)
      : code_(code),
        argument_(std::move(argument)),
        message_(std::move(message)) {}
  Error(ErrorCode code, std::string argument, std::string message, std::int64_t needed,
        std::int64_t got)
      : Error(code, std::move(argument), std::move(message)) {
    needed_ = needed;
    got_ = got;
  }

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// The name of the offending field of the descriptor or of the arguments.
  [[nodiscard]] const std::string& argument() const noexcept { return argument_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  /// Bytes, for the two `_too_small` codes; 0 otherwise.
  [[nodiscard]] std::int64_t needed() const noexcept { return needed_; }
  [[nodiscard]] std::int64_t got() const noexcept { return got_; }

 private:
  ErrorCode code_;
  std::string argument_;
  std::string message_;
  std::int64_t needed_ = 0;
  std::int64_t got_ = 0;
};

/// Holds a value or an Error, with the member names of std::expected.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// The value; asking a Result that holds an error is a bug in the caller.
  [[nodiscard]] T& value() & { return *checked(); }
  [[nodiscard]] const T& value() const& { return *checked(); }
  [[nodiscard]] T&& value() && { return std::move(*checked()); }
  [[nodiscard]] T& operator*() & { return *checked(); }
  [[nodiscard]] const T& operator*() const& { return *checked(); }
  [[nodiscard]] T&& operator*() && { return std::move(*checked()); }
  [[nodiscard]] T* operator->() { return checked(); }
  [[nodiscard]] const T* operator->() const { return checked(); }
  template <class U>
  [[nodiscard]] T value_or(U&& other) const& {
    return has_value() ? **this : static_cast<T>(std::forward<U>(other));
  }

  [[nodiscard]] const Error& error() const {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  T* checked() {
    assert(has_value());
    return std::get_if<0>(&state_);
  }
  const T* checked() const {
    assert(has_value());
    return std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;

  // (Not defaulted: `return {}` would fill all of it with zeros first, in every check of every
  // run.)
  Result() noexcept {}  // NOLINT(modernize-use-equals-default)
  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool has_value() const noexcept { return !error_; }
  explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] const Error& error() const {
    assert(error_);
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace octavo
