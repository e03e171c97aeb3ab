// Statistics as a safetensors file.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "octavo/safetensors.hpp"
#include "octavo/statistics.hpp"
#include "offline/files.hpp"
#include "offline/safetensors_header.hpp"
#include "offline/statistics_access.hpp"

namespace octavo {

using namespace offline;

namespace {

constexpr const char* sample_key = "octavo.stats.sample_rows";
constexpr std::string_view suffixes[] = {".input_absmax", ".input_min",  ".input_max",
                                         ".count",        ".input_hist", ".input_sample"};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// One tensor of the file, of the type and shape it must have.
template <class T>
Result<std::vector<T>> read_tensor(const SafetensorsFile& file, const std::string& name,
                                   StoredType type, std::size_t rank) {
  const StoredTensor* t = file.find(name);
  if (t == nullptr) return bad_tensor(file.path(), name, "expected this tensor, got none");
  if (t->type != type || t->shape.size() != rank)
    return bad_tensor(file.path(), name,
                      fmt::format("expected {} with {} dimensions, got {} {}", octavo::name(type),
                                  rank, octavo::name(t->type), to_string(t->shape)));
  std::vector<T> values(t->size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), file.bytes(*t).data(), t->size());
  return values;
}

Result<std::vector<float>> read_channels(const SafetensorsFile& file, const std::string& name,
                                         std::size_t channels, float low, float high) {
  auto values = read_tensor<float>(file, name, StoredType::F32, 1);
  if (!values) return values;
  if (values->size() != channels)
    return bad_tensor(file.path(), name,
                      fmt::format("expected {} channels, got {}", channels, values->size()));
  for (std::size_t i = 0; i < values->size(); ++i)
    if (const float x = (*values)[i]; !std::isfinite(x) || x < low || x > high)
      return bad_tensor(file.path(), name,
                        fmt::format("expected finite extremes, absmax of 0 or more, got {} in "
                                    "channel {}",
                                    x, i));
  return values;
}

Status read_histogram(const SafetensorsFile& file, const std::string& name, LayerParts& parts) {
  auto counts = read_tensor<std::int64_t>(file, name, StoredType::I64, 1);
  if (!counts) return counts.error();
  const std::size_t bins = counts->size();
  if (!std::has_single_bit(bins) || bins < 512 || bins > 65536)
    return bad_tensor(file.path(), name,
                      fmt::format("expected 2^9 to 2^16 bins, a power of two, got {}", bins));
  if (std::any_of(counts->begin(), counts->end(), [](std::int64_t n) { return n < 0; }))
    return bad_tensor(file.path(), name, "expected counts of 0 or more, got a negative one");
  parts.histogram = *std::move(counts);
  parts.options.histogram_bits = std::countr_zero(bins) - 9;
  return {};
}

Status read_sample(const SafetensorsFile& file, const std::string& name, LayerParts& parts) {
  auto rows = read_tensor<float>(file, name, StoredType::F32, 2);
  if (!rows) return rows.error();
  const StoredTensor& t = *file.find(name);
  if (t.shape[1] != parts.absmax.size())
    return bad_tensor(
        file.path(), name,
        fmt::format("expected rows of {} channels, got {}", parts.absmax.size(), t.shape[1]));
  if (!std::all_of(rows->begin(), rows->end(), [](float x) { return std::isfinite(x); }))
    return bad_tensor(file.path(), name, "expected finite values, got others");
  if (t.shape[0] > (std::uint64_t{1} << 30))
    return bad_tensor(file.path(), name, "expected at most 2^30 rows, got more");
  parts.sample = *std::move(rows);
  parts.options.sample_rows = static_cast<std::int64_t>(t.shape[0]);
  return {};
}

Result<LayerParts> read_layer(const SafetensorsFile& file, const std::string& layer) {
  constexpr float most = std::numeric_limits<float>::max();
  LayerParts parts;
  const StoredTensor* first = file.find(layer + ".input_absmax");
  const std::size_t channels = first == nullptr ? 0 : first->size() / sizeof(float);
  const auto channel_values = [&](std::string_view suffix, float low, std::vector<float>& to) {
    auto values = read_channels(file, layer + std::string(suffix), channels, low, most);
    if (!values) return Status(values.error());
    to = *std::move(values);
    return Status();
  };
  if (Status s = channel_values(suffixes[0], 0, parts.absmax); !s) return s.error();
  if (Status s = channel_values(suffixes[1], -most, parts.min); !s) return s.error();
  if (Status s = channel_values(suffixes[2], -most, parts.max); !s) return s.error();
  const auto count = read_tensor<std::int64_t>(file, layer + ".count", StoredType::I64, 1);
  if (!count) return count.error();
  if (count->size() != 1 || count->front() < 0)
    return bad_tensor(file.path(), layer + ".count", "expected one number of 0 or more");
  parts.count = count->front();
  if (file.find(layer + ".input_hist") != nullptr)
    if (Status s = read_histogram(file, layer + ".input_hist", parts); !s) return s.error();
  if (file.find(layer + ".input_sample") != nullptr)
    if (Status s = read_sample(file, layer + ".input_sample", parts); !s) return s.error();
  return parts;
}

Result<std::set<std::string>> layer_names(const SafetensorsFile& file) {
  std::set<std::string> layers;
  for (const StoredTensor& t : file.tensors()) {
    const auto* const suffix = std::find_if(std::begin(suffixes), std::end(suffixes),
                                            [&](auto s) { return t.name.ends_with(s); });
    if (suffix == std::end(suffixes))
      return bad_tensor(file.path(), t.name,
                        "expected a tensor of a statistics file: LAYER.input_absmax, .input_min, "
                        ".input_max, .count, .input_hist or .input_sample");
    layers.insert(t.name.substr(0, t.name.size() - suffix->size()));
  }
  return layers;
}

// How many rows a layer may have: what the writer said, or what is there.
Result<std::int64_t> sample_rows(const SafetensorsFile& file, std::int64_t present) {
  const auto found = file.metadata().find(sample_key);
  if (found == file.metadata().end()) return present;
  std::int64_t rows = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
  if (error != std::errc() || end != text.data() + text.size() || rows < present ||
      rows > (std::int64_t{1} << 30))
    return bad_file(file.path(),
                    fmt::format("expected {} in the metadata to be a number of at least {}, the "
                                "rows there are, got {}",
                                sample_key, present, in_quotes(text)));
  return rows;
}

}  // namespace

Result<Statistics> Statistics::read(const std::filesystem::path& path) {
  return guarded(path.string(), [&]() -> Result<Statistics> {
    const auto file = SafetensorsFile::open(path);
    if (!file) return file.error();
    const auto version = file->metadata().find(statistics_key);
    if (version == file->metadata().end() || version->second != "1")
      return bad_file(
          file->path(),
          fmt::format("expected a statistics file, with {} = \"1\" in its metadata, got "
                      "{}",
                      statistics_key,
                      version == file->metadata().end() ? "none" : in_quotes(version->second)));
    const auto names = layer_names(*file);
    if (!names) return names.error();
    std::map<std::string, LayerParts> all;
    StatisticsOptions options{0, names->empty() ? -1 : 7};
    for (const std::string& layer : *names) {
      auto parts = read_layer(*file, layer);
      if (!parts) return parts.error();
      options.sample_rows = std::max(options.sample_rows, parts->options.sample_rows);
      options.histogram_bits = std::min(options.histogram_bits, parts->options.histogram_bits);
      all.emplace(layer, *std::move(parts));
    }
    const auto most = sample_rows(*file, options.sample_rows);
    if (!most) return most.error();
    options.sample_rows = *most;
    Statistics statistics(options);
    for (auto& [layer, parts] : all) {
      parts.options.sample_rows = *most;
      statistics.layers_.emplace(layer, StatisticsAccess::assemble(std::move(parts), options));
    }
    return statistics;
  });
}

Status Statistics::write(const std::filesystem::path& path) const {
  return guarded(path.string(), [&]() -> Status {
    const Statistics now = *this;  // a copy: updates need not wait for the disk
    std::vector<StoredTensorSpec> specs;
    for (const auto& [layer, s] : now.layers_) {
      const auto channels = static_cast<std::uint64_t>(s.channels());
      for (const auto suffix : {suffixes[0], suffixes[1], suffixes[2]})
        specs.push_back({layer + std::string(suffix), StoredType::F32, {channels}});
      specs.push_back({layer + ".count", StoredType::I64, {1}});
      if (!s.histogram().empty())
        specs.push_back({layer + ".input_hist", StoredType::I64, {s.histogram().size()}});
      if (now.options_.sample_rows > 0)
        specs.push_back({layer + ".input_sample",
                         StoredType::F32,
                         {static_cast<std::uint64_t>(s.sample_count()), channels}});
    }
    StoredMetadata metadata{{statistics_key, "1"}};
    if (now.options_.sample_rows > 0)
      metadata[sample_key] = std::to_string(now.options_.sample_rows);
    auto writer = SafetensorsWriter::create(path, std::move(specs), metadata);
    if (!writer) return writer.error();
    for (const auto& [layer, s] : now.layers_) {
      const std::vector<std::int64_t> count{s.count()};
      Status status = writer->write(layer + ".input_absmax", bytes_of(s.absmax()));
      if (status) status = writer->write(layer + ".input_min", bytes_of(s.min()));
      if (status) status = writer->write(layer + ".input_max", bytes_of(s.max()));
      if (status) status = writer->write(layer + ".count", bytes_of(count));
      if (status && !s.histogram().empty())
        status = writer->write(layer + ".input_hist", bytes_of(s.histogram()));
      if (status && now.options_.sample_rows > 0)
        status = writer->write(layer + ".input_sample", bytes_of(s.sample()));
      if (!status) return status;
    }
    return writer->finish();
  });
}

}  // namespace octavo
