#include "octavo/sku.hpp"

#include <fmt/core.h>

#include <array>

#include "octavo/result.hpp"

namespace octavo {
namespace {

template <std::size_t n, class E>
constexpr std::string_view pick(const std::array<std::string_view, n>& names, E value) {
  const auto i = static_cast<std::size_t>(value);
  return i < n ? names[i] : std::string_view("unknown");
}

}  // namespace

std::string_view name(ErrorCode code) noexcept {
  static constexpr std::array<std::string_view, 7> names = {"ok",
                                                            "unsupported",
                                                            "invalid_problem",
                                                            "misaligned_operand",
                                                            "workspace_too_small",
                                                            "buffer_too_small",
                                                            "backend"};
  return pick(names, code);
}
std::string_view name(Profile profile) noexcept {
  return pick(std::array<std::string_view, 2>{"torch", "onnx"}, profile);
}
std::string_view name(Category category) noexcept {
  return pick(std::array<std::string_view, 5>{"elementwise", "dynamic_range", "observer", "linear",
                                              "embedding"},
              category);
}
std::string_view name(Op op) noexcept {
  static constexpr std::array<std::string_view, 17> names = {"quantize",
                                                             "quantize_backward",
                                                             "dequantize",
                                                             "dequantize_backward",
                                                             "fake_quantize",
                                                             "fake_quantize_backward",
                                                             "dynamic_range_quantize",
                                                             "dynamic_range_quantize_asymmetric",
                                                             "observe_min_max",
                                                             "observe_histogram",
                                                             "pack_weight",
                                                             "quantized_matmul",
                                                             "quantized_linear",
                                                             "quantized_linear_asymmetric",
                                                             "smoothquant_linear",
                                                             "float_linear",
                                                             "embedding"};
  return pick(names, op);
}
std::string_view name(Layout layout) noexcept {
  static constexpr std::array<std::string_view, 4> names = {"per_tensor", "per_channel",
                                                            "per_token", "per_group"};
  return pick(names, layout);
}
std::string_view name(Epilogue epilogue) noexcept {
  static constexpr std::array<std::string_view, 8> names = {
      "none", "bias",      "residual",      "bias_residual",
      "relu", "bias_relu", "residual_relu", "bias_residual_relu"};
  return pick(names, epilogue);
}

std::string to_string(const KernelSku& s) {
  const std::string quantized = s.quantized ? fmt::format("-{}", name(*s.quantized)) : "";
  const std::string output =
      s.output ? fmt::format(".{}.{}", name(*s.output), s.packed_weight ? "packed" : "rows") : "";
  const std::string group = s.weight_group == 0 ? "" : fmt::format("-g{}", s.weight_group);
  return fmt::format("{}.{}.{}.{}{}.{}{}{}.{}.{}.{}.{}", name(s.category), name(s.op),
                     name(s.layout), name(s.element), quantized, name(s.aux_element), group, output,
                     name(s.epilogue), name(s.profile), name(s.backend), name(s.target));
}

}  // namespace octavo

std::size_t std::hash<octavo::KernelSku>::operator()(const octavo::KernelSku& s) const noexcept {
  const octavo::PrecisionGuarantee& g = s.guarantee;
  std::uint64_t h = 0;
  const auto add = [&h](auto value) {
    // splitmix64's finaliser over the fields, one by one
    h += static_cast<std::uint64_t>(value) + 0x9E3779B97F4A7C15U;
    h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9U;
    h = (h ^ (h >> 27U)) * 0x94D049BB133111EBU;
    h ^= h >> 31U;
  };
  add(s.category);
  add(s.op);
  add(s.element);
  add(s.aux_element);
  add(s.output ? static_cast<int>(*s.output) + 1 : 0);
  add(s.quantized ? static_cast<int>(*s.quantized) + 1 : 0);
  add(s.packed_weight);
  add(s.weight_group);
  add(s.layout);
  add(s.epilogue);
  add(s.profile);
  add(s.target);
  add(s.backend);
  add(g.math);
  add(g.accumulator ? static_cast<int>(*g.accumulator) + 1 : 0);
  add((g.deterministic ? 1 : 0) | (g.bit_stable_same_hardware ? 2 : 0) |
      (g.bit_stable_everywhere ? 4 : 0));
  return static_cast<std::size_t>(h);
}
