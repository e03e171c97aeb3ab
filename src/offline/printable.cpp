#include "offline/printable.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::offline {

std::string printable(std::string_view text) {
  // {fmt} knows which characters can be seen. It would escape quotes and backslashes as well: they
  // are kept from it.
  std::string out;
  for (;;) {
    const std::size_t end = std::min(text.find_first_of("\"\\"), text.size());
    const std::string piece = fmt::format("{:?}", text.substr(0, end));
    out.append(piece, 1, piece.size() - 2);
    if (end == text.size()) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

}  // namespace octavo::offline
