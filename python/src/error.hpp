// Errors on their way to Python, where they become octavo.Error.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
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

inline std::string_view renamed(std::string_view name, Renames renames) {
  for (const auto& [from, to] : renames)
    if (name == from) return to;
  return name;
}

/// Throws the error, with its arguments called by their names in Python. A message is "argument:
/// sentence"; a sentence that names another argument is that of an overlap, and begins with it.
[[noreturn]] inline void refuse(const Error& error, Renames renames) {
  constexpr std::string_view apart = "expected memory apart from ";
  const std::string_view argument = renamed(error.argument(), renames);
  const std::string start = error.argument() + ": ";
  std::string message = error.message();
  if (message.starts_with(start)) {
    std::string_view sentence = std::string_view(error.message()).substr(start.size());
    message = fmt::format("{}: ", argument);
    if (sentence.starts_with(apart)) {
      sentence.remove_prefix(apart.size());
      const std::string_view other = sentence.substr(0, sentence.find(','));
      sentence.remove_prefix(other.size());
      message.append(apart).append(renamed(other, renames));
    }
    message.append(sentence);
  }
  throw Refused(Error(error.code(), std::string(argument), message, error.needed(), error.got()));
}

}  // namespace octavo::python
