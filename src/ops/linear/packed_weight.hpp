// Packed weights, inside: what a backend makes of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "octavo/packed_weight.hpp"
#include "ops/linear/panels.hpp"

namespace octavo {

/// Lives as long as a copy of its weight. A backend derives from it, and holds the memory.
struct PackedWeight::Impl {
  Impl(std::int64_t columns, std::int64_t sums_over, const WeightFormat& held_as)
      : n(columns),
        k(sums_over),
        format(held_as) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;

  /// What an image holds behind its header: `bytes` of it, in the host's memory. Null where it is
  /// of a layout that images do not hold.
  [[nodiscard]] virtual const std::byte* image() const { return nullptr; }
  /// Whether its rows can be had back.
  [[nodiscard]] virtual bool can_unpack() const { return image() != nullptr; }
  /// See PackedWeight::unpack, if it can. The arguments are checked.
  [[nodiscard]] virtual Status unpack(const TensorMut& /*weight*/, const TensorMut& /*scales*/,
                                      const TensorMut& /*zero_points*/) const {
    return {};
  }

  const std::int64_t n;
  const std::int64_t k;
  const WeightFormat format;
  std::size_t bytes = 0;
  detail::Extent lent;  ///< memory of someone else's, as an image's in place: only read
};

struct PackedWeightAccess {
  static PackedWeight make(std::shared_ptr<PackedWeight::Impl> impl) {
    PackedWeight packed;
    packed.impl_ = std::move(impl);
    return packed;
  }
  static PackedWeight::Impl& impl(PackedWeight& packed) { return *packed.impl_; }
  static bool is_shared(const PackedWeight& packed) { return packed.impl_.use_count() > 1; }
  static bool is_lent(const PackedWeight& packed) { return packed.impl_->lent.end != 0; }
  static const detail::PackImpl& impl(const PackWeightPlan& plan) { return *plan.impl_; }
};

namespace detail {

/// The host's format (panels.hpp) of weights of this type, with a scale for so many of them.
constexpr WeightFormat host_format(DType code, std::int64_t group, bool zero_points, DType scales) {
  if (is_float(code)) return {code, 0, floats_layout};
  if (group == 0) return {code, 0, is_packed(code) ? groups_layout : panels_layout};
  return {code, group, groups_layout, zero_points, scales};
}

/// "s8, one scale per channel, layout 1"
std::string to_string(const WeightFormat& format);

/// An image, checked; copied unless there is a keeper.
Result<PackedWeight> read_image(std::span<const std::byte> image,
                                std::shared_ptr<const void> keeper);
/// One of the host's formats from an image's bytes behind the header, as many as its sizes say;
/// refuses those that no one has packed. With a keeper they are used where they are.
Result<PackedWeight> load_weight(std::int64_t n, std::int64_t k, const WeightFormat& format,
                                 std::span<const std::byte> body,
                                 std::shared_ptr<const void> keeper);
/// The same of an image of version 1, where sums come first.
Result<PackedWeight> load_version_1(std::int64_t n, std::int64_t k, const WeightFormat& format,
                                    std::span<const std::byte> body);

}  // namespace detail
}  // namespace octavo
