// A kernel between text and execution: calls are written out, operands are virtual registers.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/driver/ptx.hpp"

namespace standin {

// An operand: a virtual register, or a row that stands already.
struct Slot {
  int reg = -1;
  Ref fixed = 0;
  bool written = false;
};

struct Flat {
  Run run = nullptr;
  u32 line = 0;
  std::vector<Slot> slots;
  s64 imm = 0;
  s64 imm2 = 0;
  Space space = Space::generic;
  u8 narrow = 0;
  u16 bytes = 0;
  int guard = -1;  // virtual register
  bool guard_negated = false;
  bool jumps = false;  // to `imm` or, if `leaves`, out of the kernel; the guard becomes operand 0
  bool leaves = false;
};

struct FlatKernel {
  std::vector<Flat> code;
  std::vector<Width> registers;  // of the virtual registers
};

// Where each virtual register stands (Ref), and which are read where not every path has written
// them.
struct Allocation {
  std::vector<Ref> row;
  std::vector<bool> doubtful;             // by register
  std::vector<std::vector<int>> checked;  // by instruction: registers to be checked before it
  u32 bytes = 0;                          // special rows included
  u32 words = 0;                          // most 32-bit words of a thread in use at once
};
Allocation allocate(const FlatKernel& kernel);

}  // namespace standin
