// octavo bench: linear layers on this machine, float against int8 against the limit of its memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "cli/commands.hpp"
#include "cli/float_gemm.hpp"
#include "cli/table.hpp"
#include "octavo/checkpoint.hpp"
#include "octavo/quantized_linear.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;
using Shape2 = std::pair<std::int64_t, std::int64_t>;  // out, in

struct Options {
  std::string path;
  std::vector<std::string> shapes;
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  double seconds = 0.1;
  bool json = false;
};

struct Measured {
  std::int64_t m = 0;
  double float_seconds = 0, int8_seconds = 0, limit_seconds = 0;
};

// The least time of a call, over at least `seconds` and three calls.
template <class F>
double time_of(const F& call, double seconds) {
  using Clock = std::chrono::steady_clock;
  call();
  double best = 1e300, all = 0;
  for (int i = 0; i < 3 || all < seconds; ++i) {
    const auto start = Clock::now();
    call();
    const double t = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, t);
    all += t;
  }
  return best;
}

// Bytes per second that copies of a buffer beyond the caches move, by all threads together.
double bandwidth(int threads, double seconds) {
  const std::vector<char> from(std::size_t{128} << 20, 1);
  std::vector<char> to(from.size());
  const std::size_t part = from.size() / static_cast<std::size_t>(threads);
  const double t = time_of(
      [&] {
        std::vector<std::thread> others;
        others.reserve(static_cast<std::size_t>(threads));
        for (std::size_t i = 0; i < static_cast<std::size_t>(threads); ++i)
          others.emplace_back(
              [&, i] { std::memcpy(to.data() + i * part, from.data() + i * part, part); });
        for (std::thread& other : others) other.join();
      },
      seconds);
  return 2.0 * static_cast<double>(from.size()) / t;
}

Result<std::vector<Measured>> measure(const Context& context, const FloatGemm& gemm,
                                      const Options& o, Shape2 shape, double bytes_per_second) {
  const std::int64_t n = shape.first, k = shape.second;
  const Stream stream = context.stream();
  std::mt19937 rng(1);
  std::vector<std::int8_t> q(static_cast<std::size_t>(n * k));
  for (auto& v : q) v = static_cast<std::int8_t>(rng() >> 24U);
  std::vector<float> w(q.begin(), q.end());
  const std::vector<float> scales(static_cast<std::size_t>(n), 0.01F);
  const auto packed = pack(stream, TensorRef(q, {n, k}));
  if (!packed) return packed.error();
  std::vector<Measured> out;
  for (const std::int64_t m : o.rows) {
    std::vector<float> x(static_cast<std::size_t>(m * k), 0.5F);
    for (std::size_t i = 0; i < x.size(); i += 7) x[i] = static_cast<float>(rng() % 100);
    std::vector<float> y(static_cast<std::size_t>(m * n));
    const auto plan =
        QuantizedLinearPlan::select(stream, {.m = m, .n = n, .k = k, .packed_weight = true});
    if (!plan) return plan.error();
    const WorkspaceBuffer workspace(plan->workspace_size());
    Measured measured{m, 0, 0, 0};
    Status status;
    measured.int8_seconds = time_of(
        [&] {
          status = plan->run(stream, workspace,
                             {.input = TensorRef(x, {m, k}),
                              .weight = *packed,
                              .weight_scales = scales,
                              .output = TensorMut(y, {m, n})});
        },
        o.seconds);
    if (!status) return status.error();
    if (!gemm.library().empty())
      measured.float_seconds =
          time_of([&] { gemm.run(m, n, k, x.data(), w.data(), y.data()); }, o.seconds);
    measured.limit_seconds = static_cast<double>(n * k + 4 * m * (n + k)) / bytes_per_second;
    out.push_back(measured);
  }
  return out;
}

std::string milliseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.4g}", 1e3 * seconds) : "-";
}

std::string crossover(const std::vector<Measured>& all) {
  std::string slower;
  for (const Measured& m : all)
    if (m.float_seconds > 0 && m.int8_seconds > m.float_seconds)
      slower += fmt::format("{}{}", slower.empty() ? "" : ", ", m.m);
  return slower.empty() ? "int8 is faster for every m measured"
                        : "float is faster for m = " + slower;
}

void print(const std::vector<Measured>& all, Shape2 shape, bool has_float) {
  fmt::print("\n[{} x {}]\n", shape.first, shape.second);
  Table table({"m", "float ms", "int8 ms", "float / int8", "limit ms", "of limit"},
              {true, true, true, true, true, true});
  for (const Measured& m : all)
    table.add({std::to_string(m.m), milliseconds(m.float_seconds), milliseconds(m.int8_seconds),
               has_float ? fmt::format("{:.2f}", m.float_seconds / m.int8_seconds) : "-",
               milliseconds(m.limit_seconds),
               fmt::format("{:.2f}", m.limit_seconds / m.int8_seconds)});
  table.print();
  if (has_float) fmt::print("{}\n", crossover(all));
}

Result<std::set<Shape2>> shapes_of(const Options& o) {
  std::set<Shape2> shapes;
  for (const std::string& text : o.shapes) {
    long long n = 0, k = 0;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%lldx%lld%c", &n, &k, &rest) != 2 || n < 1 || k < 1 ||
        n > (1LL << 24) || k > (1LL << 24))
      return Error(ErrorCode::invalid_problem, "shape",
                   fmt::format("shape: expected OUTxIN, such as 4096x4096, got {}", text));
    shapes.emplace(n, k);
  }
  if (!o.path.empty()) {
    const auto checkpoint = Checkpoint::open(o.path);
    if (!checkpoint) return checkpoint.error();
    for (const LinearLayer& layer : checkpoint->layers()) shapes.emplace(layer.n, layer.k);
  }
  if (shapes.empty())
    return Error(ErrorCode::invalid_problem, "shape",
                 "shape: expected a checkpoint with layers, or --shape OUTxIN");
  return shapes;
}

int run(const Context& context, const Options& o) {
  const auto shapes = shapes_of(o);
  if (!shapes) return fail(shapes.error());
  const FloatGemm gemm(context.threads);
  const double rate = bandwidth(context.stream().threads(), o.seconds);
  const std::string library = gemm.library().empty() ? "none found" : gemm.library();
  if (!o.json)
    fmt::print("{} threads; float products by {}; the limit is memory at {}/s\n",
               context.stream().threads(), library, human_bytes(static_cast<std::uint64_t>(rate)));
  Json json{{"threads", context.stream().threads()},
            {"float_library", library},
            {"bytes_per_second", rate},
            {"layers", Json::array()}};
  for (const Shape2& shape : *shapes) {
    const auto measured = measure(context, gemm, o, shape, rate);
    if (!measured) return fail(measured.error());
    if (!o.json) {
      print(*measured, shape, !gemm.library().empty());
      continue;
    }
    Json rows = Json::array();
    for (const Measured& m : *measured)
      rows.push_back({{"m", m.m},
                      {"float_seconds", m.float_seconds > 0 ? Json(m.float_seconds) : Json()},
                      {"int8_seconds", m.int8_seconds},
                      {"limit_seconds", m.limit_seconds}});
    json["layers"].push_back({{"out", shape.first}, {"in", shape.second}, {"rows", rows}});
  }
  if (o.json) fmt::print("{}\n", json.dump(2));
  return exit_ok;
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("bench", "Time linear layers: float, int8 and the limit");
  auto o = std::make_shared<Options>();
  command->add_option("path", o->path, "A checkpoint, whose layers are measured");
  command->add_option("--shape", o->shapes, "OUTxIN, instead or as well");
  command->add_option("--rows", o->rows, "Rows of activations")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--seconds", o->seconds, "The time for each figure")->capture_default_str();
  command->add_flag("--json", o->json, "For programs");
  command->callback([&context, o] { context.run = [&context, o] { return run(context, *o); }; });
}

}  // namespace octavo::cli
