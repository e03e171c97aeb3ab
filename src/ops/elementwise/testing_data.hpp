// Data that is hard to quantize.
#pragma once

#include <bit>
#include <mutex>
#include <utility>

#include "ops/elementwise/testing.hpp"
#include "ops/runs/cpu/driver.hpp"
#include "testing/guarded.hpp"
#include "testing/random.hpp"

namespace octavo::testing {

/// A float that matters for quantizing with these parameters: special values, any bits at all, and
/// numbers within a few ulps of (k + 1/2) * scale, where k + zero_point is in or near the range, or
/// of any size up to 2^44.
struct HardFloats {
  DType type = DType::f32;
  IntRange range{-128, 127};

  [[nodiscard]] std::uint64_t bits(double scale, std::int64_t zero_point, Random& random) const {
    const FloatFormat f = format_of(type);
    const std::uint64_t kind = random.below(16);
    if (kind < 2) return special_bits(type, random);
    if (kind < 4) return random.next() & (f.sign() | (f.sign() - 1));
    const auto bits = std::bit_cast<std::uint64_t>(scale) & (UINT64_MAX >> 1);
    const auto field = static_cast<int>(bits >> 52);
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
    const unsigned __int128 significand = field > 0 ? fraction | std::uint64_t{1} << 52 : fraction;
    const int exponent = (field > 0 ? field : 1) - 1075;
    if (kind < 8) {  // any quotient up to 2^8
      const std::uint64_t magnitude =
          pack(type, significand * random.below(1U << 20), exponent - 12);
      return magnitude | (random.below(2) != 0 ? f.sign() : 0);
    }
    const std::int64_t twice_k = kind < 14 ? 2 * (level(random) - zero_point) : far(random);
    const std::int64_t odd = random.below(4) != 0 ? twice_k + 1 : twice_k;
    const auto size = static_cast<std::uint64_t>(odd < 0 ? -odd : odd);
    std::uint64_t magnitude = pack(type, significand * size, exponent - 1) + random.below(7);
    magnitude = std::min(magnitude - std::min<std::uint64_t>(magnitude, 3), f.infinity());
    return magnitude | (odd < 0 ? f.sign() : 0);
  }

 private:
  /// An integer in the range or just outside it, at an end of it more often than not.
  [[nodiscard]] std::int64_t level(Random& random) const {
    const auto near = static_cast<std::int64_t>(random.below(7)) - 3;
    const auto width = static_cast<std::uint64_t>(std::int64_t{range.max} - range.min + 1);
    switch (random.below(3)) {
      case 0:
        return range.min + near;
      case 1:
        return range.max + near;
      default:
        return range.min + static_cast<std::int64_t>(random.below(width));
    }
  }
  [[nodiscard]] static std::int64_t far(Random& random) {
    const auto size = static_cast<std::int64_t>(random.next() & ((1ULL << random.below(45)) - 1));
    return random.below(2) != 0 ? -2 * size : 2 * size;
  }
};

/// Operands for a problem: hard values for each element's own scale, any integers (the padding of
/// packed rows too: nothing may depend on it).
[[nodiscard]] inline Operands make_operands(const Problem& p, const Parameters& parameters,
                                            std::uint64_t seed) {
  Random random(seed);
  Operands o{p, {}, {}, {}, {}, {}};
  const std::int64_t slices = slice_count(p);
  const DType scales = scale_type(p);
  o.scale_bytes.resize(static_cast<std::size_t>(bytes_for(scales, slices)));
  for (std::int64_t i = 0; i < slices; ++i) {
    // Rounded to the scale type first, then to the compute type.
    const auto at = static_cast<std::size_t>(i);
    const std::uint64_t bits = encode(scales, parameters.scales[at % parameters.scales.size()]);
    store_bits(o.scale_bytes.data(), octavo::bits(scales) / 8, i, bits);
    const DType compute = compute_type(p.element);
    o.scales.push_back(decode(compute, encode(compute, decode(scales, bits))));
    o.zero_points.push_back(parameters.zero_points[at % parameters.zero_points.size()]);
  }

  const std::int64_t n = numel(p.shape);
  const Elements floats(p.element, p.shape);
  const HardFloats hard{p.element, range_of(p)};
  const auto fill = [&](Bytes& bytes) {
    bytes.resize(static_cast<std::size_t>(floats.bytes()));
    for (std::int64_t i = 0; i < n; ++i) {
      const auto slice = static_cast<std::size_t>(slice_of(p, i));
      const std::uint64_t bits = hard.bits(o.scales[slice], o.zero_points[slice], random);
      floats.set(bytes.data(), i, static_cast<std::int64_t>(bits));
    }
  };
  if (p.op == Op::dequantize) {
    o.input.resize(static_cast<std::size_t>(Elements(p.integer, p.shape).bytes()));
    for (std::byte& byte : o.input) byte = static_cast<std::byte>(random.next());
  } else if (has_input(p.op)) {
    fill(o.input);
  }
  if (has_grad(p.op)) fill(o.grad);
  return o;
}

/// The same data over and over, along the first dimension: a large call whose answer is cheap to
/// know. For layouts whose parameters do not go along with it.
[[nodiscard]] inline Bytes repeated(const Bytes& bytes, std::int64_t times) {
  Bytes all;
  all.reserve(bytes.size() * static_cast<std::size_t>(times));
  for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}
[[nodiscard]] inline Operands repeated(Operands o, std::int64_t times) {
  o.problem.shape[0] *= times;
  o.input = repeated(o.input, times);
  o.grad = repeated(o.grad, times);
  return o;
}

/// Outputs too large for the caches are written past them, by code of its own: more than this many
/// bytes make sure of it.
inline constexpr std::int64_t large_bytes = detail::stream_bytes + (std::int64_t{1} << 20);

/// As long as one lives, every call that the driver runs writes past the caches. (They are counted:
/// callers on several threads may each have one.)
class StreamedStores {
 public:
  StreamedStores() {
    const std::scoped_lock lock(mutex());
    if (count()++ == 0) octavo::detail::set_stream_bytes(0);
  }
  StreamedStores(const StreamedStores&) = delete;
  StreamedStores& operator=(const StreamedStores&) = delete;
  ~StreamedStores() {
    const std::scoped_lock lock(mutex());
    if (--count() == 0) octavo::detail::set_stream_bytes(octavo::detail::stream_bytes);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static int& count() {
    static int living = 0;
    return living;
  }
};

/// Every float and every integer type, where all of their combinations would take too long.
inline constexpr std::array<std::pair<DType, DType>, 6> mixed_types{{{DType::f32, DType::s8},
                                                                     {DType::f64, DType::u4},
                                                                     {DType::f16, DType::u8},
                                                                     {DType::bf16, DType::s4},
                                                                     {DType::f32, DType::s16},
                                                                     {DType::f16, DType::s16}}};

/// One kind per pair of types, in both profiles. Packed output, which is never written that way,
/// is replaced by its 8-bit sibling.
[[nodiscard]] inline std::vector<Kind> large_kinds(Op op) {
  std::vector<Kind> kinds;
  for (auto [element, integer] : mixed_types) {
    if (op == Op::quantize && is_packed(integer))
      integer = integer == DType::s4 ? DType::s8 : DType::u8;
    kinds.push_back({op, Layout::per_tensor, element, integer, all_profiles[kinds.size() % 2]});
  }
  return kinds;
}

}  // namespace octavo::testing
