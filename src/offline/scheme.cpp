#include <string>

#include "core/check.hpp"
#include "octavo/smooth.hpp"

namespace octavo {

std::string_view name(Scheme scheme) noexcept {
  switch (scheme) {
    case Scheme::w8a8_dynamic:
      return "w8a8-dynamic";
    case Scheme::w8a8_static:
      return "w8a8-static";
    case Scheme::w4a16_group:
      return "w4a16-group";
  }
  return "unknown";
}

Result<Scheme> parse_scheme(std::string_view wanted) {
  for (const Scheme s : {Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w4a16_group})
    if (name(s) == wanted) return s;
  return detail::unsupported(
      "scheme", "expected w8a8-dynamic, w8a8-static or w4a16-group, got " + std::string(wanted));
}

}  // namespace octavo
