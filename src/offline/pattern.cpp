#include "octavo/pattern.hpp"

#include <fmt/core.h>
#include <re2/re2.h>

#include "core/check.hpp"
#include "offline/files.hpp"

namespace octavo {
namespace {

// * and ? as regular expressions, all else as it is.
std::string expression_of(std::string_view wildcards) {
  std::string out = "(?s)";
  while (!wildcards.empty()) {
    const std::size_t end = std::min(wildcards.find_first_of("*?"), wildcards.size());
    out += RE2::QuoteMeta({wildcards.data(), end});
    if (end == wildcards.size()) break;
    out += wildcards[end] == '*' ? ".*" : ".";
    wildcards.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

Result<Pattern> Pattern::parse(const char* argument, std::string_view text) {
  constexpr std::string_view prefix = "re:";
  constexpr std::size_t most = 65'536;
  if (text.size() > most)
    return detail::invalid(
        argument, fmt::format("expected patterns of at most {} bytes, got {}", most, text.size()));
  Pattern pattern;
  pattern.whole_ = !text.starts_with(prefix);
  const auto compiled = std::make_shared<const RE2>(
      pattern.whole_ ? expression_of(text) : std::string(text.substr(prefix.size())), RE2::Quiet);
  if (!compiled->ok())
    return detail::invalid(
        argument, fmt::format("expected {}, got {}: {}",
                              pattern.whole_ ? "a name with * and ?"
                                             : "a regular expression of RE2 after re: (which has "
                                               "no look-ahead and no references back)",
                              offline::in_quotes(text), offline::in_quotes(compiled->error())));
  pattern.expression_ = compiled;
  return pattern;
}

bool Pattern::matches(std::string_view name) const {
  return expression_->Match({name.data(), name.size()}, 0, name.size(),
                            whole_ ? RE2::ANCHOR_BOTH : RE2::ANCHOR_START, nullptr, 0);
}

}  // namespace octavo
