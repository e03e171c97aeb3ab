// What the command says, where it may fail.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "offline/printable.hpp"

namespace octavo::cli {

using offline::printable;

/// To stderr, at once. Where that is closed or full nothing is said, and nothing else happens.
void to_stderr(std::string_view text) noexcept;

/// The same as one line, "octavo: ...", without what a terminal would obey.
template <class... T>
void complain(fmt::format_string<T...> format, T&&... values) noexcept {
  try {
    to_stderr("octavo: " + printable(fmt::format(format, std::forward<T>(values)...)) + "\n");
  } catch (...) {
    to_stderr("octavo: memory ran out\n");
  }
}

/// To stdout, for programs: valid whatever is in it; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);

}  // namespace octavo::cli
