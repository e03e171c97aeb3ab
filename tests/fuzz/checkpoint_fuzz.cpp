// A float checkpoint: opened, quantized as the words say, taken up again after a stop, and
// verified.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "files.hpp"
#include "octavo/checkpoint.hpp"
#include "octavo/verdict.hpp"

namespace octavo::fuzz {
namespace {

namespace fs = std::filesystem;

QuantizeOptions options_of(const Words& words, const Statistics* statistics) {
  QuantizeOptions o;
  for (const Scheme scheme :
       {Scheme::w8a8_static, Scheme::w8a16, Scheme::w4a8_group, Scheme::w4a16_group})
    if (words.has(name(scheme))) o.scheme = scheme;
  o.group_size = words.has("group=auto")
                     ? std::nullopt
                     : std::optional(static_cast<std::int64_t>(words.number("group", 128)));
  o.asymmetric = words.has("asymmetric");
  for (const std::string& text : words.values("layer"))
    if (const auto choice = parse_layer_choice(text); accepted(choice)) o.layers.push_back(*choice);
  o.alpha = words.has("alpha=auto") ? std::nullopt : std::optional(words.number("alpha", 0.5));
  o.ignore = words.values("ignore");
  o.statistics = statistics;
  o.smooth = words.has("smooth");
  o.strict = words.has("strict");
  o.measure = !words.has("unmeasured");
  if (words.has("loader=vllm")) o.loader = Loader::vllm;
  if (words.has("loader=transformers")) o.loader = Loader::transformers;
  if (words.has("loader=none")) o.loader = Loader::none;
  return o;
}

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

bool same(const LayerError& a, const LayerError& b) {
  return a.name == b.name && a.n == b.n && a.k == b.k && a.scheme == b.scheme &&
         a.group_size == b.group_size && a.asymmetric == b.asymmetric && a.kind == b.kind &&
         same(a.bits, b.bits) && a.smoothed == b.smoothed && a.smoothable == b.smoothable &&
         same(a.sqnr_db, b.sqnr_db) && same(a.cosine, b.cosine) && same(a.max_abs, b.max_abs) &&
         same(a.clip_rate, b.clip_rate) && same(a.weight_error, b.weight_error) &&
         a.non_finite == b.non_finite && a.rows == b.rows && same(a.error(), b.error());
}

bool same(const std::vector<LayerError>& a, const std::vector<LayerError>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LayerError& x, const LayerError& y) { return same(x, y); });
}

// The result against its input: as it was measured on the way, and nothing else changed.
void verify_result(const QuantizePlan& plan, const QuantizeReport& report, const fs::path& out) {
  const auto written = Checkpoint::open(out);
  require(accepted(written), "a result that opens");
  const auto verified =
      verify(Stream::cpu({.threads = 1}), *plan.checkpoint, *written, plan.options.statistics);
  require(verified.has_value(),
          verified ? "" : "that verify takes it; " + verified.error().message());
  require(verified->unexpected.empty(), "that nothing else changed");
  require(verified->added.empty(), "that nothing was added");
  require(verified->layers.size() == plan.layers.size(), "all layers of the plan");
  require(!plan.measured || same(verified->layers, report.measured.layers),
          "the errors of the run");
  for (const auto bound : {std::optional<double>(), std::optional(0.0),
                           std::optional(std::numeric_limits<double>::infinity())})
    require(!judge(*verified, bound).text().empty(), "a verdict in words");
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : written->tensors().files())
    for (const StoredTensor& t : file.tensors()) bytes += t.size();
  require(bytes == plan.output_bytes, "as many bytes as were planned");
  const auto listed = quantized_layers(*written);
  require(accepted(listed) && listed->size() == plan.layers.size(), "its layers by themselves");
  for (std::size_t i = 0; i < listed->size(); ++i)
    require((*listed)[i].form == plan.layers[i].form && (*listed)[i].n == plan.layers[i].layer.n &&
                (*listed)[i].k == plan.layers[i].layer.k,
            "the form and the sizes of each");
  const double bits = bits_per_weight(plan);
  require(std::fabs(bits - verified->bits_per_weight()) < 1e-9 * bits, "the bits of a weight");
  const auto again = resolve(*written, {});
  require(!again, "that it is not quantized twice");
}

// Memory of its own for a tensor, which plans can change.
struct Copy {
  explicit Copy(const SafetensorsSet::Entry& entry)
      : bytes(entry.file->bytes(*entry.tensor).begin(), entry.file->bytes(*entry.tensor).end()),
        type(*dtype_of_stored(entry.tensor->type)) {}
  std::vector<std::byte> bytes;
  DType type;
};

// The norms of the result are those that smooth makes of tensors in memory.
void smooth_by_hand(const QuantizePlan& plan, const QuantizeReport& report, const fs::path& out) {
  const Stream stream = Stream::cpu({.threads = 1});
  const SafetensorsSet& tensors = plan.checkpoint->tensors();
  const auto written = Checkpoint::open(out);
  for (std::size_t i = 0; i < plan.pairs.size(); ++i) {
    const PlannedPair& pair = plan.pairs[i];
    const auto k = static_cast<std::int64_t>(pair.absmax.size());
    std::vector<Copy> copies;
    std::vector<TensorMut> weights;
    copies.reserve(pair.names.linears.size());
    for (const std::string& linear : pair.names.linears) {
      const auto entry = tensors.find(linear + ".weight");
      const LinearLayer* layer = plan.checkpoint->layer(linear);
      Copy& copy = copies.emplace_back(entry);
      const auto n = static_cast<std::int64_t>(copy.bytes.size()) / (k * (bits(copy.type) / 8));
      const Shape strides = layer != nullptr && layer->transposed ? Shape{1, n} : Shape{k, 1};
      weights.emplace_back(copy.bytes.data(), copy.type, Shape{n, k}, strides);
    }
    const std::vector<TensorRef> views(weights.begin(), weights.end());
    const auto scales = smoothing_scales(stream, views, pair.absmax, report.alphas[i]);
    require(accepted(scales), "scales as those of the run");
    const auto norm = tensors.find(pair.names.norm + ".weight");
    const auto bias = tensors.find(pair.names.norm + ".bias");
    std::optional<Copy> norm_copy, bias_copy;
    SmoothArgs args;
    args.weights = weights;
    args.scales = *scales;
    norm_copy.emplace(norm);
    args.norm_weight = TensorMut(norm_copy->bytes.data(), norm_copy->type, {k});
    if (bias) {
      bias_copy.emplace(bias);
      args.norm_bias = TensorMut(bias_copy->bytes.data(), bias_copy->type, {k});
    }
    require(accepted(smooth(stream, args)), "that what the run smoothed can be smoothed");
    const auto expect = [&](const Copy& copy, const std::string& tensor) {
      const auto stored = written->tensors().find(tensor);
      const auto bytes = stored.file->bytes(*stored.tensor);
      require(std::equal(bytes.begin(), bytes.end(), copy.bytes.begin(), copy.bytes.end()),
              "the smoothed norm");
    };
    expect(*norm_copy, norm.tensor->name);
    if (bias) expect(*bias_copy, bias.tensor->name);
  }
}

void run(const Files& files) {
  const Words& words = files.words();
  const auto statistics = Statistics::read(files / "stats");
  const auto checkpoint = Checkpoint::open(files / words.value("in").value_or("in"));
  if (!accepted(checkpoint)) return;
  const QuantizeOptions options = options_of(words, accepted(statistics) ? &*statistics : nullptr);
  const auto plan = resolve(*checkpoint, options);
  if (!accepted(plan)) return;
  for (const LeftFloat& left : left_float(*plan)) require(!left.text().empty(), "a text");
  require(!options.strict || left_float(*plan).empty(), "that strict leaves nothing float");

  const auto before = read_tree(checkpoint->tensors().directory());
  const fs::path out = files / words.value("out").value_or("out");
  fs::path partial = out;
  partial += ".partial";
  const bool was_there = fs::exists(out);
  // What lies there in the middle of the run is what a stop would have left.
  const auto stop = static_cast<int>(words.number("stop", 1));
  int told = 0;
  const auto report = quantize(Stream::cpu({.threads = 1}), *plan, out, [&](const Progress& p) {
    require(p.done <= p.total, "progress up to its end");
    if (++told == stop)
      fs::copy(partial, Files::other("again.partial"), fs::copy_options::recursive);
  });
  require(read_tree(checkpoint->tensors().directory()) == before, "that the input stays");
  if (!accepted(report)) {
    require(was_there || !fs::exists(out), "that a refusal leaves no result");
    return;
  }
  require(!fs::exists(partial), "that a result leaves nothing beside it");
  verify_result(*plan, *report, out);
  smooth_by_hand(*plan, *report, out);
  const auto again = quantize(Stream::cpu({.threads = 2}), *plan, Files::other("again"));
  require(accepted(again), "that a run that was stopped goes on");
  require(read_tree(Files::other("again")) == read_tree(out), "the same bytes after a stop");
  require(same(again->measured.layers, report->measured.layers), "the same errors after a stop");
  require(!quantize(Stream::cpu(), *plan, out), "that no result is overwritten");
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run(octavo::fuzz::Files(data, size));
  return 0;
}
