#pragma once

#include <memory>

#include "tests/cuda/driver/ptx.hpp"

namespace standin {

// A kernel of a text whose variables in global and constant memory have their addresses.
std::unique_ptr<Kernel> decode(const Text& text, const Function& entry,
                               const Operations& operations);

// Bytes of a warp's constants and their order are private to the decoder.

}  // namespace standin
