#include "offline/json_text.hpp"

#include <fmt/core.h>

#include "offline/files.hpp"

namespace octavo::offline {

Status check_json(const std::string& path, std::string_view text) {
  constexpr int max_depth = 127;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0')
      return bad_file(path, fmt::format("expected JSON, got a zero byte at offset {}", i));
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\' && i + 1 < text.size() && text[i + 1] != '\0') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > max_depth)
      return bad_file(
          path, fmt::format("expected JSON of at most {} levels of nesting, got more", max_depth));
  }
  return {};
}

}  // namespace octavo::offline
