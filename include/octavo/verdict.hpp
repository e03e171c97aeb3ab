// The verdict on a quantized checkpoint: is every layer near enough to its float one, and if not,
// what can be done.
//
//     const Verdict verdict = judge(*report);       // of verify or quantize
//     if (verdict.failed) std::puts(verdict.text().c_str());
//
// A layer is above its bound if error() > bound, or if its error is no number.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "octavo/checkpoint.hpp"

namespace octavo {

/// The largest relative error of a layer that is taken for good: 0.1, and 0.25 for int4 weights.
[[nodiscard]] double default_max_error(Scheme scheme) noexcept;

struct Verdict {
  bool failed = false;
  std::optional<double> max_error;  ///< that was asked for; none: the default of each scheme
  std::vector<std::size_t> order;   ///< of the report's layers, the worst first
  std::size_t above = 0;            ///< how many of them, from the first on, are above their bound
  std::string headline;             ///< "3 of 28 layers are above the bound of 10 %"
  std::string details;              ///< the worst layers, what was measured, what is float
  std::string summary;              ///< both, as one sentence
  std::vector<std::string> advice;  ///< what to do, a sentence each, with the options to give

  /// Of a layer; infinite if there is none.
  [[nodiscard]] double bound(const LayerError& layer) const noexcept;
  /// Summary and advice, a line each.
  [[nodiscard]] std::string text() const;
};

/// `max_error` replaces the default bounds; an infinite one lifts them.
[[nodiscard]] Verdict judge(const VerifyReport& report, std::optional<double> max_error = {});

}  // namespace octavo
