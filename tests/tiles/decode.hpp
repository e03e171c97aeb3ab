// The instructions of AMX (tiles of bytes) and AVX-VNNI, from their bytes: VEX-encoded, map 0F38,
// as the manual has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octavo::testing::tiles {

enum class Kind : std::uint8_t {
  ldtilecfg,
  sttilecfg,
  tilerelease,
  tilezero,
  tileloadd,
  tileloaddt1,
  tilestored,
  tdpbssd,
  tdpbsud,
  tdpbusd,
  tdpbuud,
  vpdpbusd,
  vpdpbusds,
  vpdpwssd,
  vpdpwssds
};

/// What ModRM names beside a register: a register, or base + index * scale + displacement.
struct Operand {
  bool is_memory = false;
  int reg = 0;     // of a register operand
  int base = -1;   // -1: none; rip is 16
  int index = -1;  // -1: none
  int scale = 1;
  std::int32_t displacement = 0;
  bool has_sib = false;
};

struct Instruction {
  Kind kind = Kind::tilerelease;
  int length = 0;  // bytes
  int reg = 0;     // ModRM.reg
  int vvvv = 0;
  bool wide = false;  // 256 bits
  Operand rm;
};

/// At most 15 bytes are read, and none beyond the instruction. Nothing for any other instruction,
/// and for one of these whose encoding the manual forbids.
std::optional<Instruction> decode(const std::uint8_t* code);

/// In the assembler's words (AT&T), which gives the same bytes again.
std::string to_string(const Instruction& instruction);

}  // namespace octavo::testing::tiles
