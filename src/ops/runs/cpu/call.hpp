// What a kernel over runs of elements is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "octavo/elementwise.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::detail {

/// One call: `count` runs of `length` consecutive elements. A kernel never sees a granularity, only
/// runs whose parameters are uniform (one scale and zero point each) or per lane (one for each
/// element). Kernels are stateless; they return the target they were compiled for.
struct KernelCall {
  const void* input = nullptr;  // x, or q of a dequantize; unused by dequantize_backward
  const void* grad = nullptr;   // dy of the backward passes
  void* output = nullptr;

  // Where the first run starts and how far apart runs are, in elements. On packed tensors these are
  // even, but for the reference kernels.
  std::int64_t input_at = 0, grad_at = 0, output_at = 0;
  std::int64_t input_step = 0, grad_step = 0, output_step = 0;
  std::int64_t count = 0;
  std::int64_t length = 0;

  const void* scale = nullptr;               // of the first run, in the compute type
  const std::int32_t* zero_point = nullptr;  // null: all 0
  std::int64_t param_step = 0;               // parameters between runs
  bool same_zero_points = true;              // all of the tensor's
  bool exact_quotient = false;  // profile onnx may divide as numerics/quotient.hpp does
  IntRange range;
  Profile profile = Profile::torch;
  bool stream_stores = false;  // write past the caches

  // Of dynamic ranges, one per parameter, in the compute type: the extremes so far of range kernels
  // (`low` is null if symmetric), or what fused kernels find out.
  void* low = nullptr;
  void* high = nullptr;
  void* scale_found = nullptr;
  std::int32_t* zero_point_found = nullptr;  // null: not wanted
  bool symmetric = true;

  /// Moves on by so many parameters.
  void skip_parameters(std::int64_t n, std::int64_t scale_bytes) {
    const auto skip = [&]<class Void>(Void*& p) {
      using Byte = std::conditional_t<std::is_const_v<Void>, const unsigned char, unsigned char>;
      if (p != nullptr) p = static_cast<Byte*>(p) + n * scale_bytes;
    };
    skip(scale);
    skip(low);
    skip(high);
    skip(scale_found);
    if (zero_point != nullptr) zero_point += n;
    if (zero_point_found != nullptr) zero_point_found += n;
  }
};

using KernelFunction = Target (*)(const KernelCall&);

/// What tells the kernels of a target apart.
struct KernelKey {
  Op op = Op::quantize;
  DType element = DType::f32;
  DType integer = DType::s8;  // of quantize and dequantize
  bool per_lane = false;
};

/// The least and the most of some integers.
struct Extremes {
  std::int32_t least = 0;
  std::int32_t most = 0;
};
/// Of `n` >= 1 values of 32 bits, after an "and" with `mask`.
using ScanFunction = Extremes (*)(const void* values, std::int64_t n, std::int32_t mask);
template <Target target>
Extremes scan(const void* values, std::int64_t n, std::int32_t mask);

#define OCTAVO_DECLARE(target) \
  template <>                  \
  Extremes scan<target>(const void* values, std::int64_t n, std::int32_t mask)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

/// What SIMD kernels are exact for; beyond it the reference runs.
/// Quantize clamps quotients to +- this before it makes integers of them and adds the zero point:
/// in 16 bits for types of up to 8, in 32 bits for s16.
constexpr std::int32_t quotient_guard(int integer_bits) {
  return integer_bits <= 8 ? 1 << 14 : 1 << 17;
}
/// Half of that: what was clamped stays outside of every range of the type.
constexpr std::int64_t max_simd_quantize_zero_point(DType integer) {
  return quotient_guard(bits(integer)) / 2;
}
/// Bounds q_min - zp and q_max - zp must be exact in f32.
inline constexpr std::int64_t max_simd_bound = std::int64_t{1} << 23;
/// Dequantize subtracts in 32 bits.
inline constexpr std::int64_t max_simd_dequantize_zero_point = std::int64_t{1} << 30;

}  // namespace octavo::detail
