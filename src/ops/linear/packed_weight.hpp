// Packed weights, inside: what a backend makes of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "octavo/packed_weight.hpp"
#include "ops/linear/panels.hpp"

namespace octavo {

/// Lives as long as a copy of its weight. A format derives from it, and holds the memory.
struct PackedWeight::Impl {
  Impl(std::int64_t columns, std::int64_t sums_over, const WeightFormat& held_as)
      : n(columns),
        k(sums_over),
        format(held_as) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;

  /// What an image holds behind its header: `bytes` of it.
  virtual void write_to(std::byte* to) const = 0;

  const std::int64_t n;
  const std::int64_t k;
  const WeightFormat format;
  std::size_t bytes = 0;
};

struct PackedWeightAccess {
  static PackedWeight make(std::shared_ptr<PackedWeight::Impl> impl) {
    PackedWeight packed;
    packed.impl_ = std::move(impl);
    return packed;
  }
  static PackedWeight::Impl& impl(PackedWeight& packed) { return *packed.impl_; }
  static bool is_shared(const PackedWeight& packed) { return packed.impl_.use_count() > 1; }
  static const detail::PackImpl& impl(const PackWeightPlan& plan) { return *plan.impl_; }
};

namespace detail {

/// Layout 1 (panels.hpp), with one scale per output channel.
constexpr WeightFormat panels_format(DType code) { return {code, 0, panels_layout}; }

/// "s8, one scale per channel, layout 1"
std::string to_string(const WeightFormat& format);

/// A weight of layout 1 from an image's bytes behind the header, as many as its sizes say; refuses
/// those that no one has packed.
Result<PackedWeight> load_panels(std::int64_t n, std::int64_t k, DType code,
                                 std::span<const std::byte> body);

}  // namespace detail
}  // namespace octavo
