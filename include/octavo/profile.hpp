// Whose rounding is followed.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/export.h"

namespace octavo {

/// Whose rounding is followed where the peers differ.
enum class Profile : std::uint8_t {
  torch = 0,  ///< v = x * (1 / scale), as PyTorch computes it
  onnx = 1,   ///< v = x / scale, as the ONNX standard says it
};
[[nodiscard]] OCTAVO_API std::string_view name(Profile profile) noexcept;

}  // namespace octavo
