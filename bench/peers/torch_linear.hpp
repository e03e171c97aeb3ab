// PyTorch's linear layers: int8, weights of four bits in groups, and floats.
#pragma once

#include "peers/plugin.hpp"

namespace octavo::bench {

Task torch_linear(const Linear& l);
Task torch_groups(const Groups& g);
Task torch_floats(const Floats& f);

}  // namespace octavo::bench
