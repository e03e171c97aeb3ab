// octavo inspect: what a checkpoint holds, and what could be done with it.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "octavo/checkpoint.hpp"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const Checkpoint& c) {
  Json out{{"path", c.path().string()},
           {"bytes", c.bytes()},
           {"architecture", c.pairs().architecture},
           {"quantized", c.is_quantized()}};
  for (const SafetensorsFile& file : c.tensors().files()) {
    Json tensors = Json::array();
    for (const StoredTensor& t : file.tensors())
      tensors.push_back(
          {{"name", t.name}, {"dtype", name(t.type)}, {"shape", t.shape}, {"bytes", t.size()}});
    out["files"].push_back({{"path", file.path()},
                            {"bytes", file.size()},
                            {"metadata", file.metadata()},
                            {"tensors", tensors}});
  }
  out["layers"] = Json::array();
  for (const LinearLayer& l : c.layers())
    out["layers"].push_back({{"name", l.name},
                             {"dtype", name(l.type)},
                             {"out", l.n},
                             {"in", l.k},
                             {"transposed", l.transposed}});
  out["kept"] = Json::array();
  for (const KeptTensor& k : c.kept())
    out["kept"].push_back({{"name", k.name}, {"reason", k.reason}});
  out["pairs"] = Json::array();
  for (const SmoothingPair& p : c.pairs().pairs)
    out["pairs"].push_back({{"norm", p.norm}, {"linears", p.linears}});
  out["pairs_note"] = c.pairs().note;
  return out;
}

void print_files(const Checkpoint& c) {
  Table table({"file", "tensors", "size"}, {false, true, true});
  for (const SafetensorsFile& file : c.tensors().files())
    table.add({std::filesystem::path(file.path()).filename().string(),
               std::to_string(file.tensors().size()), human_bytes(file.size())});
  table.print();
}

void print_types(const Checkpoint& c) {
  std::map<std::string_view, std::pair<std::uint64_t, std::uint64_t>> types;
  for (const SafetensorsFile& file : c.tensors().files())
    for (const StoredTensor& t : file.tensors()) {
      ++types[name(t.type)].first;
      types[name(t.type)].second += t.size();
    }
  Table table({"type", "tensors", "size"}, {false, true, true});
  for (const auto& [type, sum] : types)
    table.add({std::string(type), std::to_string(sum.first), human_bytes(sum.second)});
  table.print();
}

void print_tensors(const Checkpoint& c) {
  Table table({"tensor", "type", "shape", "size"}, {false, false, false, true});
  for (const SafetensorsFile& file : c.tensors().files())
    for (const StoredTensor& t : file.tensors())
      table.add({t.name, std::string(name(t.type)), fmt::format("[{}]", fmt::join(t.shape, ", ")),
                 human_bytes(t.size())});
  table.sort();
  table.print();
}

void print(const Checkpoint& c, bool tensors) {
  fmt::print("{}: {}, architecture {}{}\n\n", printable(c.path().string()), human_bytes(c.bytes()),
             c.pairs().architecture, c.is_quantized() ? ", quantized" : "");
  print_files(c);
  fmt::print("\n");
  print_types(c);
  if (tensors) {
    fmt::print("\n");
    print_tensors(c);
  }
  fmt::print("\n{} layers can be quantized\n", c.layers().size());
  Table layers({"layer", "type", "out", "in", ""}, {false, false, true, true, false});
  for (const LinearLayer& l : c.layers())
    layers.add({l.name, std::string(name(l.type)), std::to_string(l.n), std::to_string(l.k),
                l.transposed ? "stored [in, out]" : ""});
  layers.sort();
  if (!c.layers().empty()) layers.print();
  fmt::print("\n{} smoothing pairs{}\n", c.pairs().pairs.size(),
             c.pairs().note.empty() ? "" : ": " + printable(c.pairs().note));
  Table pairs({"norm", "read by"});
  for (const SmoothingPair& p : c.pairs().pairs) {
    // Names without the part that they share with the norm.
    const std::string block = p.norm.substr(0, p.norm.rfind('.') + 1);
    std::vector<std::string> linears;
    linears.reserve(p.linears.size());
    for (const std::string& l : p.linears)
      linears.push_back(l.starts_with(block) ? l.substr(block.size()) : l);
    pairs.add({p.norm, fmt::format("{}", fmt::join(linears, " "))});
  }
  pairs.sort();
  if (!c.pairs().pairs.empty()) pairs.print();
  fmt::print("\n{} other tensors of two or more dimensions stay as they are\n", c.kept().size());
  Table kept({"tensor", "why"});
  for (const KeptTensor& k : c.kept()) kept.add({k.name, k.reason});
  kept.sort();
  if (!c.kept().empty()) kept.print();
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  struct Options {
    std::string path;
    bool json = false;
    bool tensors = false;
  };
  CLI::App* command =
      app.add_subcommand("inspect", "Tensors, layers and smoothing pairs of a checkpoint");
  auto o = std::make_shared<Options>();
  command->add_option("path", o->path, "A safetensors file, a directory of them, or an index")
      ->required();
  command->add_flag("--json", o->json, "For programs");
  command->add_flag("--tensors", o->tensors, "List every tensor");
  command->callback([&context, o] {
    context.run = [o] {
      const auto checkpoint = Checkpoint::open(o->path);
      if (!checkpoint) return fail(checkpoint.error());
      if (o->json)
        print_json(as_json(*checkpoint));
      else
        print(*checkpoint, o->tensors);
      return static_cast<int>(exit_ok);
    };
  });
}

}  // namespace octavo::cli
