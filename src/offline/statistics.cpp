#include "octavo/statistics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "octavo/observer.hpp"
#include "offline/convert.hpp"
#include "offline/files.hpp"

namespace octavo {

using detail::invalid;
using namespace offline;

namespace {

// Rows whose hashes are held at once.
constexpr std::int64_t rows_at_once = 16384;

std::uint64_t begin_hash(std::uint64_t channels) { return 0x9E3779B97F4A7C15U ^ channels; }
std::uint64_t add_pair(std::uint64_t hash, float low, float high) {
  const std::uint64_t pair =
      std::bit_cast<std::uint32_t>(low) | std::uint64_t{std::bit_cast<std::uint32_t>(high)} << 32U;
  hash = (hash ^ pair) * 0xD6E8FEB86659FD93U;
  return hash ^ (hash >> 32U);
}
std::uint64_t end_hash(std::uint64_t hash) {
  hash ^= hash >> 29U;
  hash *= 0xBF58476D1CE4E5B9U;
  return hash ^ (hash >> 32U);
}

// Where a row of a tensor of any rank starts, in elements.
std::int64_t row_start(const TensorRef& t, std::int64_t row) {
  std::int64_t at = 0;
  for (int i = t.shape.rank() - 2; i >= 0; --i) {
    at += row % t.shape[i] * t.strides[i];
    row /= t.shape[i];
  }
  return at;
}

// The row as f32; false if a value is not finite.
template <class T>
bool load_row(const T* data, std::int64_t stride, std::span<float> out) {
  float worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(widen(data[static_cast<std::int64_t>(i) * stride]));
    worst = std::max(worst, std::fabs(out[i]));
    if (std::isnan(out[i])) return false;
  }
  return std::isfinite(worst);
}
bool load_row(const TensorRef& t, std::int64_t row, std::span<float> out) {
  const std::int64_t stride = t.strides[t.shape.rank() - 1];
  return with_float_type(t.dtype, [&]<class T>() {
    return load_row(static_cast<const T*>(t.data) + row_start(t, row), stride, out);
  });
}

float to_f32(double x) {
  constexpr double most = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -most, most));
}

template <class State>
Result<State> observe(const Stream& stream, const ObserverDescriptor& descriptor,
                      const TensorRef& rows) {
  const auto observer = Observer<State>::select(stream, descriptor);
  if (!observer) return observer.error();
  State state = observer->make_state();
  const WorkspaceBuffer workspace(observer->workspace_size());
  if (Status s = observer->run(stream, workspace, {.input = rows, .state = &state}); !s)
    return s.error();
  return state;
}

// As many leading bits of a float's pattern; bins of fewer bits are sums of neighbours.
void coarsen(std::vector<std::int64_t>& histogram, int from, int to) {
  if (to < 0) {
    histogram.clear();
    return;
  }
  const std::size_t factor = std::size_t{1} << static_cast<unsigned>(from - to);
  std::vector<std::int64_t> out(histogram.size() / factor);
  for (std::size_t i = 0; i < histogram.size(); ++i) out[i / factor] += histogram[i];
  histogram = std::move(out);
}

StatisticsOptions smaller(const StatisticsOptions& a, const StatisticsOptions& b) {
  return {std::min(a.sample_rows, b.sample_rows), std::min(a.histogram_bits, b.histogram_bits)};
}

}  // namespace

std::uint64_t row_hash(std::span<const float> row) noexcept {
  std::uint64_t hash = begin_hash(row.size());
  for (std::size_t i = 0; i < row.size(); i += 2)
    hash = add_pair(hash, row[i], i + 1 < row.size() ? row[i + 1] : 0.0F);
  return end_hash(hash);
}

Result<LayerStatistics> LayerStatistics::create(std::int64_t channels,
                                                const StatisticsOptions& options) {
  if (channels < 0 || channels > (std::int64_t{1} << 40))
    return invalid("channels", fmt::format("expected 0 to 2^40, got {}", channels));
  if (options.sample_rows < 0 || options.sample_rows > (std::int64_t{1} << 30))
    return invalid("sample_rows", fmt::format("expected 0 to 2^30, got {}", options.sample_rows));
  if (options.histogram_bits < -1 || options.histogram_bits > 7)
    return invalid("histogram_bits",
                   fmt::format("expected -1 to 7, got {}", options.histogram_bits));
  return guarded("channels", [&]() -> Result<LayerStatistics> {
    LayerStatistics layer;
    layer.options_ = options;
    for (std::vector<float>* v : {&layer.absmax_, &layer.min_, &layer.max_})
      v->assign(static_cast<std::size_t>(channels), 0.0F);
    if (options.histogram_bits >= 0)
      layer.histogram_.assign(std::size_t{1} << static_cast<unsigned>(9 + options.histogram_bits),
                              0);
    return layer;
  });
}

void LayerStatistics::keep(Row row) {
  const auto before = [](const Row& a, const Row& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    return std::lexicographical_compare(
        a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), [](float x, float y) {
          return std::bit_cast<std::uint32_t>(x) < std::bit_cast<std::uint32_t>(y);
        });
  };
  const auto at = std::lower_bound(sample_.begin(), sample_.end(), row, before);
  if (at != sample_.end() && !before(row, *at)) return;  // it is there already
  sample_.insert(at, std::move(row));
  if (sample_count() > options_.sample_rows) sample_.pop_back();
}

void LayerStatistics::reduce(const StatisticsOptions& options) {
  const StatisticsOptions to = smaller(options_, options);
  if (to.histogram_bits < options_.histogram_bits)
    coarsen(histogram_, options_.histogram_bits, to.histogram_bits);
  if (sample_count() > to.sample_rows) sample_.resize(static_cast<std::size_t>(to.sample_rows));
  options_ = to;
}

Status LayerStatistics::update(const Stream& stream, const TensorRef& rows) {
  if (rows.shape.rank() < 1 || rows.shape.rank() > max_rank ||
      rows.shape[rows.shape.rank() - 1] != channels())
    return invalid("rows", fmt::format("expected shape [..., {}], got {}", channels(),
                                       detail::to_string(rows.shape)));
  if (!is_float(rows.dtype))
    return detail::unsupported(
        "rows", fmt::format("expected f32, f64, f16 or bf16, got {}", name(rows.dtype)));
  const auto numel = detail::count_elements("rows", rows.shape);
  if (!numel) return numel.error();
  const std::int64_t n = channels() == 0 ? 0 : *numel / channels();
  return guarded("rows", [&]() -> Status {
    const auto extremes = observe<MinMaxState>(
        stream,
        {.input = rows.dtype, .scope = Layout::per_channel, .axis = -1, .channels = channels()},
        rows);
    if (!extremes) return extremes.error();
    if (options_.histogram_bits >= 0) {
      const auto counted = observe<HistogramState>(
          stream, {.input = rows.dtype, .histogram_bits = options_.histogram_bits}, rows);
      if (!counted) return counted.error();
      for (std::size_t i = 0; i < histogram_.size(); ++i) histogram_[i] += counted->counts()[i];
    }
    for (std::size_t i = 0; i < absmax_.size(); ++i) {
      min_[i] = std::min(min_[i], to_f32(extremes->low()[i]));
      max_[i] = std::max(max_[i], to_f32(extremes->high()[i]));
      absmax_[i] = std::max(absmax_[i], std::max(-min_[i], max_[i]));
    }
    count_ += n;
    if (options_.sample_rows == 0) return {};

    struct Hashed {
      std::uint64_t hash = 0;
      bool finite = false;
    };
    std::vector<Hashed> hashes(static_cast<std::size_t>(std::min(n, rows_at_once)));
    const int parts = static_cast<int>(
        std::clamp<std::int64_t>(*numel / 65536, 1, std::int64_t{stream.threads()}));
    std::vector<std::vector<float>> scratch(static_cast<std::size_t>(parts));
    for (auto& row : scratch) row.resize(absmax_.size());
    for (std::int64_t first = 0; first < n; first += rows_at_once) {
      const std::int64_t count = std::min(rows_at_once, n - first);
      detail::parallel(stream, parts, [&](int part) {
        std::vector<float>& row = scratch[static_cast<std::size_t>(part)];
        for (std::int64_t i = part; i < count; i += parts) {
          Hashed& h = hashes[static_cast<std::size_t>(i)];
          h.finite = load_row(rows, first + i, row);
          h.hash = row_hash(row);
        }
      });
      for (std::int64_t i = 0; i < count; ++i) {
        const Hashed& h = hashes[static_cast<std::size_t>(i)];
        if (!h.finite) continue;
        if (sample_count() == options_.sample_rows && h.hash > sample_.back().hash) continue;
        Row row{h.hash, std::vector<float>(absmax_.size())};
        load_row(rows, first + i, row.values);
        keep(std::move(row));
      }
    }
    return {};
  });
}

Status LayerStatistics::merge(const LayerStatistics& other) {
  if (other.channels() != channels())
    return invalid("other",
                   fmt::format("expected {} channels, got {}", channels(), other.channels()));
  return guarded("other", [&]() -> Status {
    LayerStatistics added = other;
    reduce(other.options_);
    added.reduce(options_);
    count_ += added.count_;
    for (std::size_t i = 0; i < absmax_.size(); ++i) {
      absmax_[i] = std::max(absmax_[i], added.absmax_[i]);
      min_[i] = std::min(min_[i], added.min_[i]);
      max_[i] = std::max(max_[i], added.max_[i]);
    }
    for (std::size_t i = 0; i < histogram_.size(); ++i) histogram_[i] += added.histogram_[i];
    for (Row& row : added.sample_) keep(std::move(row));
    return {};
  });
}

std::vector<float> LayerStatistics::sample() const {
  std::vector<float> out;
  out.reserve(sample_.size() * absmax_.size());
  for (const Row& row : sample_) out.insert(out.end(), row.values.begin(), row.values.end());
  return out;
}

Status Statistics::update(const Stream& stream, std::string_view layer, const TensorRef& rows) {
  auto found = layers_.find(layer);
  if (found != layers_.end()) return found->second.update(stream, rows);
  if (rows.shape.rank() < 1 || rows.shape.rank() > max_rank)
    return invalid("rows", fmt::format("expected shape [..., channels], got {}",
                                       detail::to_string(rows.shape)));
  auto fresh = LayerStatistics::create(rows.shape[rows.shape.rank() - 1], options_);
  if (!fresh) return fresh.error();
  if (Status s = fresh->update(stream, rows); !s) return s;
  layers_.emplace(std::string(layer), *std::move(fresh));
  return {};
}

Status Statistics::merge(const Statistics& other) {
  for (const auto& [layer, added] : other.layers_)
    if (const LayerStatistics* mine = find(layer);
        mine != nullptr && mine->channels() != added.channels())
      return invalid("other", fmt::format("layer {}: expected {} channels, got {}",
                                          in_quotes(layer), mine->channels(), added.channels()));
  const StatisticsOptions common = smaller(options_, other.options_);
  for (const auto& [layer, added] : other.layers_) {
    const auto [mine, fresh] = layers_.try_emplace(layer, added);
    if (fresh) continue;
    if (Status s = mine->second.merge(added); !s) return s;
  }
  // All layers of a file have one kind of sample and of histogram, whatever was merged first.
  for (auto& [layer, mine] : layers_) mine.reduce(common);
  options_ = common;
  return {};
}

const LayerStatistics* Statistics::find(std::string_view layer) const noexcept {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? nullptr : &found->second;
}

}  // namespace octavo
