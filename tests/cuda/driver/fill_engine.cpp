#include "tests/cuda/driver/engine.hpp"
#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {

void fill(Engine& engine);

void put(Operations& table, const std::string& name, Run run, const char* operands) {
  table[name] = {run, operands};
}

void fill(Engine& engine) {
  add_integer(engine.operations);
  add_float(engine.operations);
  add_convert(engine.operations);
  add_memory(engine.operations);
  add_control(engine.operations);
  add_exchange(engine.operations);
  add_matrix(engine.operations);
  engine.run_block = &run_block;
}

}  // namespace standin::STANDIN_TARGET
