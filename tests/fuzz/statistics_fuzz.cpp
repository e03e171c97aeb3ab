// Statistics: two files, read, written again and merged, and rows that are added to them.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "files.hpp"
#include "octavo/safetensors.hpp"
#include "octavo/statistics.hpp"

namespace octavo::fuzz {
namespace {

std::string bytes_of(const Statistics& statistics) {
  const auto path = Files::other("written");
  require(accepted(statistics.write(path)), "that statistics can be written");
  return read_bytes(path);
}

// What is written reads the same.
void round_trip(const Statistics& statistics) {
  const std::string bytes = bytes_of(statistics);
  const auto again = Statistics::read(Files::other("written"));
  require(accepted(again), "that what is written can be read");
  require(bytes_of(*again) == bytes, "that it reads the same");
  require(again->names() == statistics.names(), "the same layers");
}

// Both ways give the same bytes.
void merge(const Statistics& a, const Statistics& b) {
  Statistics ab = a, ba = b;
  const Status merged = ab.merge(b);
  require(accepted(merged) == accepted(ba.merge(a)), "that both orders merge, or none");
  if (!merged) {
    require(bytes_of(ab) == bytes_of(a), "that a refusal changes nothing");
    return;
  }
  require(bytes_of(ab) == bytes_of(ba), "the same bytes in either order");
  round_trip(ab);
  Statistics twice = a;
  require(accepted(twice.merge(twice)), "that statistics merge with themselves");
}

// A layer of its own sees what the same rows show to one of many.
void update_alone(const TensorRef& rows, const StatisticsOptions& options) {
  auto alone = LayerStatistics::create(rows.shape[rows.shape.rank() - 1], options);
  require(accepted(alone), "a layer for rows that were taken");
  require(accepted(alone->update(Stream::cpu({.threads = 1}), rows)), "that it takes them, too");
  const std::vector<float> absmax = alone->absmax(), sample = alone->sample();
  const LayerStatistics same = *alone;
  require(accepted(alone->merge(same)), "that it can be merged");
  require(alone->absmax() == absmax && alone->sample() == sample, "that rows count once");
}

// The tensors of a file as rows of layers of their names: at once, and one by one from the last.
void update(const Files& files, const Statistics* start) {
  const auto rows = SafetensorsFile::open(files / "rows");
  if (!accepted(rows)) return;
  const Words& words = files.words();
  const StatisticsOptions options{static_cast<std::int64_t>(words.number("rows", 2)),
                                  static_cast<int>(words.number("bits", -1))};
  Statistics whole = start != nullptr ? *start : Statistics(options);
  Statistics pieces = whole;
  for (const StoredTensor& t : rows->tensors()) {
    const auto view = rows->view(t);
    if (!accepted(view) || !accepted(whole.update(Stream::cpu({.threads = 2}), t.name, *view)))
      continue;
    const auto layer = whole.layer(t.name);
    require(
        layer && layer->sample_count() <= std::max<std::int64_t>(layer->options().sample_rows, 0),
        "no more rows than were asked for");
    update_alone(*view, whole.options());
    std::int64_t count = t.shape.size() == 2 ? static_cast<std::int64_t>(t.shape[0]) : 0;
    if (count < 2) {
      require(accepted(pieces.update(Stream::cpu(), t.name, *view)), "the same rows again");
      continue;
    }
    const std::int64_t bytes = view->shape[1] * (bits(view->dtype) / 8);
    while (--count >= 0)
      require(accepted(
                  pieces.update(Stream::cpu({.threads = 1}), t.name,
                                TensorRef(static_cast<const std::byte*>(view->data) + count * bytes,
                                          view->dtype, {1, view->shape[1]}))),
              "that rows can be added one by one");
  }
  require(bytes_of(whole) == bytes_of(pieces), "the same bytes for rows in another order");
  round_trip(whole);
}

void run(const Files& files) {
  const auto a = Statistics::read(files / "a");
  const auto b = Statistics::read(files / "b");
  if (accepted(a)) round_trip(*a);
  if (accepted(a) && accepted(b)) merge(*a, *b);
  update(files, a ? &*a : nullptr);
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run(octavo::fuzz::Files(data, size));
  return 0;
}
