// octavo report: what verify measures, and what the weights look like, as one HTML page.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/names.hpp"
#include "cli/report_page.hpp"
#include "cli/table.hpp"
#include "cli/verdict.hpp"
#include "core/check.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"

namespace octavo::cli {
namespace {

struct Options {
  ComparisonOptions checkpoints;
  std::optional<double> max_error;
  std::string out = "report.html";
};

// How often each integer occurs. (The rest of a packed row's last word is none.)
std::vector<std::uint64_t> count_values(const SafetensorsSet& tensors, const LayerError& layer) {
  const bool int4 = weight_bits(layer.scheme) == 4;
  std::vector<std::uint64_t> counts(int4 ? 16 : 256, 0);
  const auto packed = tensors.find(layer.name + ".weight_packed");
  if (!packed) {
    const auto weight = tensors.find(layer.name + ".weight");
    for (const std::byte b : weight.file->bytes(*weight.tensor))
      ++counts[static_cast<std::size_t>(b ^ std::byte{128})];
    return counts;
  }
  const auto bytes = packed.file->bytes(*packed.tensor);
  const std::size_t row = bytes.size() / static_cast<std::size_t>(layer.n);
  for (std::size_t start = 0; start < bytes.size(); start += row)
    for (std::size_t i = 0; i < static_cast<std::size_t>(layer.k); ++i) {
      const auto b = std::to_integer<unsigned>(bytes[start + (int4 ? i / 2 : i)]);
      ++counts[int4 ? b >> (i % 2 * 4) & 15U : b];
    }
  return counts;
}

template <class T>
void append(std::span<const std::byte> bytes, std::vector<double>& out) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, &bytes[at], sizeof(T));
    if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
      out.push_back(double{to_float(value)});
    else
      out.push_back(static_cast<double>(value));
  }
}

std::vector<double> scales_of(const SafetensorsSet& tensors, const std::string& layer) {
  std::vector<double> out;
  const auto entry = tensors.find(layer + ".weight_scale");
  const auto bytes = entry.file->bytes(*entry.tensor);
  if (entry.tensor->type == StoredType::F64) append<double>(bytes, out);
  if (entry.tensor->type == StoredType::F32) append<float>(bytes, out);
  if (entry.tensor->type == StoredType::F16) append<f16>(bytes, out);
  if (entry.tensor->type == StoredType::BF16) append<bf16>(bytes, out);
  return out;
}

// Channels of each pair, from the statistics and the scales beside the quantized checkpoint.
Result<std::vector<OutlierPicture>> outliers(const Checkpoint& original,
                                             const Checkpoint& quantized,
                                             const Statistics& statistics) {
  std::vector<OutlierPicture> out;
  const auto scales = offline::read_smoothing(quantized.tensors().directory());
  if (!scales) return scales.error();
  for (const SmoothingPair& pair : original.pairs().pairs) {
    const LayerStatistics* s = statistics.find(pair.linears.front());
    if (s == nullptr) continue;
    OutlierPicture picture{pair.norm, s->absmax(), {}};
    if (const auto by = scales->find(pair.norm);
        by != scales->end() && by->second.size() == picture.before.size())
      for (std::size_t j = 0; j < by->second.size(); ++j)
        picture.after.push_back(picture.before[j] / by->second[j]);
    out.push_back(std::move(picture));
  }
  return out;
}

// Whether a path names a pipe, a terminal or the like, or a stream of this process: there the page
// is written as it is. A file is replaced.
bool is_stream(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const auto directory = std::filesystem::canonical(path.parent_path(), error);
  return (exists(status) && !is_regular_file(status)) || directory == "/dev" ||
         offline::is_inside(directory, "/proc");
}

Status write_page(const std::filesystem::path& path, const std::string& page) {
  if (!is_stream(path)) {
    // A link stays one.
    std::error_code error;
    const auto target = std::filesystem::canonical(path, error);
    return offline::write_file(error ? path : target, page);
  }
  std::ofstream out(path, std::ios::binary | std::ios::app);
  out << page;
  out.close();
  return out.good() ? Status() : offline::system_error(path.string(), "write", errno);
}

int run(const Context& context, const Options& o) {
  const auto compared = compare(context, o.checkpoints);
  if (!compared) return fail(compared.error());
  const auto& [original, quantized, statistics, report] = *compared;
  for (const Checkpoint* checkpoint : {&original, &quantized})
    for (const SafetensorsFile& file : checkpoint->tensors().files())
      if (std::error_code error; std::filesystem::equivalent(file.path(), o.out, error))
        return fail(detail::invalid(
            "out", fmt::format("expected another file than the weights, got {}", o.out)));
  ReportData data{o.checkpoints.original,
                  o.checkpoints.quantized,
                  original.bytes(),
                  quantized.bytes(),
                  report,
                  {},
                  {},
                  {}};
  std::vector<LayerError>& layers = data.report.layers;
  std::sort(layers.begin(), layers.end(),
            [](const auto& a, const auto& b) { return natural_less(a.name, b.name); });
  data.verdict = judge(data.report, o.max_error);
  for (const LayerError& e : layers)
    data.weights.push_back(
        {count_values(quantized.tensors(), e), scales_of(quantized.tensors(), e.name)});
  if (statistics) {
    auto found = outliers(original, quantized, *statistics);
    if (!found) return fail(found.error());
    data.outliers = *std::move(found);
    std::sort(data.outliers.begin(), data.outliers.end(),
              [](const auto& a, const auto& b) { return natural_less(a.norm, b.norm); });
  }
  if (const Status s = write_page(o.out, report_page(data)); !s) return fail(s.error());
  if (!is_stream(o.out)) {
    fmt::print("{}\n", printable(o.out));
    conclude(data.verdict);
  }
  return exit_ok;  // the page is what was asked for
}

}  // namespace

void add_report(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("report", "The same as a page with charts, in one HTML file");
  auto o = std::make_shared<Options>();
  add_comparison_options(*command, o->checkpoints,
                         "Statistics: errors of outputs, and outlier channels before and after");
  add_max_error(*command, o->max_error, "what is above it is marked");
  command->add_option("-o,--out", o->out, "The file to write")->capture_default_str();
  command->callback([&context, o] { context.run = [&context, o] { return run(context, *o); }; });
}

}  // namespace octavo::cli
