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

// A device, in words; or why there is none.
struct Devices {
  Json list = Json::array();
  std::string words;
  bool any = false;  // that streams can be made of
};
Devices find_devices() {
  Devices found;
  const auto devices = cuda_devices();
  if (!devices) {
    found.words = devices.error().message();
    found.words.erase(0, devices.error().argument().size() + 2);
    return found;
  }
  for (const CudaDevice& device : *devices) {
    const std::string capability = fmt::format("{}.{}", device.compute_major, device.compute_minor);
    const bool usable = device.compute_major >= 8;
    found.any = found.any || usable;
    found.list.push_back({{"name", device.name},
                          {"compute_capability", capability},
                          {"bytes", device.bytes},
                          {"usable", usable}});
    found.words +=
        fmt::format("{}{} (compute capability {}{}, {:.1f} GiB)", found.words.empty() ? "" : ", ",
                    device.name, capability, usable ? "" : ": too old, 8.0 is needed",
                    static_cast<double>(device.bytes) / double{1 << 30});
  }
  if (devices->empty()) found.words = "there is no CUDA device: the driver finds none";
  return found;
}

int info(const Context& context, bool json) {
  const Stream stream = context.stream();
  const auto elementwise = QuantizePerTensorPlan::select(stream, {.numel = 1});
  if (!elementwise) return fail(elementwise.error());
  const auto linear = QuantizedLinearPlan::select(stream, {.m = 1, .n = 1, .k = 1});
  if (!linear) return fail(linear.error());
  Json targets = Json::array();
  for (const Target target : available_targets()) targets.push_back(name(target));
  const Devices devices = find_devices();
  Json backends = {name(Backend::cpu)};
  if (devices.any) backends.push_back(name(Backend::cuda));
  const Json out{
      {"version", OCTAVO_VERSION},
      {"cpu", cpu_name()},
      {"threads", stream.threads()},
      {"backends", backends},
      {"targets", targets},
      {"cuda_devices", devices.list},
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
  table.add({"backends", devices.any ? "cpu, cuda" : "cpu"});
  table.add({"targets", found});
  table.add({"CUDA devices", devices.words});
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
