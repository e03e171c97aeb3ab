// Patterns that name modules, as QuantizeOptions::ignore has them.
#pragma once

#include <memory>
#include <string_view>

#include "octavo/result.hpp"

namespace re2 {
class RE2;
}

namespace octavo {

/// A name with * for any characters and ? for one; or re: and a regular expression, in the syntax
/// of RE2, that the beginning of a name matches (as in compressed-tensors). A match takes time in
/// proportion to the name, whatever the pattern.
class Pattern {
 public:
  /// A refusal names `argument`.
  static Result<Pattern> parse(const char* argument, std::string_view text);
  /// Whether it means a module of this name.
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  std::shared_ptr<const re2::RE2> expression_;
  bool whole_ = true;  // must the whole name match?
};

}  // namespace octavo
