#pragma once

#include "tests/cuda/driver/memory.hpp"

namespace standin {

struct Launch {
  Kernel* kernel = nullptr;
  u32 grid[3] = {1, 1, 1};
  u32 threads[3] = {1, 1, 1};
  u32 dynamic_shared = 0;
  std::vector<u8> params;
  int device = 0;
};

// Executes all blocks; throws a Fault.
void execute(const Launch& launch, Memory& memory, u64 seed, bool counting);

// The table of operations for this CPU.
const Operations& operations();

}  // namespace standin
