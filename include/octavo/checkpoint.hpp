// Checkpoints: from a float model on disk to one that runs in 8 or 4 bits, without a framework.
//
//     auto model = Checkpoint::open("Llama");
//     auto plan = resolve(*model, {.scheme = Scheme::w8a8_dynamic});
//     quantize(Stream::cpu(), *plan, "Llama-W8A8");
//
// The result has the layout of compressed-tensors, which vLLM loads: for a layer P
//
//     w8a8-*      P.weight I8, P.weight_scale [out, 1], and P.input_scale [1] if static
//     w8a16       P.weight_packed I32 [out, ceil(in / 4)] of q + 128, P.weight_scale [out, 1],
//                 P.weight_shape I64 [2]
//     w4a*-group  P.weight_packed I32 [out, ceil(in / 8)] of q + 8, P.weight_scale [out, in / g],
//                 P.weight_shape I64 [2], and if asymmetric P.weight_zero_point I32
//                 [ceil(out / 8), in / g] of zero point + 8, eight output channels to a word
//
// with the first value in the lowest bits of a word. Scales are found by DynamicRangeQuantizePlan
// (max |w| / 127, or / 7; asymmetric (max - min) / 15): f32 for w8a8, f64 for an f64 layer. Where
// weights are packed they have the type of the weight: those of 16 bits are rounded
// (numerics/stored_scale.hpp), and the weights are quantized with the rounded ones.
//
// Weights that are stored [in, out] (Conv1D of GPT-2) stay so in w8a8, and are turned where they
// are packed. All else keeps its name and bytes; config.json gains a quantization_config; other
// files are carried over.
//
// Files are mapped and worked on slab by slab, so memory is bounded whatever the size. The bytes of
// the result are the same from run to run and for any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/result.hpp"
#include "octavo/safetensors.hpp"
#include "octavo/smooth.hpp"
#include "octavo/statistics.hpp"
#include "octavo/stream.hpp"

namespace octavo {

/// Heads and embeddings stay float unless QuantizeOptions::layers names them.
enum class LayerKind : std::uint8_t { linear = 0, head = 1, embedding = 2 };

/// A layer that can be quantized: linear, or a table of embeddings.
struct LinearLayer {
  std::string name;  ///< of the module; its tensor is name + ".weight"
  DType type = DType::f32;
  std::int64_t n = 0;       ///< output channels; rows of a table
  std::int64_t k = 0;       ///< input channels; the width of a table
  bool transposed = false;  ///< stored [in, out]
  LayerKind kind = LayerKind::linear;
};

/// A tensor of two or more dimensions that stays as it is, and why.
struct KeptTensor {
  std::string name;
  std::string reason;
  bool is_linear = false;  ///< a layer all the same: quantization_config must list it
  bool meant = true;       ///< false: a layer that should be quantized, and cannot be
  std::uint64_t elements = 0;
};

class Checkpoint {
 public:
  /// A safetensors file, a directory of them, or an index; config.json beside them is read if there
  /// is one.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const SafetensorsSet& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const std::vector<LinearLayer>& layers() const noexcept { return layers_; }
  [[nodiscard]] const std::vector<KeptTensor>& kept() const noexcept { return kept_; }
  [[nodiscard]] const SmoothingPairs& pairs() const noexcept { return pairs_; }
  [[nodiscard]] const LinearLayer* layer(std::string_view name) const noexcept;
  /// Heads and embeddings, which are among kept() as well.
  [[nodiscard]] const std::vector<LinearLayer>& named_layers() const noexcept { return named_; }
  /// One of layers() or of named_layers().
  [[nodiscard]] const LinearLayer* any_layer(std::string_view name) const noexcept;
  /// The text of config.json, or empty.
  [[nodiscard]] const std::string& config() const noexcept { return config_; }
  /// Whether config.json has a quantization_config already.
  [[nodiscard]] bool is_quantized() const noexcept { return quantized_; }
  /// Bytes of all its files.
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  /// Refuses, by name, a file that is no longer what it was when it was opened.
  [[nodiscard]] Status unchanged() const;

 private:
  explicit Checkpoint(SafetensorsSet tensors) : tensors_(std::move(tensors)) {}
  std::filesystem::path path_;
  SafetensorsSet tensors_;
  std::string config_;
  FileStamp config_stamp_;
  bool quantized_ = false;
  std::vector<LinearLayer> layers_, named_;
  std::vector<KeptTensor> kept_;
  SmoothingPairs pairs_;
};

/// Who must be able to load a result: what it does not take is refused. none: what Octavo alone
/// reads will do.
enum class Loader : std::uint8_t { both = 0, vllm = 1, transformers = 2, none = 3 };

/// What becomes of the layers that a pattern names: a module's name, with * and ? for any
/// characters, or re: and a regular expression that its beginning matches.
struct LayerChoice {
  std::string pattern;
  std::optional<Scheme> scheme = {};  ///< none: they stay float
};
/// "PATTERN=SCHEME", with `float` for none.
[[nodiscard]] Result<LayerChoice> parse_layer_choice(std::string_view text);

struct QuantizeOptions {
  Scheme scheme = Scheme::w8a8_dynamic;  ///< of the layers that no choice names
  /// Of int4 layers: a multiple of 4, or 0: a scale for each output channel. None: of 128, 64, 32
  /// and 16 the largest that leaves the fewest weights float.
  std::optional<std::int64_t> group_size = 128;
  bool asymmetric = false;  ///< of int4 layers: a zero point for each scale
  /// Of several choices for a layer the last counts. One that matches nothing is an error.
  std::vector<LayerChoice> layers = {};
  /// Patterns of layers that stay float, whatever the choices are.
  std::vector<std::string> ignore = {};
  const Statistics* statistics = nullptr;  ///< for smoothing and for w8a8_static
  bool smooth = false;
  std::optional<double> alpha = 0.5;  ///< of smoothing; none: searched for each pair
  bool strict = false;                ///< refuse rather than leave layers float that should not be
  Loader loader = Loader::both;       ///< without a config.json nobody is asked
  bool measure = true;  ///< each layer as it is written, on the rows that the statistics sampled
};

/// A layer that will be quantized.
struct PlannedLayer {
  LinearLayer layer;
  std::optional<std::size_t> pair;  ///< of QuantizePlan::pairs, if it is smoothed
  LayerForm form = {};
};

struct PlannedPair {
  SmoothingPair names;
  std::vector<float> absmax;          ///< of the input that its layers share
  std::optional<double> alpha = 0.5;  ///< none: to be searched
};

/// What will be done: everything is checked that can be without reading weights. It refers to the
/// checkpoint and the statistics, which must outlive it.
struct QuantizePlan {
  const Checkpoint* checkpoint = nullptr;
  QuantizeOptions options;
  std::int64_t group_size = 0;  ///< of int4 layers; 0: a scale for each output channel
  std::vector<PlannedLayer> layers;
  std::vector<PlannedPair> pairs;
  std::vector<KeptTensor> kept;
  std::vector<std::string> notes;  ///< loaders that do not take the result, and what to do
  std::uint64_t output_bytes = 0;  ///< of tensors
  bool measured = false;           ///< layers are, as they are written: rows are sampled for some
};

/// The forms that a plan gives to layers, and to how many; the commonest first.
struct FormCount {
  LayerForm form;
  std::size_t layers = 0;
};
[[nodiscard]] std::vector<FormCount> forms_of(const QuantizePlan& plan);
/// What a weight of the quantized layers takes in the result: with scales, zero points and shapes.
[[nodiscard]] double bits_per_weight(const QuantizePlan& plan);

/// Layers that a plan should quantize and leaves float, for one reason.
struct LeftFloat {
  std::string reason;
  std::size_t layers = 0;
  double share = 0;    ///< of the weights of all linear layers
  std::string remedy;  ///< what would take them, or empty
  /// "180 layers, 61 % of the linear weights, stay float: ...; --group-size 64 would take them all"
  [[nodiscard]] std::string text() const;
};
/// The largest share first; empty if nothing is left that should not be.
[[nodiscard]] std::vector<LeftFloat> left_float(const QuantizePlan& plan);

/// Resolves options to layers. Nothing to quantize (in strict: anything that is left float), a
/// pattern or statistics that match nothing, layers that are fused at run time but have different
/// schemes, and a result that neither vLLM nor transformers loads, are errors.
[[nodiscard]] Result<QuantizePlan> resolve(const Checkpoint& checkpoint,
                                           const QuantizeOptions& options);

/// Told now and then, from one thread at a time: bytes of input that are done, of how many.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  std::string_view what;
};
using ProgressCallback = std::function<void(const Progress&)>;

/// How far a quantized layer is from its float one, over its finite weights.
struct LayerError {
  std::string name;
  std::int64_t n = 0;
  std::int64_t k = 0;
  LayerKind kind = LayerKind::linear;
  Scheme scheme = Scheme::w8a8_dynamic;
  std::int64_t group_size = 0;  ///< input channels that share a scale; 0: all of an output channel
  bool asymmetric = false;
  double bits = 0;          ///< of a weight, as it is stored: with scales, zero points, shape
  bool smoothed = false;    ///< the float weights below are the smoothed ones
  bool smoothable = false;  ///< it reads a norm whose smoothing is known
  double sqnr_db = 0;       ///< 10 log10(|w|^2 / |w - w_q|^2); infinite if equal
  double cosine = 1;        ///< of w and w_q
  double max_abs = 0;       ///< the largest |w - w_q|
  double clip_rate = 0;     ///< the share of weights beyond the range of their scale
  double weight_error = 0;  ///< |w - w_q| / |w|
  std::int64_t non_finite =
      0;                  ///< weights that are NaN (quantized to 0) or infinite (to the limit)
  std::int64_t rows = 0;  ///< sampled rows that the output was measured on
  std::optional<double> output_error = {};  ///< |y - y_q| / |y| on them
  /// The output's error if it is known, else the weight's.
  [[nodiscard]] double error() const { return output_error.value_or(weight_error); }
  [[nodiscard]] LayerForm form() const { return {scheme, group_size, asymmetric}; }
};

struct VerifyReport {
  std::vector<LayerError> layers;
  /// Tensors that should have kept their bytes (or be divided by the scales) and did not.
  std::vector<std::string> unexpected;
  std::vector<std::string> added;  ///< tensors that the float checkpoint does not have
  std::size_t float_layers = 0;    ///< that are not quantized, heads and routers included
  double float_share = 0;          ///< of the weights of all linear layers
  /// Of the quantized layers, embeddings included.
  [[nodiscard]] double bits_per_weight() const;
};

struct QuantizeReport {
  std::vector<double> alphas;        ///< of each pair
  std::vector<double> alpha_errors;  ///< of those that were searched: see AlphaSearch
  std::vector<std::string> skipped;  ///< files that were not carried over, and why
  /// Files that were read through a link out of the input, "name -> target". (Not those of a
  /// snapshot in the Hugging Face hub's cache, which are links to the blobs of their model.)
  std::vector<std::string> links;
  std::uint64_t bytes_written = 0;
  int shards_kept = 0;  ///< that an earlier run had finished
  /// All layers as verify measures them, if the plan says so.
  VerifyReport measured;
};

/// Writes the checkpoint. Until it is complete it lies in OUT.partial, and a run that was stopped
/// goes on there; then the directory is renamed. OUT must not exist, or be empty. If the input
/// changes meanwhile, the run is refused in the end.
[[nodiscard]] Result<QuantizeReport> quantize(const Stream& stream, const QuantizePlan& plan,
                                              const std::filesystem::path& out,
                                              const ProgressCallback& progress = {});

/// Compares a quantized checkpoint, made here or elsewhere in the same layout, with its float one.
[[nodiscard]] Result<VerifyReport> verify(const Stream& stream, const Checkpoint& original,
                                          const Checkpoint& quantized,
                                          const Statistics* statistics = nullptr,
                                          const ProgressCallback& progress = {});

/// A layer of a quantized checkpoint, by what its config.json and its tensors say.
struct QuantizedLayer {
  std::string name;
  std::int64_t n = 0;
  std::int64_t k = 0;
  LayerForm form;
  double bits = 0;  ///< of a weight, as it is stored
};
/// All of them, by name; settings that are not read here are an error. No weights are read.
[[nodiscard]] Result<std::vector<QuantizedLayer>> quantized_layers(const Checkpoint& quantized);

/// The file beside a smoothed checkpoint that holds its scales: NORM.smoothing_scale F32 [k] for
/// each pair. A safetensors file by another name, so that loaders do not take it for weights.
inline constexpr const char* smoothing_file_name = "octavo_smoothing.st";

}  // namespace octavo
