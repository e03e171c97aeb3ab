// Numbers in sentences.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace octavo::offline {

/// "12.5 %", of three significant digits.
inline std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

/// "1 layer", "2 layers".
inline std::string counted(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

}  // namespace octavo::offline
