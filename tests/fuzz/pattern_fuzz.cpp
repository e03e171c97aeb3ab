// Patterns of --ignore: the first line is one, all others are names.
#include "octavo/pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "files.hpp"

namespace octavo::fuzz {
namespace {

// The characters of a text in UTF-8; none if it is not that.
std::optional<std::u32string> characters(std::string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0 || i + length > text.size()) return {};
    char32_t c = length == 1 ? first : first & (0x7FU >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0U) != 0x80U) return {};
      c = c << 6U | (next & 0x3FU);
    }
    constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return {};
    out += c;
    i += length;
  }
  return out;
}

// * and ? by their meaning: which beginnings of the name each beginning of the pattern matches.
bool matches(const std::u32string& pattern, const std::u32string& name) {
  std::vector<char> now(name.size() + 1, 0);
  now[0] = 1;
  for (const char32_t c : pattern) {
    std::vector<char> next(name.size() + 1, 0);
    for (std::size_t i = 0; i <= name.size(); ++i) {
      if (now[i] == 0) continue;
      if (c == U'*')
        std::fill(next.begin() + static_cast<std::ptrdiff_t>(i), next.end(), 1);
      else if (i < name.size() && (c == U'?' || c == name[i]))
        next[i + 1] = 1;
    }
    now = std::move(next);
  }
  return now.back() != 0;
}

// Whether a regular expression means itself.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void run(std::string_view input) {
  constexpr std::string_view expression = "re:";
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view text = input.substr(0, end);
  input.remove_prefix(std::min(input.size(), end + 1));
  const auto wanted = characters(text);
  const auto pattern = Pattern::parse("ignore", text);
  if (!accepted(pattern)) {
    // (Of very long ones RE2 says that they are too large.)
    require(!wanted || text.size() > 4096 || text.starts_with(expression),
            "that every name with * and ? is taken");
    return;
  }
  for (;;) {
    const std::string_view name = input.substr(0, input.find('\n'));
    const bool matched = pattern->matches(name);
    const auto is = characters(name);
    if (text.starts_with(expression)) {
      const std::string_view rest = text.substr(expression.size());
      if (is_plain(rest)) require(matched == name.starts_with(rest), "a match of a beginning");
    } else if (is && wanted && is->size() * wanted->size() < 1'000'000) {
      require(matched == matches(*wanted, *is), "the match that * and ? mean");
    }
    if (name.size() == input.size()) return;
    input.remove_prefix(name.size() + 1);
  }
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
