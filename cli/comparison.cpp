#include "cli/comparison.hpp"

#include "cli/progress.hpp"

namespace octavo::cli {

void add_comparison_options(CLI::App& command, ComparisonOptions& options, const char* stats_help) {
  command.add_option("original", options.original, "The float checkpoint")->required();
  command.add_option("quantized", options.quantized, "The quantized one")->required();
  command.add_option("--stats", options.stats, stats_help);
}

Result<Comparison> compare(const Context& context, const ComparisonOptions& options) {
  auto original = Checkpoint::open(options.original);
  if (!original) return original.error();
  auto quantized = Checkpoint::open(options.quantized);
  if (!quantized) return quantized.error();
  std::optional<Statistics> statistics;
  if (!options.stats.empty()) {
    auto read = Statistics::read(options.stats);
    if (!read) return read.error();
    statistics = *std::move(read);
  }
  ProgressLine line;
  auto report = verify(context.stream(), *original, *quantized, statistics ? &*statistics : nullptr,
                       [&](const Progress& p) { line(p); });
  if (!report) return report.error();
  return Comparison{*std::move(original), *std::move(quantized), std::move(statistics),
                    *std::move(report)};
}

}  // namespace octavo::cli
