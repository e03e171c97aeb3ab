// Errors on their way to Python, where they become octavo.Error.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <utility>

#include "octavo/result.hpp"

namespace octavo::python {

/// What the library refused, thrown up to the call from Python.
class Refused : public std::exception {
 public:
  explicit Refused(Error error) : error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.message().c_str(); }

 private:
  Error error_;
};

[[noreturn]] inline void refuse(ErrorCode code, const char* argument, const std::string& why) {
  throw Refused(Error(code, argument, fmt::format("{}: {}", argument, why)));
}
/// A size, shape or value that makes no sense.
[[noreturn]] inline void invalid(const char* argument, const std::string& why) {
  refuse(ErrorCode::invalid_problem, argument, why);
}
/// A type that is not offered.
[[noreturn]] inline void unsupported(const char* argument, const std::string& why) {
  refuse(ErrorCode::unsupported, argument, why);
}

/// Names of the library's arguments, and what they are called in Python.
using Renames = std::initializer_list<std::pair<const char*, const char*>>;

/// Throws the error, with its argument called by its name in Python.
[[noreturn]] inline void refuse(const Error& error, Renames renames) {
  for (const auto& [from, to] : renames)
    if (error.argument() == from) {
      std::string message = error.message();
      const std::string prefix = std::string(from) + ":";
      if (message.compare(0, prefix.size(), prefix) == 0)
        message = std::string(to) + message.substr(prefix.size() - 1);
      for (const auto& [other, called] : renames) {
        // (With the comma that follows, for "weight" is also how "weight_scales" begins.)
        const std::string apart = fmt::format("apart from {},", other);
        if (const std::size_t at = message.find(apart); at != std::string::npos) {
          message.replace(at, apart.size(), fmt::format("apart from {},", called));
          break;
        }
      }
      throw Refused(Error(error.code(), to, message, error.needed(), error.got()));
    }
  throw Refused(error);
}

}  // namespace octavo::python
