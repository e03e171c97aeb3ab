// Dynamic ranges: every small shape, long rows, and guard pages; every mode, scope, type and
// profile, on every target of this machine.
#pragma once

#include <vector>

#include "units.hpp"

namespace octavo::exhaustive {

[[nodiscard]] std::vector<Unit> dynamic_units();

}  // namespace octavo::exhaustive
