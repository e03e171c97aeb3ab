// octavo bench: linear layers on this machine, float against int8 and other schemes, and against
// the limits of its memory and of its multipliers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/bench_measure.hpp"
#include "cli/bench_schemes.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "core/check.hpp"
#include "octavo/checkpoint.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string path;
  std::vector<std::string> shapes;
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<std::string> schemes = scheme_names();
  std::int64_t group = 128;
  double seconds = 0.1;
  bool warm = false;
  bool json = false;
};

std::string milliseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.4g}", 1e3 * seconds) : "-";
}

// How much faster int8 is.
double gain(const LayerTimes& t) { return t.float_seconds / t.int8_seconds; }

// Where one overtakes the other, between two of the m that were measured.
struct Crossover {
  std::int64_t below = 0, above = 0;
  double at = 0;  // on a line between the logarithms
  bool int8_above = false;
};
std::vector<Crossover> crossovers(const std::vector<LayerTimes>& all) {
  std::vector<Crossover> out;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const double a = std::log(gain(all[i - 1])), b = std::log(gain(all[i]));
    if ((a < 0) == (b < 0)) continue;
    const double low = std::log(static_cast<double>(all[i - 1].m));
    const double high = std::log(static_cast<double>(all[i].m));
    out.push_back({all[i - 1].m, all[i].m, std::exp(low + (high - low) * a / (a - b)), b >= 0});
  }
  return out;
}

std::string crossover_text(const std::vector<LayerTimes>& all) {
  const std::vector<Crossover> found = crossovers(all);
  const std::string from = fmt::format("m = {} to {}", all.front().m, all.back().m);
  if (found.empty())
    return fmt::format("no crossover: {} is faster from {}",
                       gain(all.front()) < 1 ? "float" : "int8", from);
  std::string text;
  for (const Crossover& c : found)
    fmt::format_to(std::back_inserter(text),
                   "{}crossover at about m = {:.0f} (between {} and {}): {} is faster above",
                   text.empty() ? "" : "; ", c.at, c.below, c.above,
                   c.int8_above ? "int8" : "float");
  return text;
}

void print(const std::vector<LayerTimes>& all, LayerShape shape) {
  const bool has_float = all.front().float_seconds > 0;
  fmt::print("\n[{} x {}]\n", shape.n, shape.k);
  Table table({"m", "float ms", "int8 ms", "float / int8", "limit ms", "limited by", "of limit"},
              {true, true, true, true, true, false, true});
  for (const LayerTimes& t : all)
    table.add({std::to_string(t.m), milliseconds(t.float_seconds), milliseconds(t.int8_seconds),
               has_float ? fmt::format("{:.2f}", gain(t)) : "-", milliseconds(t.limit()), t.bound(),
               fmt::format("{:.2f}", t.limit() / t.int8_seconds)});
  table.print();
  if (has_float) fmt::print("{}\n", crossover_text(all));
  if (all.front().schemes.empty()) return;
  fmt::print("\n");
  Table others({"m", "layer", "ms", "int8 / it", "limit ms", "limited by", "of limit"},
               {true, false, true, true, true, false, true});
  for (const LayerTimes& t : all)
    for (const SchemeTimes& s : t.schemes)
      others.add({std::to_string(t.m), s.title, milliseconds(s.seconds),
                  fmt::format("{:.2f}", t.int8_seconds / s.seconds), milliseconds(s.limit()),
                  s.bound(), fmt::format("{:.2f}", s.limit() / s.seconds)});
  others.print();
}

Json as_json(const SchemeTimes& s) {
  return {{"scheme", s.scheme},
          {"group_size", s.group > 0 ? Json(s.group) : Json()},
          {"seconds", s.seconds},
          {"limit_seconds", s.limit()},
          {"limited_by", s.bound()}};
}

Json as_json(const std::vector<LayerTimes>& all, LayerShape shape) {
  Json rows = Json::array();
  for (const LayerTimes& t : all) {
    Json others = Json::array();
    for (const SchemeTimes& s : t.schemes) others.push_back(as_json(s));
    rows.push_back({{"m", t.m},
                    {"float_seconds", t.float_seconds > 0 ? Json(t.float_seconds) : Json()},
                    {"int8_seconds", t.int8_seconds},
                    {"limit_seconds", t.limit()},
                    {"limited_by", t.bound()},
                    {"schemes", others}});
  }
  Json crossings = Json::array();
  if (all.front().float_seconds > 0)
    for (const Crossover& c : crossovers(all))
      crossings.push_back({{"m", c.at}, {"faster_above", c.int8_above ? "int8" : "float"}});
  return {{"out", shape.n}, {"in", shape.k}, {"rows", rows}, {"crossovers", crossings}};
}

Result<std::set<LayerShape>> shapes_of(const Options& o) {
  std::set<LayerShape> shapes;
  for (const std::string& text : o.shapes) {
    long long n = 0, k = 0;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%lldx%lld%c", &n, &k, &rest) != 2 || n < 1 || k < 1 ||
        n > (1LL << 24) || k > (1LL << 24))
      return detail::invalid("shape",
                             fmt::format("expected OUTxIN, such as 4096x4096, got {}", text));
    shapes.insert({n, k});
  }
  if (!o.path.empty()) {
    const auto checkpoint = Checkpoint::open(o.path);
    if (!checkpoint) return checkpoint.error();
    for (const LinearLayer& layer : checkpoint->layers()) shapes.insert({layer.n, layer.k});
  }
  if (shapes.empty())
    return detail::invalid("shape", "expected a checkpoint with layers, or --shape OUTxIN");
  return shapes;
}

int run(const Context& context, Options o) {
  const auto shapes = shapes_of(o);
  if (!shapes) return fail(shapes.error());
  std::sort(o.rows.begin(), o.rows.end());
  o.rows.erase(std::unique(o.rows.begin(), o.rows.end()), o.rows.end());
  std::erase(o.schemes, "none");
  const Stream stream = context.stream();
  const FloatGemm gemm(stream.threads());
  MachineLimits limits;
  measure_limits(stream.threads(), 2 * o.seconds, limits);
  const std::string library = gemm.name().empty() ? "none found" : gemm.name();
  const char* weights =
      o.warm ? "the same in every call" : "from memory, as in a model of many layers";
  if (!o.json) {
    fmt::print("{} threads; float products by {}; weights {}\n", stream.threads(), library,
               weights);
    fmt::print("limits: {}/s read from memory",
               human_bytes(static_cast<std::uint64_t>(limits.bytes_per_second)));
    if (limits.operations_per_second > 0)
      fmt::print("; {:.4g} G int8 operations/s ({})", limits.operations_per_second / 1e9,
                 limits.target);
    if (limits.float_operations_per_second > 0)
      fmt::print("; {:.4g} G of f32", limits.float_operations_per_second / 1e9);
    fmt::print("\n");
  }
  Json json{{"threads", stream.threads()},
            {"float_library", library},
            {"weights", o.warm ? "warm" : "cold"},
            {"bytes_per_second", limits.bytes_per_second},
            {"operations_per_second", limits.operations_per_second},
            {"float_operations_per_second", limits.float_operations_per_second},
            {"layers", Json::array()}};
  std::uint64_t done = 0;
  for (const LayerShape& shape : *shapes) {
    if (done > 0) measure_limits(stream.threads(), o.seconds, limits);
    const auto measured = [&] {
      ProgressLine line;
      const std::string what = fmt::format("[{} x {}]", shape.n, shape.k);
      return measure_layer(stream, gemm, limits, shape,
                           {.rows = o.rows,
                            .seconds = o.seconds,
                            .warm = o.warm,
                            .schemes = o.schemes,
                            .group = o.group,
                            .next = [&](std::int64_t) {
                              line({done++, shapes->size() * o.rows.size(), what});
                            }});
    }();
    if (!measured) return fail(measured.error());
    if (o.json)
      json["layers"].push_back(as_json(*measured, shape));
    else
      print(*measured, shape);
  }
  if (o.json) print_json(json);
  return exit_ok;
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("bench", "Time linear layers: float, int8, other schemes and the limit");
  auto o = std::make_shared<Options>();
  command->add_option("path", o->path, "A checkpoint, whose layers are measured");
  command->add_option("--shape", o->shapes, "OUTxIN, such as 11008x4096, instead or as well");
  command->add_option("--rows", o->rows, "Rows of activations")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  std::vector<std::string> names = scheme_names();
  names.emplace_back("none");
  command->add_option("--scheme", o->schemes, "Other layers, beside float and int8")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command
      ->add_option("--group-size", o->group,
                   "Of layers with groups; halved until it divides the inputs")
      ->check(CLI::IsMember(std::set<std::int64_t>{16, 32, 64, 128, 256}))
      ->capture_default_str();
  command->add_option("--seconds", o->seconds, "The time for each figure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--warm", o->warm,
                    "The same weights in every call, so that small ones stay in a cache");
  command->add_flag("--json", o->json, "For programs");
  command->callback([&context, o] { context.run = [&context, o] { return run(context, *o); }; });
}

}  // namespace octavo::cli
