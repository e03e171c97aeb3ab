// Counting of what kernels ask of memory, for benchmarks.
#pragma once

#include "tests/cuda/driver/warp.hpp"

namespace standin {

// Around a launch: the distinct sectors that it touches.
void begin_counting();
void end_counting(Counters& counters);

}  // namespace standin
