// The compute limit: how fast a target multiplies and adds 8-bit integers, or floats, when every
// operand is in a register already. Operands are random: a multiplier that is fed zeros runs faster
// than it can.
#pragma once

#include <cstdint>
#include <optional>

#include "measuring/competitor.hpp"
#include "octavo/stream.hpp"

namespace octavo::measuring {

// Does about `operations` multiplications and additions (two for each product) on all threads
// together. None if the target has no such kernel here, or the CPU lacks the target.
std::optional<Competitor> peak(Target target, std::int64_t operations, int threads);

// The same of f32, by fused multiplications and additions as wide as the target's vectors.
std::optional<Competitor> float_peak(Target target, std::int64_t operations, int threads);

// The target with the highest peak that this CPU has.
std::optional<Target> fastest_target();

}  // namespace octavo::measuring
