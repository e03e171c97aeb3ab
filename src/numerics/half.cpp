#include "numerics/half.hpp"

#include <cmath>

namespace octavo {

float to_float(f16 value) noexcept { return numerics::widen(value); }
float to_float(bf16 value) noexcept {
  const float x = numerics::widen(value);
  return std::isnan(x) ? std::bit_cast<float>(numerics::canonical_nan) : x;
}
f16 to_f16(float value) noexcept { return numerics::narrow_f16(value); }
bf16 to_bf16(float value) noexcept { return numerics::narrow_bf16(value); }

}  // namespace octavo
