// What a backend does for embeddings.
#pragma once

#include <memory>
#include <span>

#include "core/choose.hpp"
#include "numerics/types.hpp"
#include "octavo/embedding.hpp"

namespace octavo::detail {

/// The types that embeddings admit.
using EmbeddingFloats = numerics::TypeList<DType::f32, DType::f16, DType::bf16>;
using EmbeddingTables = numerics::TypeList<DType::f32, DType::f16, DType::bf16, DType::s8,
                                           DType::u8, DType::s4, DType::u4>;

/// A problem and the way it is done. Immutable once a plan holds it; runs may be many at once.
class EmbeddingImpl {
 public:
  /// `group_size` is that of groups that are smaller than a row, or 0.
  explicit EmbeddingImpl(const EmbeddingDescriptor& d) : problem(d) {}
  EmbeddingImpl(const EmbeddingImpl&) = delete;
  EmbeddingImpl& operator=(const EmbeddingImpl&) = delete;
  virtual ~EmbeddingImpl() = default;

  /// Indices, and the scales and zero points of their rows, which are read here. All else is
  /// checked. Where work is queued it finds nothing wrong: what is queued may yet write them.
  [[nodiscard]] virtual Status check_values(const EmbeddingArgs& args) const = 0;
  /// Checks the values, then writes the output. Where work is queued, both happen later.
  [[nodiscard]] virtual Status run(const Stream& stream, const EmbeddingArgs& args) const = 0;

  [[nodiscard]] std::int64_t groups() const {
    return problem.group_size == 0 ? 1 : problem.columns / problem.group_size;
  }

  const EmbeddingDescriptor problem;
  KernelSku sku;  // (set by select)
};

/// What is wrong with a value.
Error wrong_index(std::int64_t rows, std::int32_t index, std::int64_t at);
Error wrong_scale(float scale, std::int64_t at);
Error wrong_zero_point(DType table, std::int32_t zero_point, std::int64_t at);

using EmbeddingEntry = Entry<EmbeddingDescriptor, std::shared_ptr<EmbeddingImpl>>;

/// Best first, the reference last.
std::span<const EmbeddingEntry> cpu_embedding();
std::span<const EmbeddingEntry> cuda_embedding();
/// For tests alone: those of a backend that only they have.
inline constinit std::span<const EmbeddingEntry> test_embedding;

}  // namespace octavo::detail
