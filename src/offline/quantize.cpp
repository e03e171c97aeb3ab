// Writing a quantized checkpoint: scales, shards, and the files around them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.hpp"
#include "octavo/checkpoint.hpp"
#include "octavo/version.h"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/output.hpp"
#include "offline/run_directory.hpp"

namespace octavo {

using namespace offline;
namespace fs = std::filesystem;

namespace {

// Names a run by all that its result depends on, so that only the same one is taken up again.
std::string fingerprint(const QuantizePlan& plan) {
  const QuantizeOptions& o = plan.options;
  std::string text = fmt::format("octavo quantize {}\nsmooth {} alpha {}\n", OCTAVO_VERSION,
                                 o.smooth, o.alpha ? fmt::format("{}", *o.alpha) : "auto");
  for (const PlannedLayer& planned : plan.layers)
    text += fmt::format("layer {} {}\n", planned.layer.name, to_string(planned.form));
  // It says how weights are stored.
  text += fmt::format("config {:x}\n", std::hash<std::string>()(plan.checkpoint->config()));
  if (o.statistics != nullptr)
    for (const auto& [layer, s] : o.statistics->layers())
      text += fmt::format("statistics {} {:x} {:x}\n", layer, row_hash(s.absmax()),
                          row_hash(s.sample()));
  for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
    text += fmt::format("file {} {} {}\n", file.path(), file.size(), file.stamp().modified);
  return text;
}

// Adds up what threads report, and tells one caller at a time.
class Meter {
 public:
  Meter(const ProgressCallback& callback, std::uint64_t total)
      : callback_(callback),
        total_(total) {}
  void add(std::uint64_t bytes, std::string_view what) {
    if (!callback_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    callback_({done_, total_, what});
  }

 private:
  const ProgressCallback& callback_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  std::uint64_t total_;
};

std::string file_name(const SafetensorsFile& file) {
  return fs::path(file.path()).filename().string();
}

Status write_index(const QuantizePlan& plan, const OutputIndex& outputs,
                   const fs::path& directory) {
  std::map<std::string, std::string> sorted;
  std::uint64_t total = 0;
  for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
    for (const OutputTensor& t : outputs.tensors_of(file)) {
      sorted.emplace(t.spec.name, file_name(file));
      total += t.bytes();
    }
  nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", sorted}};
  return write_file(directory / index_name, index.dump(2) + "\n");
}

Status write_smoothing(const QuantizePlan& plan, const ResolvedScales& scales,
                       const fs::path& directory) {
  std::vector<StoredTensorSpec> specs;
  StoredMetadata metadata{{"octavo.smoothing", "absmax"}};
  for (std::size_t i = 0; i < plan.pairs.size(); ++i) {
    const std::string& norm = plan.pairs[i].names.norm;
    specs.push_back({norm + ".smoothing_scale", StoredType::F32, {scales.smoothing[i].size()}});
    metadata["alpha " + norm] = fmt::format("{}", scales.alphas[i]);
  }
  auto writer =
      SafetensorsWriter::create(directory / smoothing_file_name, std::move(specs), metadata);
  if (!writer) return writer.error();
  for (std::size_t i = 0; i < plan.pairs.size(); ++i)
    if (Status s = writer->write(plan.pairs[i].names.norm + ".smoothing_scale",
                                 std::as_bytes(std::span(scales.smoothing[i])));
        !s)
      return s;
  return writer->finish();
}

// Everything but the shards.
Status write_rest(const QuantizePlan& plan, const OutputIndex& outputs,
                  const ResolvedScales& scales, const fs::path& directory,
                  const std::vector<std::string>& shards, QuantizeReport& report) {
  const Checkpoint& source = *plan.checkpoint;
  std::error_code error;
  if (fs::is_directory(source.path(), error) || source.tensors().indexed()) {
    auto carried = carry_over(source.tensors().directory(), directory, shards);
    if (!carried) return carried.error();
    report.skipped = std::move(carried->skipped);
    report.links = std::move(carried->links);
  }
  if (source.tensors().indexed() || source.tensors().files().size() > 1)
    if (Status s = write_index(plan, outputs, directory); !s) return s;
  if (!plan.pairs.empty())
    if (Status s = write_smoothing(plan, scales, directory); !s) return s;
  const auto config = quantized_config(plan);
  if (!config) return config.error();
  return write_file(directory / config_name, *config);
}

// Layers in files that an earlier run had finished were not measured on the way.
Status measure_kept(const Stream& stream, const QuantizePlan& plan, const ResolvedScales& scales,
                    const fs::path& directory, std::vector<LayerError>& measured) {
  if (!plan.measured) return {};
  std::set<std::string> known;
  for (const LayerError& e : measured) known.insert(e.name);
  std::map<const SafetensorsFile*, SafetensorsSet> opened;
  for (const PlannedLayer& planned : plan.layers) {
    if (known.contains(planned.layer.name)) continue;
    const SafetensorsFile* source =
        plan.checkpoint->tensors().find(planned.layer.name + ".weight").file;
    auto written = opened.find(source);
    if (written == opened.end()) {
      auto file = SafetensorsSet::open(directory / file_name(*source));
      if (!file) return file.error();
      written = opened.emplace(source, *std::move(file)).first;
    }
    const auto stored = StoredLayer::open(written->second, planned.layer, planned.form);
    if (!stored) return stored.error();
    auto error = measure_stored(stream, probe_of(plan, scales, planned),
                                weight_view(plan.checkpoint->tensors(), planned.layer), *stored);
    if (!error) return error.error();
    measured.push_back(*std::move(error));
  }
  return {};
}

// Neither the result nor the directory it grows in may be the input or lie in it: files that are
// carried over would meet themselves, and what an old run left is removed.
Status check_out(const QuantizePlan& plan, const fs::path& out) {
  std::error_code error;
  const fs::path in = fs::weakly_canonical(plan.checkpoint->tensors().directory(), error);
  fs::path to = fs::weakly_canonical(fs::absolute(out), error);
  if (!to.has_filename()) to = to.parent_path();
  for (const fs::path& made : {to, fs::weakly_canonical(partial_path(to), error)})
    if (is_inside(made, in))
      return detail::invalid(
          "out", fmt::format("expected a directory outside the input's, {}, got {}", in.string(),
                             out.string()));
  return {};
}

}  // namespace

Result<QuantizeReport> quantize(const Stream& stream, const QuantizePlan& plan, const fs::path& out,
                                const ProgressCallback& progress) {
  return guarded(out.string(), [&]() -> Result<QuantizeReport> {
    if (out.empty()) return detail::invalid("out", "expected a directory, got nothing");
    if (Status s = check_out(plan, out); !s) return s.error();
    std::vector<std::string> shards;
    for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
      shards.push_back(file_name(file));
    if (Status s = check_shard_names(shards); !s) return s.error();
    auto run = RunDirectory::open(out, fingerprint(plan), shards);
    if (!run) return run.error();
    const auto scales = resolve_scales(stream, plan, progress);
    if (!scales) return scales.error();
    QuantizeReport report;
    report.alphas = scales->alphas;
    report.alpha_errors = scales->errors;
    std::uint64_t total = 0;
    for (const SafetensorsFile& file : plan.checkpoint->tensors().files())
      for (const StoredTensor& t : file.tensors()) total += t.size();
    Meter meter(progress, total);
    const OutputIndex outputs(plan);
    std::mutex mutex;
    const auto measured = [&](LayerError error) {
      const std::lock_guard lock(mutex);
      report.measured.layers.push_back(std::move(error));
    };
    std::vector<ShardJob> jobs;
    jobs.reserve(plan.checkpoint->tensors().files().size());
    for (const SafetensorsFile& file : plan.checkpoint->tensors().files()) {
      const std::string shard = file_name(file);
      jobs.push_back({&plan, &outputs, &*scales, &file, run->path() / shard,
                      [&meter, shard](std::uint64_t bytes) { meter.add(bytes, shard); }, measured});
    }
    const auto kept = write_shards(stream, jobs);
    if (!kept) return kept.error();
    report.shards_kept = *kept;
    for (const ShardJob& job : jobs) report.bytes_written += fs::file_size(job.to);
    if (Status s = measure_kept(stream, plan, *scales, run->path(), report.measured.layers); !s)
      return s.error();
    complete(*plan.checkpoint, report.measured);
    if (Status s = write_rest(plan, outputs, *scales, run->path(), shards, report); !s)
      return s.error();
    if (Status s = plan.checkpoint->unchanged(); !s) return s.error();
    if (Status s = run->finish(); !s) return s.error();
    return report;
  });
}

}  // namespace octavo
