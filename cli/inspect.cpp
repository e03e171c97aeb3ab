// octavo inspect: what a checkpoint holds, and what could be done with it.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

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
  if (!c.is_quantized()) return out;
  const auto layers = quantized_layers(c);
  if (!layers) {
    out["quantized_note"] = layers.error().message();
    return out;
  }
  out["quantized_layers"] = Json::array();
  for (const QuantizedLayer& l : *layers)
    out["quantized_layers"].push_back({{"name", l.name},
                                       {"scheme", name(l.form.scheme)},
                                       {"group_size", l.form.group_size},
                                       {"asymmetric", l.form.asymmetric},
                                       {"out", l.n},
                                       {"in", l.k},
                                       {"bits", l.bits}});
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

// The layers of a quantized checkpoint, and the names of all that is stored of them.
std::set<std::string> print_quantized(const Checkpoint& c) {
  std::set<std::string> parts;
  const auto layers = quantized_layers(c);
  if (!layers) {
    fmt::print("\nits layers are not known: {}\n", printable(layers.error().message()));
    return parts;
  }
  double bits = 0, weights = 0;
  Table table({"layer", "scheme", "out", "in", "bits per weight"},
              {false, false, true, true, true});
  for (const QuantizedLayer& l : *layers) {
    table.add({l.name, to_string(l.form), std::to_string(l.n), std::to_string(l.k),
               fmt::format("{:.3g}", l.bits)});
    bits += l.bits * static_cast<double>(l.n) * static_cast<double>(l.k);
    weights += static_cast<double>(l.n) * static_cast<double>(l.k);
    for (const char* end : {".weight", ".weight_packed", ".weight_scale", ".weight_zero_point"})
      parts.insert(l.name + end);
  }
  table.sort();
  fmt::print("\n{} layers are quantized{}\n", layers->size(),
             weights > 0 ? fmt::format(", {:.3g} bits per weight", bits / weights) : "");
  if (!layers->empty()) table.print();
  return parts;
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
  const std::set<std::string> parts =
      c.is_quantized() ? print_quantized(c) : std::set<std::string>();
  fmt::print("\n{} layers {}\n", c.layers().size(),
             c.is_quantized() ? "are float" : "can be quantized");
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
  Table kept({"tensor", "why"});
  std::size_t others = 0;
  for (const KeptTensor& k : c.kept()) {
    if (parts.contains(k.name)) continue;
    kept.add({k.name, k.reason});
    ++others;
  }
  fmt::print("\n{} other tensors of two or more dimensions stay as they are\n", others);
  kept.sort();
  if (others > 0) kept.print();
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
