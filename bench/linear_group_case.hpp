// A case of the linear layers with weights in groups, or of floats, and what it works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness.hpp"
#include "linear_case.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {

// What weights are, and what activations are quantized to. Weights of floats have the name of their
// type, and activations that stay f32.
struct LinearScheme {
  const char* name;
  DType weight;
  DType quantized;

  [[nodiscard]] bool is_float() const { return octavo::is_float(weight); }
};
inline constexpr LinearScheme w4a8{"w4a8", DType::s4, DType::s8};
inline constexpr LinearScheme w4a16{"w4a16", DType::s4, DType::s16};
inline constexpr LinearScheme w8a8{"w8a8", DType::s8, DType::s8};
inline constexpr LinearScheme w8a16{"w8a16", DType::s8, DType::s16};
inline constexpr LinearScheme f32_weights{"f32", DType::f32, DType::f32};
inline constexpr LinearScheme bf16_weights{"bf16", DType::bf16, DType::f32};
inline constexpr LinearScheme f16_weights{"f16", DType::f16, DType::f32};

struct GroupCase {
  LinearScheme scheme{};
  std::int64_t group = 0;  // of input channels with one scale; 0: one for each output channel
  LinearShape shape{};
  bool cold = false;
  int threads = 1;
  bool rows = false;  // weights as rows, not packed
  DType output = DType::f32;

  // "linear/groups/w4a8/g32/warm/128x4096x4096/1t", "linear/groups/w8a16/channel/...",
  // "linear/floats/bf16/warm/128x4096x4096/1t"
  [[nodiscard]] std::string name() const;
};

// Weights as rows, with 16-bit scales if there are groups.
class GroupWeights {
 public:
  void prepare(const GroupCase& c);

  [[nodiscard]] const std::byte* rows() const { return rows_; }
  // The scales of groups, [n, k / group]; the other of the two has the same numbers.
  [[nodiscard]] const std::vector<f16>& scales() const { return scales_; }
  [[nodiscard]] const std::vector<float>& wide_scales() const { return wide_scales_; }
  // Packed: one copy, or as many as leave every cache until they are used again.
  [[nodiscard]] Result<std::vector<PackedWeight>> pack_all(const GroupCase& c) const;
  // As f32, of weights of floats.
  [[nodiscard]] std::vector<float> floats(const GroupCase& c) const;

 private:
  Buffer buffer_;
  std::byte* rows_ = nullptr;
  std::vector<f16> scales_;
  std::vector<float> wide_scales_;
};

// Our plan for a case, from f32.
class GroupLayer {
 public:
  static Result<GroupLayer> make(const GroupCase& c, std::vector<PackedWeight> packed,
                                 const std::byte* input, std::byte* output);
  // The same of weights as rows.
  static Result<GroupLayer> make(const GroupCase& c, std::shared_ptr<const GroupWeights> rows,
                                 const std::byte* input, std::byte* output);
  void run() const { run_(); }
  [[nodiscard]] Target target() const { return target_; }
  [[nodiscard]] const std::vector<PackedWeight>& packed() const { return packed_; }
  // Of the weight: those that are used one after another.
  [[nodiscard]] std::size_t copies() const { return rows_ != nullptr ? 1 : packed_.size(); }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(packed_[0].bytes()); }

 private:
  template <class Plan>
  Status bind(const Stream& stream, const typename Plan::Descriptor& descriptor,
              std::vector<typename Plan::Args> all);

  Status bind(const GroupCase& c, const std::byte* input, std::byte* output);

  std::vector<PackedWeight> packed_;
  std::shared_ptr<const GroupWeights> rows_;            // or these
  std::shared_ptr<const std::vector<float>> channels_;  // scales of no groups
  Target target_ = Target::scalar;
  std::function<void()> run_;
};

}  // namespace octavo::bench
