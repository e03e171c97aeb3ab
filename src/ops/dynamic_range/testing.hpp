// What the tests of dynamic ranges share: calls that are hard to find a range for, and the oracle's
// answer to them, written independently of the library.
#pragma once

#include <cmath>
#include <limits>
#include <sstream>

#include "octavo/dynamic_range_quantize.hpp"
#include "ops/elementwise/testing_data.hpp"
#include "testing/lent.hpp"

namespace octavo::testing {

inline constexpr std::array all_modes{RangeMode::symmetric, RangeMode::asymmetric};

/// One call: a problem of quantize, how to find its parameters, and the input.
struct DynamicCall {
  Problem problem;
  RangeMode mode = RangeMode::symmetric;
  Bytes input;
};
/// What it gives.
struct DynamicResult {
  Bytes output;
  Bytes scales;
  std::vector<std::int32_t> zero_points;
  friend bool operator==(const DynamicResult&, const DynamicResult&) = default;
};

[[nodiscard]] inline DynamicRangeQuantizeDescriptor descriptor_of(const DynamicCall& c) {
  DynamicRangeQuantizeDescriptor d;
  d.shape = c.problem.shape;
  d.mode = c.mode;
  d.scope = c.problem.layout;
  d.axis = c.problem.axis;
  d.group_size = c.problem.group_size;
  d.input = c.problem.element;
  d.output = c.problem.integer;
  d.q_min = c.problem.q_min;
  d.q_max = c.problem.q_max;
  d.profile = c.problem.profile;
  return d;
}

/// Modes and types that go together.
[[nodiscard]] inline bool is_offered(RangeMode mode, DType integer) {
  return mode == RangeMode::asymmetric || integer == DType::s8 || integer == DType::s4 ||
         integer == DType::s16;
}

/// The range of a call, which for s16 is not all of it unless one is given.
[[nodiscard]] inline IntRange dynamic_range_of(const Problem& p) {
  const IntRange all = p.integer == DType::s16 ? IntRange{-32639, 32639} : range_of(p);
  return {p.q_min.value_or(all.min), p.q_max.value_or(all.max)};
}

/// The bits of an element, by the style of its slice.
[[nodiscard]] inline std::uint64_t dynamic_bits(DType type, std::uint64_t style, Random& random) {
  const FloatFormat f = format_of(type);
  const std::uint64_t fraction = random.next() & ((std::uint64_t{1} << f.significand) - 1);
  const std::uint64_t sign = random.below(2) != 0 ? f.sign() : 0;
  const auto scaled = [&](std::uint64_t exponent) {
    return (exponent - random.below(4)) << f.significand | fraction;
  };
  const auto bias = static_cast<std::uint64_t>(f.bias());
  switch (style) {
    case 0:  // only NaN and infinities
      return sign | f.infinity() | (random.below(2) != 0 ? fraction : 0);
    case 1:  // zeros
      return sign;
    case 2:  // subnormals
      return sign | fraction;
    case 3:  // so large that the range overflows
      return sign | (f.infinity() - 1 - random.below(9));
    case 4:  // any bits at all
      return sign | (random.next() & (f.sign() - 1));
    case 5:  // positive
      return scaled(bias + 2);
    case 6:  // negative
      return f.sign() | scaled(bias + 2);
    case 7:  // small, with an infinity or a NaN now and then
      return random.below(9) == 0 ? sign | f.infinity() | (fraction & 1) : sign | scaled(bias - 5);
    default:  // ordinary
      return sign | scaled(bias + style % 9);
  }
}

[[nodiscard]] inline DynamicCall make_dynamic(const Problem& p, RangeMode mode,
                                              std::uint64_t seed) {
  DynamicCall c{p, mode, Bytes(static_cast<std::size_t>(Elements(p.element, p.shape).bytes()))};
  Random random(seed);
  std::vector<std::uint64_t> styles(
      static_cast<std::size_t>(std::max<std::int64_t>(1, slice_count(p))));
  for (std::uint64_t& style : styles) style = random.below(20);
  const Elements elements(p.element, p.shape);
  for (std::int64_t i = 0; i < numel(p.shape); ++i)
    elements.set(c.input.data(), i,
                 static_cast<std::int64_t>(dynamic_bits(
                     p.element, styles[static_cast<std::size_t>(slice_of(p, i))], random)));
  return c;
}

/// numerics.md, "Dynamic range", once more.
template <class C>
struct DynamicOracle {
  C least = 0;
  C most = 0;

  void see(C x) {
    if (!(std::fabs(x) <= std::numeric_limits<C>::max())) return;
    if (x < least) least = x;
    if (x > most) most = x;
  }
  [[nodiscard]] C scale(RangeMode mode, IntRange r) const {
    constexpr C tiny = std::numeric_limits<C>::min();
    constexpr C huge = std::numeric_limits<C>::max();
    if (mode == RangeMode::symmetric) {
      const C m = -least > most ? -least : most;
      if (m == 0) return 1;
      const C s = m / static_cast<C>(r.max);
      return s < tiny ? tiny : s;
    }
    if (least == most) return 1;
    const C width = most - least;
    const auto steps = static_cast<C>(r.max - r.min);
    if (std::isinf(width)) {
      const C s = (most / 2 - least / 2) / (steps / 2);
      return s > huge ? huge : s;
    }
    const C s = width / steps;
    return s < tiny ? tiny : s;
  }
  [[nodiscard]] std::int32_t zero_point(RangeMode mode, IntRange r) const {
    if (mode == RangeMode::symmetric) return 0;
    if (least == most) return r.min;
    const double at = std::rint(static_cast<C>(r.min) - least / scale(mode, r));
    if (at < r.min) return r.min;
    return at > r.max ? r.max : static_cast<std::int32_t>(at);
  }
};

template <class C>
DynamicResult dynamic_result(const DynamicCall& c) {
  const Problem& p = c.problem;
  const Elements in(p.element, p.shape);
  const std::int64_t slices = slice_count(p);
  std::vector<DynamicOracle<C>> oracles(static_cast<std::size_t>(slices));
  for (std::int64_t i = 0; i < numel(p.shape); ++i)
    oracles[static_cast<std::size_t>(slice_of(p, i))].see(
        static_cast<C>(decode(p.element, static_cast<std::uint64_t>(in.get(c.input.data(), i)))));
  Operands o;
  const IntRange range = dynamic_range_of(p);
  o.problem = p;
  o.problem.q_min = range.min;
  o.problem.q_max = range.max;
  o.input = c.input;
  DynamicResult result;
  for (const auto& oracle : oracles) {
    const C scale = oracle.scale(c.mode, range);
    o.scales.push_back(static_cast<double>(scale));
    o.zero_points.push_back(oracle.zero_point(c.mode, range));
    const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
    result.scales.insert(result.scales.end(), bytes, bytes + sizeof(C));
  }
  result.zero_points = o.zero_points;
  result.output = expected(o);
  return result;
}
[[nodiscard]] inline DynamicResult expected(const DynamicCall& c) {
  return c.problem.element == DType::f64 ? dynamic_result<double>(c) : dynamic_result<float>(c);
}

/// Runs the plan; nothing may be written beside its outputs. The error's message, or empty.
[[nodiscard]] inline std::string run(const Stream& stream, const DynamicCall& c,
                                     DynamicResult& result,
                                     const TensorRef* strided_input = nullptr) {
  constexpr std::size_t beside = 64;
  constexpr std::byte paint{0xCD};
  const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
  if (!plan) return plan.error().message();
  const Problem& p = c.problem;
  const Shape slices{slice_count(p)};
  const DType compute = compute_type(p.element);
  const auto scale_bytes = static_cast<std::size_t>(bytes_for(compute, slices[0]));
  Bytes output(static_cast<std::size_t>(output_bytes(p)) + 2 * beside, paint);
  Bytes scales(scale_bytes + 2 * beside, paint);
  Bytes zero_points(4 * static_cast<std::size_t>(slices[0]) + 2 * beside, paint);
  Lent lent(stream);
  DynamicRangeQuantizeArgs args;
  args.input = lent.lend(strided_input != nullptr ? *strided_input
                                                  : TensorRef(c.input.data(), p.element, p.shape));
  args.output = TensorMut(lent.lend(output) + beside, p.integer, p.shape);
  args.scales = TensorMut(lent.lend(scales) + beside, compute, slices);
  args.zero_points = TensorMut(lent.lend(zero_points) + beside, DType::s32, slices);
  const WorkspaceBuffer workspace(stream, plan->workspace_size());
  if (const Status s = plan->run(stream, workspace, args); !s) return s.error().message();
  if (const Status s = lent.fetch(); !s) return s.error().message();
  const auto inside = [&](const Bytes& bytes, auto& to) {
    for (std::size_t i = 0; i < beside; ++i)
      if (bytes[i] != paint || bytes[bytes.size() - 1 - i] != paint) return false;
    to.resize((bytes.size() - 2 * beside) / sizeof(to[0]));
    if (!to.empty()) std::memcpy(to.data(), bytes.data() + beside, bytes.size() - 2 * beside);
    return true;
  };
  if (!inside(output, result.output) || !inside(scales, result.scales) ||
      !inside(zero_points, result.zero_points))
    return "bytes beside an output changed";
  return {};
}

/// Runs the plan and compares, bit for bit. Empty if all is well, else the call and what was wrong.
[[nodiscard]] inline std::string difference(const Stream& stream, const DynamicCall& c,
                                            const DynamicResult& want,
                                            const TensorRef* strided_input = nullptr) {
  DynamicResult got;
  std::string wrong = run(stream, c, got, strided_input);
  if (wrong.empty() && got == want) return {};
  if (wrong.empty())
    wrong = got.scales != want.scales             ? "scales differ"
            : got.zero_points != want.zero_points ? "zero points differ"
                                                  : "outputs differ";
  std::ostringstream text;
  describe(text, c.problem);
  text << ' ' << name(c.mode) << ", " << stream.threads()
       << (strided_input == nullptr ? " threads: " : " threads, strided: ") << wrong;
  return text.str();
}

}  // namespace octavo::testing
