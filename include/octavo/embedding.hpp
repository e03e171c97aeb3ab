// Embedding: rows of a table, gathered by their indices.
//
//     y[i,:] = table[indices[i],:]                                     of floats
//     y[i,j] = s * C(q - zp)   of quantized tables, with the scale and zero point of the row, or of
//                              the group that j lies in: as dequantize has it; C is f32
//
// and rounded once to the output's type. Floats of the output's own type are copied bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "octavo/result.hpp"
#include "octavo/sku.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

struct EmbeddingDescriptor {
  std::int64_t m = 0;           ///< the most rows a run may gather
  std::int64_t rows = 0;        ///< of the table
  std::int64_t columns = 0;     ///< of the table, and of the output
  DType table = DType::f32;     ///< f32, f16, bf16; s8, u8, s4, u4
  DType output = DType::f32;    ///< f32, f16, bf16
  std::int64_t group_size = 0;  ///< columns that share a scale: a multiple of 4 that divides them;
                                ///< 0, or `columns` and more: all of a row
  bool zero_points = false;     ///< whether runs are given them
  friend bool operator==(const EmbeddingDescriptor&, const EmbeddingDescriptor&) = default;
};

struct EmbeddingArgs {
  TensorRef indices;      ///< s32, 0 to rows - 1, at most m of any shape, contiguous
  TensorRef table;        ///< [rows, columns]; rows may lie apart
  TensorRef scales = {};  ///< of quantized tables: one per row, or [rows, columns / group_size];
                          ///< any float type
  TensorRef zero_points = {};  ///< s32, likewise; only if the descriptor has them
  TensorMut output;            ///< [indices, columns]; rows may lie apart
};

namespace detail {
class EmbeddingImpl;
}

class OCTAVO_API EmbeddingPlan {
 public:
  using Descriptor = EmbeddingDescriptor;
  using Args = EmbeddingArgs;

  static Result<EmbeddingPlan> select(const Stream& stream, const Descriptor& descriptor,
                                      const PlanPreference& preference = {});
  EmbeddingPlan(const EmbeddingPlan&) = default;  // (and no move, which would leave an empty one)
  EmbeddingPlan& operator=(const EmbeddingPlan&) = default;
  ~EmbeddingPlan() = default;

  /// Whether `run` would accept these arguments, and if not, why. Of scales and zero points those
  /// of the rows that are gathered are looked at.
  [[nodiscard]] Status can_implement(const Args& args) const;
  [[nodiscard]] std::size_t workspace_size() const noexcept { return 0; }
  Status run(const Stream& stream, Workspace workspace, const Args& args) const;
  [[nodiscard]] const KernelSku& sku() const noexcept;
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return sku().guarantee;
  }

 private:
  explicit EmbeddingPlan(std::shared_ptr<const detail::EmbeddingImpl> impl)
      : impl_(std::move(impl)) {}
  std::shared_ptr<const detail::EmbeddingImpl> impl_;
};

}  // namespace octavo
