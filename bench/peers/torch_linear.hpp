// PyTorch's int8 linear layers.
#pragma once

#include "peers/plugin.hpp"

namespace octavo::bench {

Task torch_linear(const Linear& l);

}  // namespace octavo::bench
