// A PTX text as it stands: functions, variables and statements, names resolved.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/cuda/driver/program.hpp"

namespace standin {

enum class Kind : u8 { reg, immediate, symbol, address, vector, sink, label };

struct Operand {
  Kind kind = Kind::sink;
  int reg = -1;       // of the function; an address: its base, or -1
  int variable = -1;  // symbol or base of an address: of the text if global_scope
  u64 bits = 0;       // immediate, or the offset of an address or a symbol
  bool is_double = false;
  bool is_float = false;
  bool is_negated = false;
  int pair = -1;     // the register after `|`
  std::string name;  // label, function
  std::vector<Operand> parts;
};

struct Statement {
  u32 line = 0;
  std::string opcode;
  int guard = -1;
  bool guard_negated = false;
  std::vector<Operand> operands;
  // Calls only.
  std::vector<Operand> results;
  std::vector<Operand> arguments;
};

enum class Width : u8 { pred, half, word, twice };
inline u32 row_bytes(Width width) {
  return width == Width::half ? 64 : width == Width::twice ? 256 : 128;
}

struct Register {
  std::string name;
  Width width;
  bool special = false;
  u32 row = 0;
};

struct Variable {
  std::string name;
  Space space = Space::global;
  u32 align = 1;
  u64 size = 0;
  std::vector<u8> init;
  bool is_dynamic = false;  // extern shared memory without a size
  u64 address = 0;          // once placed: global address, or offset in its space
};

struct Function {
  std::string name;
  bool entry = false;
  u32 line = 0;
  u32 max_threads = 1024;
  std::vector<int> results;     // variables
  std::vector<int> parameters;  // variables
  std::vector<Register> registers;
  std::vector<Statement> body;
  std::unordered_map<std::string, u32> labels;
};

struct Text {
  u32 version = 0;  // 70 is 7.0
  std::string target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

Text parse(std::string_view text);
/// Puts the parts of a function in the order in which lanes wait for each other, order.cpp.
void order_parts(Function& function);

}  // namespace standin
