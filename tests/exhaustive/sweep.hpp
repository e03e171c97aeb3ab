// All 2^32 floats through quantize, fake-quantize and their backward passes, as s8 and u8, in both
// profiles, on every target of this machine.
#pragma once

#include <vector>

#include "octavo/stream.hpp"
#include "units.hpp"

namespace octavo::exhaustive {

/// Targets of this machine with elementwise kernels of their own.
[[nodiscard]] std::vector<Target> own_targets();

/// `pairs` (scale, zero point) pairs on the vector targets, the first two of them on scalar.
[[nodiscard]] std::vector<Unit> sweep_units(int pairs);

}  // namespace octavo::exhaustive
