// Linear layers of every size up to 64, of random sizes up to 512, and between guard pages, on
// every target of this machine.
#pragma once

#include <vector>

#include "units.hpp"

namespace octavo::exhaustive {

[[nodiscard]] std::vector<Unit> linear_units();

}  // namespace octavo::exhaustive
