// A quantized checkpoint measured against the float one: what verify and report have in common.
#pragma once

#include <optional>
#include <string>

#include "cli/commands.hpp"
#include "octavo/checkpoint.hpp"

namespace octavo::cli {

struct ComparisonOptions {
  std::string original, quantized;
  std::string stats;  ///< empty: none
};
/// Adds them to a subcommand.
void add_comparison_options(CLI::App& command, ComparisonOptions& options, const char* stats_help);

struct Comparison {
  Checkpoint original, quantized;
  std::optional<Statistics> statistics;
  VerifyReport report;
};
/// Shows its progress.
Result<Comparison> compare(const Context& context, const ComparisonOptions& options);

}  // namespace octavo::cli
