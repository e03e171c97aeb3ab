// Names of layers, for people.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace octavo::cli {

/// By name, with numbers by their value: layers.2 comes before layers.10.
bool natural_less(std::string_view a, std::string_view b);

/// A layer's block and its name within it, cut after the last part that is a number:
/// model.layers.0.mlp.up_proj gives model.layers.0 and mlp.up_proj. Without one the block is empty.
std::pair<std::string, std::string> split_block(std::string_view layer);

/// The parts of a block's name that are numbers: 0.3 for model.layers.0.experts.3.
std::string block_number(std::string_view block);

}  // namespace octavo::cli
