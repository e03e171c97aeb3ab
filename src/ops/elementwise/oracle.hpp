// The numerical contract, written a second time and as plainly as possible: what the tests compare
// every kernel (the scalar reference too) with. It shares no code with the library's arithmetic.
//
// One element at a time; floats are read from and written to their bits (testing/floats.hpp);
// integers are exact.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/elementwise.hpp"
#include "testing/floats.hpp"

namespace octavo::testing {

/// The operations, in compute type C (float or double).
template <class C>
struct Oracle {
  C scale;
  std::int64_t zero_point;
  std::int64_t q_min;
  std::int64_t q_max;
  Profile profile;

  [[nodiscard]] C divide(C x) const {
    return profile == Profile::onnx ? x / scale : x * (C{1} / scale);
  }
  /// rint(v) + zero_point. Beyond 2^40 any integer stands for all: no int32 brings it back.
  [[nodiscard]] std::int64_t level(C x) const {
    const C limit = static_cast<C>(std::int64_t{1} << 40);
    const C v = std::nearbyint(divide(x));
    const C bounded = v > limit ? limit : v < -limit ? -limit : v;
    return static_cast<std::int64_t>(bounded) + zero_point;
  }
  [[nodiscard]] std::int64_t clamp(std::int64_t q) const {
    return q < q_min ? q_min : q > q_max ? q_max : q;
  }

  [[nodiscard]] bool mask(C x) const {
    return !std::isnan(x) && level(x) >= q_min && level(x) <= q_max;
  }
  [[nodiscard]] std::int64_t quantize(C x) const {
    return clamp(std::isnan(x) ? zero_point : level(x));
  }
  [[nodiscard]] C dequantize(std::int64_t q) const {
    return scale * static_cast<C>(q - zero_point);
  }
  [[nodiscard]] C fake_quantize(C x) const { return std::isnan(x) ? x : dequantize(quantize(x)); }
  [[nodiscard]] C quantize_backward(C x, C dy) const { return mask(x) ? divide(dy) : C{0}; }
  [[nodiscard]] C fake_quantize_backward(C x, C dy) const { return mask(x) ? dy : C{0}; }
  [[nodiscard]] C dequantize_backward(C dy) const { return dy * scale; }
};

}  // namespace octavo::testing
