// octavo verify: a quantized checkpoint against the float one that it came from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ComparisonOptions checkpoints;
  std::optional<double> max_error;
  bool json = false;
};

Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

void print_json(const VerifyReport& report) {
  Json out{{"layers", Json::array()}, {"unexpected", report.unexpected}};
  for (const LayerError& e : report.layers)
    out["layers"].push_back(
        {{"name", e.name},
         {"scheme", name(e.scheme)},
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
         {"output_error", e.output_error ? finite(*e.output_error) : Json(nullptr)}});
  fmt::print("{}\n", out.dump(2));
}

void print_table(const VerifyReport& report) {
  Table table({"layer", "SQNR dB", "cosine", "max abs", "clipped", "weight error", "output error"},
              {false, true, true, true, true, true, true});
  for (const LayerError& e : report.layers)
    table.add({e.name, fmt::format("{:.1f}", e.sqnr_db), fmt::format("{:.6f}", e.cosine),
               number(e.max_abs), percent(e.clip_rate), percent(e.weight_error),
               e.output_error ? percent(*e.output_error) : "-"});
  table.sort();
  table.print();
}

int check(const VerifyReport& report, std::optional<double> max_error) {
  int code = exit_ok;
  for (const std::string& name : report.unexpected) {
    fmt::print(stderr, "octavo: {} should not have changed, but did\n", printable(name));
    code = exit_check_failed;
  }
  for (const LayerError& e : report.layers)
    if (e.non_finite > 0)
      fmt::print(stderr, "octavo: {}: {} weights are NaN or infinite\n", printable(e.name),
                 e.non_finite);
  if (!max_error) return code;
  for (const LayerError& e : report.layers) {
    if (e.error() <= *max_error) continue;
    fmt::print(stderr, "octavo: {}: error {} is above {}\n", printable(e.name), number(e.error()),
               number(*max_error));
    code = exit_check_failed;
  }
  return code;
}

int run(const Context& context, const Options& o) {
  const auto compared = compare(context, o.checkpoints);
  if (!compared) return fail(compared.error());
  if (o.json)
    print_json(compared->report);
  else
    print_table(compared->report);
  return check(compared->report, o.max_error);
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("verify", "Measure a quantized checkpoint against its float one");
  auto o = std::make_shared<Options>();
  add_comparison_options(*command, o->checkpoints,
                         "Statistics with sampled rows, to measure outputs");
  command
      ->add_option("--max-error", o->max_error,
                   "Exit with 3 if a layer's relative error (of its output where rows are "
                   "sampled, else of its weights) is above this")
      ->check([](const std::string& text) {  // (CLI::Range would let NaN through)
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= 0
                   ? std::string()
                   : "expected a number of 0 or more, got " + text;
      });
  command->add_flag("--json", o->json, "For programs");
  command->callback([&context, o] { context.run = [&context, o] { return run(context, *o); }; });
}

}  // namespace octavo::cli
