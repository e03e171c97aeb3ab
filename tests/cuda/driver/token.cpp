#include "tests/cuda/driver/token.hpp"

namespace standin {
namespace {

bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool Token::is_word() const { return !text.empty() && begins_word(text[0]); }

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  u32 line = 1;
  std::size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    const std::size_t start = i;
    if (c == '\n') {
      ++line;
      ++i;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0') {
      ++i;
    } else if (text.substr(i, 2) == "//") {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (text.substr(i, 2) == "/*") {
      const std::size_t end = text.find("*/", i);
      if (end == std::string_view::npos) throw Refused(line, "a comment without an end");
      for (; i < end + 2; ++i) line += text[i] == '\n' ? 1 : 0;
    } else if (c == '"') {
      const std::size_t end = text.find('"', i + 1);
      if (end == std::string_view::npos) throw Refused(line, "a string without an end");
      i = end + 1;
      tokens.push_back({text.substr(start, i - start), line});
    } else if (begins_word(c)) {
      // (`::` is a part of some modifiers.)
      while (i < text.size() && (begins_word(text[i]) || is_digit(text[i]) ||
                                 (text[i] == ':' && i + 1 < text.size() &&
                                  (text[i + 1] == ':' || text[i - 1] == ':')))) {
        ++i;
      }
      tokens.push_back({text.substr(start, i - start), line});
    } else if (is_digit(c)) {
      while (i < text.size() && (is_digit(text[i]) || (begins_word(text[i]) && text[i] != '%')))
        ++i;
      tokens.push_back({text.substr(start, i - start), line});
    } else {
      ++i;
      tokens.push_back({text.substr(start, 1), line});
    }
  }
  tokens.push_back({std::string_view(), line});
  return tokens;
}

}  // namespace standin
