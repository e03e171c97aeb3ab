#include "cli/names.hpp"

#include <algorithm>
#include <string>

namespace octavo::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
}

// Takes the digits from the front of the text, without leading zeros.
std::string_view take_number(std::string_view& text) {
  const auto* end = std::find_if_not(text.begin(), text.end(), is_digit);
  std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_number(a), y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      // (As bytes: on some CPUs a char has a sign.)
      if (a.front() != b.front()) return std::char_traits<char>::lt(a.front(), b.front());
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // 01 and 1: some order, always the same
}

std::pair<std::string, std::string> split_block(std::string_view layer) {
  std::size_t cut = 0;
  for (std::size_t begin = 0; begin < layer.size();) {
    const std::size_t dot = layer.find('.', begin);
    if (dot == std::string_view::npos) break;
    const std::string_view part = layer.substr(begin, dot - begin);
    if (is_number(part)) cut = dot;
    begin = dot + 1;
  }
  if (cut == 0) return {"", std::string(layer)};
  return {std::string(layer.substr(0, cut)), std::string(layer.substr(cut + 1))};
}

std::string block_number(std::string_view block) {
  std::string out;
  for (std::size_t begin = 0; begin <= block.size();) {
    const std::size_t dot = std::min(block.find('.', begin), block.size());
    const std::string_view part = block.substr(begin, dot - begin);
    if (is_number(part)) out.append(out.empty() ? "" : ".").append(part);
    begin = dot + 1;
  }
  return out;
}

}  // namespace octavo::cli
