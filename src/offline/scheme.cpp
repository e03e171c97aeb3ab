#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "octavo/smooth.hpp"
#include "offline/checkpoint_parts.hpp"

namespace octavo {
namespace {

constexpr std::array all_schemes{Scheme::w8a8_dynamic, Scheme::w8a8_static, Scheme::w8a16,
                                 Scheme::w4a8_group, Scheme::w4a16_group};

}  // namespace

std::string_view name(Scheme scheme) noexcept {
  switch (scheme) {
    case Scheme::w8a8_dynamic:
      return "w8a8-dynamic";
    case Scheme::w8a8_static:
      return "w8a8-static";
    case Scheme::w4a16_group:
      return "w4a16-group";
    case Scheme::w8a16:
      return "w8a16";
    case Scheme::w4a8_group:
      return "w4a8-group";
  }
  return "unknown";
}

Result<Scheme> parse_scheme(std::string_view wanted) {
  for (const Scheme s : all_schemes)
    if (name(s) == wanted) return s;
  return detail::unsupported("scheme",
                             fmt::format("expected {}, got {}", offline::scheme_words(), wanted));
}

std::string offline::scheme_words(std::string_view last) {
  std::vector<std::string_view> names;
  names.reserve(std::size(all_schemes) + 1);
  for (const Scheme s : all_schemes) names.push_back(name(s));
  if (!last.empty()) names.push_back(last);
  last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

int weight_bits(Scheme scheme) noexcept {
  return scheme == Scheme::w4a16_group || scheme == Scheme::w4a8_group ? 4 : 8;
}

std::string to_string(const LayerForm& form) {
  std::string out(name(form.scheme));
  if (form.group_size > 0)
    out += fmt::format(" in groups of {}", form.group_size);
  else if (weight_bits(form.scheme) == 4)
    out += " with a scale per channel";
  return form.asymmetric ? out + ", asymmetric" : out;
}

}  // namespace octavo
