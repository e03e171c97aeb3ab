// The cases that make_oracle.py wrote: index.json and cases.bin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/octavo.hpp"

namespace octavo::conformance {

/// A tensor inside the oracle's blob.
struct Tensor {
  DType dtype = DType::f32;
  std::int64_t count = 0;
  const std::byte* data = nullptr;

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(bytes_for(dtype, count));
  }
};

/// Element `i` of `data` as a number (exact: no type here is wider than f64) and as its bits.
[[nodiscard]] double value_at(const std::byte* data, DType dtype, std::int64_t i);
[[nodiscard]] std::uint64_t bits_at(const std::byte* data, DType dtype, std::int64_t i);
/// "0.5 (0x3f000000)"
[[nodiscard]] std::string show(const std::byte* data, DType dtype, std::int64_t i);

struct Case {
  std::string name;
  std::string op;
  Profile profile = Profile::torch;
  Shape shape;
  std::optional<int> axis;        // none: one scale for the whole tensor
  std::optional<RangeMode> mode;  // the plan finds the scales and zero points: they are results
  std::optional<std::int32_t> q_min;
  std::optional<std::int32_t> q_max;
  bool as_numbers = false;  // +0 equals -0
  bool refused = false;     // must be refused, with `expected` only for its type
  Tensor input;
  std::optional<Tensor> grad;
  Tensor scales;
  Tensor zero_points;
  Tensor expected;
  std::vector<std::string> torch;  // of a difference: what PyTorch gave
};

/// A linear layer. What is not there takes no part.
struct LinearCase {
  std::string name;
  std::string op;
  Profile profile = Profile::torch;
  std::int64_t m = 0, n = 0, k = 0;
  RangeMode mode = RangeMode::symmetric;
  std::optional<DType> quantized;
  bool relu = false;
  double act_scale = 1;
  std::int32_t act_zero_point = 0;
  double output_scale = 1;
  std::int32_t output_zero_point = 0;
  Tensor input;
  Tensor weight;  // [n, k]
  std::optional<Tensor> activation_scales, activation_zero_points;
  std::optional<Tensor> weight_scales, weight_zero_points;
  std::optional<Tensor> bias, residual;
  std::optional<Tensor> cells;  // which elements of the output are expected; none: all
  Tensor expected;
};

struct Oracle {
  std::string made_by;  // PyTorch's version and engine
  std::map<std::string, std::vector<Case>, std::less<>> groups;
  std::map<std::string, std::vector<LinearCase>, std::less<>> linear;
  std::vector<std::byte> blob;
};

/// Why there is no oracle to read in OCTAVO_ORACLE_DIR; empty if there is one.
[[nodiscard]] std::string oracle_missing();

/// Reads both files. Throws std::exception if they are not what make_oracle.py writes.
[[nodiscard]] Oracle read_oracle(const std::filesystem::path& directory);

}  // namespace octavo::conformance
