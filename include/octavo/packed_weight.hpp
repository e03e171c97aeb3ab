// Weights of a linear layer, rearranged once so that every run can read them in order.
//
//     Result<PackedWeight> w = pack(stream, TensorRef(weights, {n, k}));
//     Result<PackedWeight> w = pack(stream, TensorRef(nibbles, {n, k}),
//                                   {.size = 64, .scales = TensorRef(scales, {n, k / 64})});
//
// One format serves all CPUs, so a packed weight may be stored, loaded elsewhere, and used where a
// file is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "octavo/result.hpp"
#include "octavo/sku.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

/// How packed weights are held. A plan reads the format that it was made for, and refuses others.
struct WeightFormat {
  DType code = DType::s8;  ///< what a weight is held as
  /// So many weights of a row share a scale, held with them. 0: none are held; the scales, one for
  /// each output channel, are given to every run.
  std::int64_t group = 0;
  /// The arrangement, and where it lies. In the host's memory, 1: panels of 16 output channels; 2:
  /// of 32, in groups or of four bits; 3: of 32, of floats. In that of a CUDA device, 16: integers;
  /// 17: floats.
  std::uint32_t layout = 1;
  // Of groups only.
  bool zero_points = false;   ///< whether each has one, held with its scale
  DType scales = DType::f32;  ///< what those are held as
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

/// Packed weights [n, k] of s8, u8, s4, u4, or of floats. Copies share their memory, which linear
/// plans only read, so one may serve many threads; only PackWeightPlan writes it, and refuses to
/// where there are copies (work that is queued holds one). A default-constructed one is empty and
/// is refused everywhere.
class OCTAVO_API PackedWeight {
 public:
  PackedWeight() = default;

  [[nodiscard]] std::int64_t n() const noexcept;
  [[nodiscard]] std::int64_t k() const noexcept;
  [[nodiscard]] DType dtype() const noexcept;  ///< the format's code
  [[nodiscard]] WeightFormat format() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return impl_ == nullptr; }
  /// Bytes of what it holds: panels of weights, with their scales or the sum of each column.
  [[nodiscard]] std::size_t bytes() const noexcept;

  /// The rows that it was packed from, [n, k] of its type, bit for bit; and of groups the scales,
  /// [n, k / group] of the format's type, and the zero points, s32. Those two may be left out.
  [[nodiscard]] Status unpack(const TensorMut& weight, const TensorMut& scales = {},
                              const TensorMut& zero_points = {}) const;

  /// The same weights where `stream` computes, for plans of its backend: this one if it lies there,
  /// else a copy, made when this returns.
  [[nodiscard]] Result<PackedWeight> to(const Stream& stream) const;

  /// A portable image, with a version and a checksum. (Weights that only another backend can read
  /// have none: no bytes, and `unsupported`.)
  [[nodiscard]] std::vector<std::byte> serialize() const;
  /// The same into memory of the caller's, `serialized_bytes()` of it.
  [[nodiscard]] std::size_t serialized_bytes() const noexcept;
  [[nodiscard]] Status serialize(std::span<std::byte> image) const;
  /// Reads one back; refuses what is truncated, damaged, or of a version it does not know. Whoever
  /// wrote it, the sums in it are those of its weights.
  [[nodiscard]] static Result<PackedWeight> deserialize(std::span<const std::byte> image);
  /// The same without a copy: the weights stay where they are, aligned to 64 bytes, as in a file
  /// that is mapped. `keeper` is held as long as they are in use, and nothing may write there. All
  /// of it is read, to check it. (Images of version 1 are copied.)
  [[nodiscard]] static Result<PackedWeight> deserialize_in_place(
      std::span<const std::byte> image, std::shared_ptr<const void> keeper);

  struct Impl;
  [[nodiscard]] const Impl* impl() const noexcept { return impl_.get(); }

 private:
  friend struct PackedWeightAccess;
  std::shared_ptr<Impl> impl_;
};

/// The weights of a layer: rows as they are ([n, k], a stride between rows), or packed.
struct WeightRef {
  WeightRef() = default;
  WeightRef(const TensorRef& rows) : tensor(rows) {}
  WeightRef(PackedWeight packed_weight) : packed(std::move(packed_weight)), is_packed(true) {}

  TensorRef tensor;
  PackedWeight packed;  ///< shares the memory of the one it was made from
  bool is_packed = false;
};

struct PackWeightDescriptor {
  std::int64_t n = 0;        ///< output channels
  std::int64_t k = 0;        ///< input channels
  DType weight = DType::s8;  ///< s8, u8, s4, u4; f32, f16, bf16
  /// Of a scale that the pack holds: a multiple of 4 that divides k and is less. 0, or k and more:
  /// it holds none, for output channels' scales are given to runs.
  std::int64_t group_size = 0;
  DType scale = DType::f32;  ///< of those, f32, f64, f16 or bf16; held as they are
  bool zero_points = false;  ///< whether groups have them
  /// Signed integers are given as unsigned ones, more by 8 (s4) or 128 (s8), as compressed-tensors
  /// stores them.
  bool offset = false;
};

struct PackWeightArgs {
  TensorRef weight;                ///< [n, k]; rows may lie apart
  TensorRef scales = {};           ///< [n, k / group_size]
  TensorRef zero_points = {};      ///< s32, likewise
  PackedWeight* packed = nullptr;  ///< of make_packed; has no copies
};

namespace detail {
class PackImpl;
}

class OCTAVO_API PackWeightPlan {
 public:
  using Descriptor = PackWeightDescriptor;
  using Args = PackWeightArgs;

  PackWeightPlan(const PackWeightPlan&) = default;  // (and no move, which would leave an empty one)
  PackWeightPlan& operator=(const PackWeightPlan&) = default;
  ~PackWeightPlan() = default;

  static Result<PackWeightPlan> select(const Stream& stream, const Descriptor& descriptor,
                                       const PlanPreference& preference = {});
  /// One of the right size, all zero. The only allocation.
  [[nodiscard]] Result<PackedWeight> make_packed() const;
  [[nodiscard]] Status can_implement(const Args& args) const;
  [[nodiscard]] std::size_t workspace_size() const noexcept { return 0; }
  /// On a stream of the plan's backend.
  Status run(const Stream& stream, Workspace workspace, const Args& args) const;
  [[nodiscard]] const KernelSku& sku() const noexcept;
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return sku().guarantee;
  }

 private:
  friend struct PackedWeightAccess;
  explicit PackWeightPlan(std::shared_ptr<const detail::PackImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const detail::PackImpl> impl_;
};

/// Scales, and perhaps zero points, of groups of `size` input channels.
struct WeightGroups {
  std::int64_t size = 0;
  TensorRef scales;
  TensorRef zero_points = {};
  bool offset = false;  ///< of the codes: see PackWeightDescriptor
};

/// All of that in one call.
[[nodiscard]] OCTAVO_API Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight);
[[nodiscard]] OCTAVO_API Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight,
                                                   const WeightGroups& groups);

}  // namespace octavo
