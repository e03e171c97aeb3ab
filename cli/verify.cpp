// octavo verify: a quantized checkpoint against the float one that it came from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/names.hpp"
#include "cli/table.hpp"
#include "cli/verdict.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ComparisonOptions checkpoints;
  std::optional<double> max_error;
  std::string sort = "error";
  bool json = false;
};

Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

void print_json(const VerifyReport& report, const Verdict& verdict,
                const std::vector<std::size_t>& order) {
  Json out{{"verdict",
            {{"failed", verdict.failed},
             {"above", verdict.above},
             {"summary", verdict.summary},
             {"advice", verdict.advice}}},
           {"layers", Json::array()},
           {"unexpected", report.unexpected},
           {"added", report.added},
           {"bits_per_weight", report.bits_per_weight()},
           {"float_layers", report.float_layers},
           {"float_share", report.float_share}};
  for (const std::size_t i : order) {
    const LayerError& e = report.layers[i];
    out["layers"].push_back(
        {{"name", e.name},
         {"scheme", name(e.scheme)},
         {"group_size", e.group_size},
         {"asymmetric", e.asymmetric},
         {"bits", e.bits},
         {"out", e.n},
         {"in", e.k},
         {"smoothed", e.smoothed},
         {"sqnr_db", finite(e.sqnr_db)},
         {"cosine", finite(e.cosine)},
         {"max_abs", finite(e.max_abs)},
         {"clip_rate", e.clip_rate},
         {"non_finite", e.non_finite},
         {"weight_error", finite(e.weight_error)},
         {"rows", e.rows},
         {"output_error", e.output_error ? finite(*e.output_error) : Json(nullptr)},
         {"bound", finite(verdict.bound(e))}});
  }
  cli::print_json(out);
}

void print_table(const VerifyReport& report, const std::vector<std::size_t>& order) {
  Table table({"layer", "scheme", "bits", "SQNR dB", "cosine", "max abs", "clipped", "weight error",
               "output error"},
              {false, false, true, true, true, true, true, true, true});
  for (const std::size_t i : order) {
    const LayerError& e = report.layers[i];
    table.add({e.name, std::string(name(e.scheme)), fmt::format("{:.3g}", e.bits),
               fmt::format("{:.1f}", e.sqnr_db), fmt::format("{:.6f}", e.cosine), number(e.max_abs),
               percent(e.clip_rate), percent(e.weight_error),
               e.output_error ? percent(*e.output_error) : "-"});
  }
  table.print();
}

// The worst first, or by name.
std::vector<std::size_t> order_of(const VerifyReport& report, const Verdict& verdict,
                                  const std::string& sort) {
  std::vector<std::size_t> order = verdict.order;
  if (sort == "name")
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return natural_less(report.layers[a].name, report.layers[b].name);
    });
  return order;
}

int run(const Context& context, const Options& o) {
  const auto compared = compare(context, o.checkpoints);
  if (!compared) return fail(compared.error());
  const VerifyReport& report = compared->report;
  const Verdict verdict = judge(report, o.max_error);
  const std::vector<std::size_t> order = order_of(report, verdict, o.sort);
  if (o.json) {
    print_json(report, verdict, order);
    return verdict.failed ? exit_check_failed : exit_ok;
  }
  print_table(report, order);
  for (const std::string& name : report.unexpected)
    fmt::print("{} should not have changed, but did\n", printable(name));
  return conclude(verdict);
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("verify", "Measure a quantized checkpoint against its float one");
  auto o = std::make_shared<Options>();
  add_comparison_options(*command, o->checkpoints,
                         "Statistics with sampled rows, to measure outputs");
  add_max_error(*command, o->max_error);
  command->add_option("--sort", o->sort, "Of the table: error, the worst first, or name")
      ->check(CLI::IsMember({"error", "name"}))
      ->capture_default_str();
  command->add_flag("--json", o->json, "For programs");
  command->callback([&context, o] { context.run = [&context, o] { return run(context, *o); }; });
}

}  // namespace octavo::cli
