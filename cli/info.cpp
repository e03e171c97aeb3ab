// octavo info: this machine, as the library sees it.
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "octavo/quantize.hpp"
#include "octavo/quantized_linear.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

int info(const Context& context, bool json) {
  const Stream stream = context.stream();
  const auto elementwise = QuantizePerTensorPlan::select(stream, {.numel = 1});
  if (!elementwise) return fail(elementwise.error());
  const auto linear = QuantizedLinearPlan::select(stream, {.m = 1, .n = 1, .k = 1});
  if (!linear) return fail(linear.error());
  Json targets = Json::array();
  for (const Target target : available_targets()) targets.push_back(name(target));
  const Json out{
      {"version", OCTAVO_VERSION},
      {"cpu", cpu_name()},
      {"threads", stream.threads()},
      {"backends", {name(Backend::cpu)}},
      {"targets", targets},
      {"chosen",
       {{"elementwise", name(elementwise->sku().target)}, {"linear", name(linear->sku().target)}}}};
  if (json) {
    print_json(out);
    return exit_ok;
  }
  std::string found;
  for (const auto& target : targets)
    found += (found.empty() ? "" : ", ") + target.get<std::string>();
  Table table({"octavo", OCTAVO_VERSION});
  table.add({"CPU", cpu_name()});
  table.add({"threads", std::to_string(stream.threads())});
  table.add({"backends", std::string(name(Backend::cpu))});
  table.add({"targets", found});
  table.add({"chosen", fmt::format("{} for elementwise operations, {} for linear layers",
                                   name(elementwise->sku().target), name(linear->sku().target))});
  table.print();
  return exit_ok;
}

}  // namespace

void add_info(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("info", "Version, CPU, targets, threads and backends");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "For programs");
  command->callback(
      [&context, json] { context.run = [&context, json] { return info(context, *json); }; });
}

}  // namespace octavo::cli
