// The targets that linear plans are tested on.
#pragma once

#include <vector>

#include "ops/elementwise/testing.hpp"
#include "ops/linear/implementation.hpp"

namespace octavo::testing {

/// Whether a target has a dot product of its own.
[[nodiscard]] inline bool has_dot_product(Target target) {
  for (const octavo::detail::LinearEntry& entry : octavo::detail::cpu_linear())
    if (entry.at.target == target) return true;
  return false;
}

/// Those of this machine.
[[nodiscard]] inline std::vector<Target> linear_targets() {
  std::vector<Target> targets;
  for (const Target target : machine_targets)
    if (is_available(target) && has_dot_product(target)) targets.push_back(target);
  return targets;
}

}  // namespace octavo::testing
