#include "ops/runs/scales.hpp"

#include <cmath>

#include "core/check.hpp"

namespace octavo::detail {

Error bad_scale(const ScaleRule& rule, std::int64_t index, double given, double rounded) {
  const std::string scale = given == rounded || std::isnan(given)
                                ? fmt::format("{}", given)
                                : fmt::format("{} ({} in {})", given, rounded, name(rule.compute));
  const char* expected =
      rule.divides ? "a finite number above 0 with a finite reciprocal" : "a finite number";
  if (index < 0)
    return invalid("scale",
                   fmt::format("expected {} in {}, got {}", expected, name(rule.compute), scale));
  return invalid("scales", fmt::format("expected {} in {} at every index, got {} at index {}",
                                       expected, name(rule.compute), scale, index));
}

}  // namespace octavo::detail
