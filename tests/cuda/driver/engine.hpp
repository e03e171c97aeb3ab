// The execution as it was compiled for one instruction set of the host.
#pragma once

#include "tests/cuda/driver/warp.hpp"

namespace standin {

struct Engine {
  Operations operations;
  void (*run_block)(Block&, u64 seed) = nullptr;
};

// The best for this CPU.
const Engine& engine();

}  // namespace standin
