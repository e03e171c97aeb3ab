// A quantized checkpoint of any origin: its config.json, layers, scales and smoothing, as verify
// reads them beside the float one, and the verdict on it.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "files.hpp"
#include "octavo/checkpoint.hpp"
#include "octavo/verdict.hpp"

namespace octavo::fuzz {
namespace {

void judge_with(const VerifyReport& report, std::optional<double> bound) {
  const Verdict verdict = judge(report, bound);
  require(!verdict.text().empty(), "a verdict in words");
  require(verdict.order.size() == report.layers.size(), "all layers in order");
  require(verdict.failed || verdict.above == 0, "that a layer above its bound fails");
}

void run(const Files& files) {
  const auto original = Checkpoint::open(files / "in");
  const auto quantized = Checkpoint::open(files / "out");
  const auto statistics = Statistics::read(files / "stats");
  if (!accepted(original) || !accepted(quantized)) return;
  const Statistics* const rows = accepted(statistics) ? &*statistics : nullptr;
  const auto report =
      verify(Stream::cpu({.threads = 1}), *original, *quantized, rows,
             [](const Progress& p) { require(p.done <= p.total, "progress up to its end"); });
  if (!accepted(report)) return;
  require(!report->layers.empty(), "layers");
  for (const LayerError& layer : report->layers)
    require(original->any_layer(layer.name) != nullptr, "layers of the float checkpoint");
  const auto listed = quantized_layers(*quantized);
  require(!accepted(listed) || listed->size() >= report->layers.size(),
          "all layers that were measured");
  judge_with(*report, {});
  judge_with(*report, files.words().number("max", 0));
  judge_with(*report, std::numeric_limits<double>::infinity());
  // The statistics of a layer are all that verify asks of them.
  if (rows != nullptr)
    require(accepted(verify(Stream::cpu({.threads = 2}), *original, *quantized)),
            "that it can be verified without rows");
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run(octavo::fuzz::Files(data, size));
  return 0;
}
