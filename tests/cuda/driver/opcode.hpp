// Opcodes with many modifiers, brought to the names under which operations stand in the table.
#pragma once

#include "tests/cuda/driver/ptx.hpp"

namespace standin {

struct Opcode {
  std::string key;
  std::vector<Operand> operands;
  Space space = Space::generic;
  Space second_space = Space::global;
  u16 bytes = 0;
  u32 granule = 0;  // bytes that it accesses together in shared memory, 0 if it does not
};

Opcode opcode_of(const Statement& s, const Function& f);

// A sentence about an opcode that is not in the table.
std::string why_unknown(const std::string& opcode);

}  // namespace standin
