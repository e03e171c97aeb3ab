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

struct Oracle {
  std::string made_by;  // PyTorch's version and engine
  std::map<std::string, std::vector<Case>, std::less<>> groups;
  std::vector<std::byte> blob;
};

/// Reads both files. Throws std::exception if they are not what make_oracle.py writes.
[[nodiscard]] Oracle read_oracle(const std::filesystem::path& directory);

}  // namespace octavo::conformance
