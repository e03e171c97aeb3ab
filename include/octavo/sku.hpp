// Which kernel a plan chose, and what may be relied on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/dtype.hpp"
#include "octavo/profile.hpp"
#include "octavo/stream.hpp"

namespace octavo {

struct PrecisionGuarantee {
  DType math = DType::f32;                ///< every operation is rounded to this type
  std::optional<DType> accumulator = {};  ///< of sums, which are exact (where k needs
                                          ///< more, pieces of s32 are added in 64 bits)
  bool deterministic = true;              ///< the same call gives the same bits
  bool bit_stable_same_hardware = true;   ///< whatever the threads and the split
  bool bit_stable_everywhere = true;      ///< on every target and backend too
  friend bool operator==(const PrecisionGuarantee&, const PrecisionGuarantee&) = default;
};

enum class Category : std::uint8_t {
  elementwise = 0,
  dynamic_range = 1,
  observer = 2,
  linear = 3,
  embedding = 4,
};
enum class Op : std::uint8_t {
  quantize = 0,
  quantize_backward = 1,
  dequantize = 2,
  dequantize_backward = 3,
  fake_quantize = 4,
  fake_quantize_backward = 5,
  dynamic_range_quantize = 6,  ///< symmetric
  dynamic_range_quantize_asymmetric = 7,
  observe_min_max = 8,
  observe_histogram = 9,
  pack_weight = 10,
  quantized_matmul = 11,
  quantized_linear = 12,  ///< activations quantized symmetrically
  quantized_linear_asymmetric = 13,
  smoothquant_linear = 14,
  float_linear = 15,
  embedding = 16,
};
enum class Layout : std::uint8_t { per_tensor = 0, per_channel = 1, per_token = 2, per_group = 3 };
/// What a linear layer does after its sums: a set of these, `Epilogue::bias | Epilogue::relu`.
enum class Epilogue : std::uint8_t { none = 0, bias = 1, residual = 2, relu = 4 };
[[nodiscard]] constexpr Epilogue operator|(Epilogue a, Epilogue b) noexcept {
  return static_cast<Epilogue>(static_cast<int>(a) | static_cast<int>(b));
}
/// Whether all of `part` is in the set.
[[nodiscard]] constexpr bool contains(Epilogue set, Epilogue part) noexcept {
  return (static_cast<int>(set) & static_cast<int>(part)) == static_cast<int>(part);
}

[[nodiscard]] OCTAVO_API std::string_view name(Category category) noexcept;
[[nodiscard]] OCTAVO_API std::string_view name(Op op) noexcept;
[[nodiscard]] OCTAVO_API std::string_view name(Layout layout) noexcept;
[[nodiscard]] OCTAVO_API std::string_view name(Epilogue epilogue) noexcept;

/// The identity of a chosen kernel: what telemetry and tuning key on.
struct KernelSku {
  Category category = Category::elementwise;
  Op op = Op::quantize;
  /// The float side, and the integer side (the float type again if there is none). Of linear
  /// layers: activations and weights.
  DType element = DType::f32;
  DType aux_element = DType::s8;
  // Of linear layers only: the output, what float activations are quantized to, and whether weights
  // are packed beforehand.
  std::optional<DType> output = std::nullopt;
  std::optional<DType> quantized = std::nullopt;
  bool packed_weight = false;
  std::int64_t weight_group = 0;  ///< input channels that share a scale; 0: all
  Layout layout = Layout::per_tensor;
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;
  Target target = Target::scalar;
  Backend backend = Backend::cpu;
  PrecisionGuarantee guarantee;

  friend bool operator==(const KernelSku&, const KernelSku&) = default;
};

/// "elementwise.quantize.per_tensor.f32.s8.none.torch.cpu.avx512",
/// "linear.quantized_linear.per_token.f32-s8.s8.bf16.packed.bias_relu.torch.cpu.amx": stable, one
/// per kernel.
[[nodiscard]] OCTAVO_API std::string to_string(const KernelSku& sku);

}  // namespace octavo

template <>
struct OCTAVO_API std::hash<octavo::KernelSku> {
  [[nodiscard]] std::size_t operator()(const octavo::KernelSku& sku) const noexcept;
};
