#include "octavo/statistics.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "octavo/observer.hpp"
#include "offline/convert.hpp"
#include "offline/files.hpp"
#include "ops/observer/access.hpp"

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

// Counts come from files, too, and stay at the largest there is: so the order does not matter.
void add_count(std::int64_t& sum, std::int64_t more) {
  if (__builtin_add_overflow(sum, more, &sum)) sum = std::numeric_limits<std::int64_t>::max();
}

// As many leading bits of a float's pattern; bins of fewer bits are sums of neighbours.
void coarsen(std::vector<std::int64_t>& histogram, int from, int to) {
  if (to < 0) {
    histogram.clear();
    return;
  }
  const std::size_t factor = std::size_t{1} << static_cast<unsigned>(from - to);
  std::vector<std::int64_t> out(histogram.size() / factor);
  for (std::size_t i = 0; i < histogram.size(); ++i) add_count(out[i / factor], histogram[i]);
  histogram = std::move(out);
}

// Held while numbers are added, and not while they are measured. One for all objects: two that are
// merged into each other cannot wait for one another, and a fork can wait for it, so that a child
// finds whole statistics and a lock that is free.
std::unique_lock<std::mutex> locked() {
  static constinit std::mutex mutex;
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  });
  return std::unique_lock(mutex);
}

Status check(std::int64_t channels, const StatisticsOptions& options) {
  if (channels < 0 || channels > (std::int64_t{1} << 40))
    return invalid("channels", fmt::format("expected 0 to 2^40, got {}", channels));
  if (options.sample_rows < 0 || options.sample_rows > (std::int64_t{1} << 30))
    return invalid("sample_rows", fmt::format("expected 0 to 2^30, got {}", options.sample_rows));
  if (options.histogram_bits < -1 || options.histogram_bits > 7)
    return invalid("histogram_bits",
                   fmt::format("expected -1 to 7, got {}", options.histogram_bits));
  return {};
}

Error wrong_shape(std::int64_t channels, const TensorRef& rows) {
  return invalid("rows", fmt::format("expected shape [..., {}], got {}", channels,
                                     detail::to_string(rows.shape)));
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
  if (Status s = check(channels, options); !s) return s.error();
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

// Above it a row would not stay; when the sample is not full, every one does.
std::uint64_t LayerStatistics::highest_hash() const noexcept {
  const bool is_full = !sample_.empty() && sample_count() == options_.sample_rows;
  return is_full ? sample_.back().hash : std::numeric_limits<std::uint64_t>::max();
}

Result<LayerStatistics> LayerStatistics::measure(const Stream& stream, const TensorRef& rows,
                                                 std::int64_t channels,
                                                 const StatisticsOptions& options,
                                                 std::uint64_t highest_hash) {
  if (rows.shape.rank() < 1 || rows.shape.rank() > max_rank ||
      rows.shape[rows.shape.rank() - 1] != channels)
    return wrong_shape(channels, rows);
  if (!is_float(rows.dtype))
    return detail::unsupported(
        "rows", fmt::format("expected f32, f64, f16 or bf16, got {}", name(rows.dtype)));
  const auto numel = detail::count_elements("rows", rows.shape);
  if (!numel) return numel.error();
  const std::int64_t n = channels == 0 ? 0 : *numel / channels;
  if (Status s = check(channels, options); !s) return s.error();
  return guarded("rows", [&]() -> Result<LayerStatistics> {
    LayerStatistics batch;
    batch.options_ = options;
    for (std::vector<float>* v : {&batch.absmax_, &batch.min_, &batch.max_})
      v->resize(static_cast<std::size_t>(channels));
    const auto extremes = observe<MinMaxState>(
        stream,
        {.input = rows.dtype, .scope = Layout::per_channel, .axis = -1, .channels = channels},
        rows);
    if (!extremes) return extremes.error();
    if (options.histogram_bits >= 0) {
      auto counted = observe<HistogramState>(
          stream, {.input = rows.dtype, .histogram_bits = options.histogram_bits}, rows);
      if (!counted) return counted.error();
      batch.histogram_ = std::move(ObserverAccess::counts(*counted));
    }
    for (std::size_t i = 0; i < batch.absmax_.size(); ++i) {
      batch.min_[i] = std::min(0.0F, to_f32(extremes->low()[i]));
      batch.max_[i] = std::max(0.0F, to_f32(extremes->high()[i]));
      batch.absmax_[i] = std::max(batch.max_[i], -batch.min_[i]);  // (+0 if both are 0)
    }
    batch.count_ = n;
    if (options.sample_rows == 0) return batch;

    struct Hashed {
      std::uint64_t hash = 0;
      bool finite = false;
    };
    std::vector<Hashed> hashes(static_cast<std::size_t>(std::min(n, rows_at_once)));
    const int parts = detail::parts_of(*numel, 65536, stream.threads());
    std::vector<std::vector<float>> scratch(static_cast<std::size_t>(parts));
    for (auto& row : scratch) row.resize(batch.absmax_.size());
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
        if (!h.finite || h.hash > std::min(highest_hash, batch.highest_hash())) continue;
        Row row{h.hash, std::vector<float>(batch.absmax_.size())};
        load_row(rows, first + i, row.values);
        batch.keep(std::move(row));
      }
    }
    return batch;
  });
}

Status LayerStatistics::update(const Stream& stream, const TensorRef& rows) {
  auto batch = measure(stream, rows, channels(), options_, highest_hash());
  if (!batch) return batch.error();
  return guarded("rows", [&]() -> Status {
    add(*std::move(batch));
    return {};
  });
}

Status LayerStatistics::merge(const LayerStatistics& other) {
  if (other.channels() != channels())
    return invalid("other",
                   fmt::format("expected {} channels, got {}", channels(), other.channels()));
  return guarded("other", [&]() -> Status {
    add(other);
    return {};
  });
}

// Memory is asked for first: what fails for the lack of it has changed nothing that was seen.
void LayerStatistics::add(LayerStatistics other) {
  sample_.reserve(sample_.size() + other.sample_.size());
  reduce(other.options_);
  other.reduce(options_);
  add_count(count_, other.count_);
  for (std::size_t i = 0; i < absmax_.size(); ++i) {
    absmax_[i] = std::max(absmax_[i], other.absmax_[i]);
    min_[i] = std::min(min_[i], other.min_[i]);
    max_[i] = std::max(max_[i], other.max_[i]);
  }
  for (std::size_t i = 0; i < histogram_.size(); ++i) add_count(histogram_[i], other.histogram_[i]);
  for (Row& row : other.sample_) keep(std::move(row));
}

std::vector<float> LayerStatistics::sample() const {
  std::vector<float> out;
  out.reserve(sample_.size() * absmax_.size());
  for (const Row& row : sample_) out.insert(out.end(), row.values.begin(), row.values.end());
  return out;
}

Statistics::Statistics(const Statistics& other) {
  const auto lock = locked();
  options_ = other.options_;
  layers_ = other.layers_;
}

Statistics& Statistics::operator=(Statistics other) noexcept {
  const auto lock = locked();
  std::swap(options_, other.options_);
  std::swap(layers_, other.layers_);
  return *this;
}

Status Statistics::update(const Stream& stream, std::string_view layer, const TensorRef& rows) {
  return guarded("rows", [&]() -> Status {
    if (rows.shape.rank() < 1 || rows.shape.rank() > max_rank)
      return invalid("rows", fmt::format("expected shape [..., channels], got {}",
                                         detail::to_string(rows.shape)));
    std::int64_t channels = rows.shape[rows.shape.rank() - 1];
    std::uint64_t highest_hash = std::numeric_limits<std::uint64_t>::max();
    StatisticsOptions options;
    {
      const auto lock = locked();
      options = options_;
      if (const LayerStatistics* known = find(layer)) {
        channels = known->channels();
        highest_hash = known->highest_hash();
      }
    }
    auto batch = LayerStatistics::measure(stream, rows, channels, options, highest_hash);
    if (!batch) return batch.error();
    const auto lock = locked();
    // Meanwhile another thread may have added the layer, or merged what keeps less.
    batch->reduce(options_);
    const auto found = layers_.find(layer);
    if (found == layers_.end()) {
      layers_.emplace(std::string(layer), *std::move(batch));
    } else {
      if (found->second.channels() != channels) return wrong_shape(found->second.channels(), rows);
      found->second.add(*std::move(batch));
    }
    return {};
  });
}

Status Statistics::merge(const Statistics& other) {
  return guarded("other", [&]() -> Status {
    const auto lock = locked();
    for (const auto& [layer, added] : other.layers_)
      if (const LayerStatistics* mine = find(layer);
          mine != nullptr && mine->channels() != added.channels())
        return invalid("other", fmt::format("layer {}: expected {} channels, got {}",
                                            in_quotes(layer), mine->channels(), added.channels()));
    const StatisticsOptions common = smaller(options_, other.options_);
    for (const auto& [layer, added] : other.layers_) {
      const auto [mine, is_new] = layers_.try_emplace(layer, added);
      if (!is_new) mine->second.add(added);
    }
    // All layers of a file have one kind of sample and of histogram, whatever was merged first.
    for (auto& [layer, mine] : layers_) mine.reduce(common);
    options_ = common;
    return {};
  });
}

std::optional<LayerStatistics> Statistics::layer(std::string_view layer) const {
  const auto lock = locked();
  const LayerStatistics* const found = find(layer);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::vector<std::string> Statistics::names() const {
  const auto lock = locked();
  std::vector<std::string> names;
  names.reserve(layers_.size());
  for (const auto& [name, layer] : layers_) names.push_back(name);
  return names;
}

StatisticsOptions Statistics::options() const {
  const auto lock = locked();
  return options_;
}

const LayerStatistics* Statistics::find(std::string_view layer) const noexcept {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? nullptr : &found->second;
}

}  // namespace octavo
