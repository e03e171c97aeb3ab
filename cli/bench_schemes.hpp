// Layers that `octavo bench` times beside those of float and int8.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/dtype.hpp"
#include "octavo/packed_weight.hpp"
#include "octavo/result.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::cli {

struct LayerShape;

/// "w4a8-group", "w4a16-group", "w8a16": weights of 4 or 8 bits, and activations of 8 or 16; "f32",
/// "bf16": floats of this library.
const std::vector<std::string>& scheme_names();
/// What a weight takes at most, packed and with its scales.
double scheme_bytes(const std::string& scheme);

/// The layer of a scheme with packed weights.
class SchemeLayer {
 public:
  /// `scheme` is one of the names. Groups are halved until they divide k; where none does, an
  /// output channel has one scale. One copy of the weights, or as many as `beyond` bytes ask for.
  static Result<SchemeLayer> make(const Stream& stream, const std::string& scheme,
                                  std::int64_t group, LayerShape shape, std::int64_t beyond);

  [[nodiscard]] const std::string& scheme() const noexcept { return scheme_; }
  [[nodiscard]] bool is_float() const noexcept { return octavo::is_float(weight_); }
  [[nodiscard]] std::int64_t group() const noexcept { return group_; }  ///< 0: none
  /// "w4a8, groups of 64", "f32, by octavo"
  [[nodiscard]] std::string title() const;
  [[nodiscard]] std::int64_t bytes() const noexcept;  ///< of the packed weights, once
  /// int8 operations, or those of floats, for each multiplication.
  [[nodiscard]] int cost() const noexcept { return quantized_ == DType::s16 ? 2 : 1; }

  /// A call with m rows. `x` and `y`, f32, and the layer must stay; what goes wrong is put into
  /// `status`.
  [[nodiscard]] Result<std::function<void()>> call(const Stream& stream, const TensorRef& x,
                                                   const TensorMut& y, Status& status) const;

 private:
  std::string scheme_;
  DType weight_ = DType::s8;
  DType quantized_ = DType::s8;
  std::int64_t group_ = 0;
  std::vector<float> channels_;  // scales of no groups
  std::vector<PackedWeight> packed_;
};

}  // namespace octavo::cli
