// For tests with more threads than the machine has cores.
#pragma once

#ifndef OCTAVO_STD_THREADS
#include <tbb/global_control.h>
#endif

namespace octavo::testing {

/// Lets oneTBB really start 16 threads on a machine with fewer cores.
class ManyThreads {
#ifndef OCTAVO_STD_THREADS
  tbb::global_control control_{tbb::global_control::max_allowed_parallelism, 16};
#endif
};

}  // namespace octavo::testing
