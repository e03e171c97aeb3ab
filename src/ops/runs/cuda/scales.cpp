#include "ops/runs/cuda/scales.hpp"

#include <bit>

#include "core/fp_environment.hpp"
#include "numerics/types.hpp"

namespace octavo::cuda {
namespace {

// A rule, the type of the scale, and whether it was given by value, as the detail of a refusal.
std::uint64_t pack(const detail::ScaleRule& rule, DType type, bool by_value) {
  return static_cast<std::uint64_t>(rule.compute) | static_cast<std::uint64_t>(type) << 8U |
         std::uint64_t{rule.divides} << 16U | std::uint64_t{by_value} << 17U;
}

Error word(const Refusal& refusal) {
  const detail::FpEnvironment environment;
  const detail::ScaleRule rule{static_cast<DType>(refusal.detail & 0xFFU),
                               (refusal.detail >> 16U & 1U) != 0};
  const auto type = static_cast<DType>(refusal.detail >> 8U & 0xFFU);
  const bool by_value = (refusal.detail >> 17U & 1U) != 0;
  double given = 0;
  numerics::with_type(numerics::FloatTypes(), type, [&]<DType t>() {
    given = static_cast<double>(numerics::Type<t>::read(&refusal.bits, 0));
  });
  const double rounded =
      rule.compute == DType::f64 ? given : static_cast<double>(static_cast<float>(given));
  return detail::bad_scale(rule, by_value ? -1 : refusal.index(), given, rounded);
}

}  // namespace

Check check_of_scales(const detail::ScaleRule& rule, DType type, const void* scales,
                      std::int64_t count) {
  Check check;
  check.values = scales;
  check.count = count;
  check.type = type;
  check.compute = rule.compute;
  check.rule = rule.divides ? Rule::divisor : Rule::finite;
  check.word = word_by(word);
  check.detail = pack(rule, type, false);
  return check;
}

Refusal refused_scale(const detail::ScaleRule& rule, double scale) {
  return {0, std::bit_cast<std::uint64_t>(scale), word_by(word), pack(rule, DType::f64, true)};
}

}  // namespace octavo::cuda
