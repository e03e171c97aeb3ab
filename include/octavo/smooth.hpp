// SmoothQuant: outliers of activations are moved into the weights, where they do less harm.
//
// For each input channel j of the linear layers that read the output of one norm:
//
//     w_j = max over those layers and their rows of |W[:,j]|, at least 1e-5
//     s_j = max(a_j^alpha / w_j^(1-alpha), 1e-5)         a_j = the largest |x[:,j]| seen
//
// The norm's weight (and bias) is divided by s, every W[:,j] is multiplied by s_j: the float model
// computes the same as before. Powers are computed in f64 from specified operations and s is
// rounded to f32, once; products and quotients are in the compute type of the tensor and rounded to
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/result.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

/// The scales s, one per input channel. Weights are [rows, channels] of any float types and strides
/// (a transposed view for weights that are stored [in, out]); alpha is in [0, 1].
[[nodiscard]] Result<std::vector<float>> smoothing_scales(const Stream& stream,
                                                          std::span<const TensorRef> weights,
                                                          std::span<const float> absmax,
                                                          double alpha);

/// The static scale of an input whose channels have these extremes: the largest of them / 127, or 1
/// if they are all 0; and of one whose channels are divided by as many smoothing scales.
[[nodiscard]] float static_scale(std::span<const float> absmax);
[[nodiscard]] Result<float> static_scale(std::span<const float> absmax,
                                         std::span<const float> smoothing);

struct SmoothArgs {
  TensorMut norm_weight;               ///< [channels]
  TensorMut norm_bias = {};            ///< [channels], or left out
  std::span<const TensorMut> weights;  ///< each [rows, channels]
  std::span<const float> scales;       ///< of smoothing_scales
};

/// Applies the scales in place. Refuses, and changes nothing, if a shape does not fit or a finite
/// value would overflow its type.
[[nodiscard]] Status smooth(const Stream& stream, const SmoothArgs& args);

/// How a layer is quantized.
enum class Scheme : std::uint8_t {
  w8a8_dynamic = 0,  ///< int8 weights per output channel, int8 activations per row on the fly
  w8a8_static = 1,   ///< the same with one scale for the activations, from statistics
  w4a16_group = 2,   ///< int4 weights per group of input channels, float activations
  w8a16 = 3,         ///< int8 weights per output channel, float activations
  w4a8_group = 4,    ///< int4 weights per group, int8 activations per row on the fly
};
[[nodiscard]] std::string_view name(Scheme scheme) noexcept;
[[nodiscard]] Result<Scheme> parse_scheme(std::string_view wanted);
/// Of its weights: 8 or 4.
[[nodiscard]] int weight_bits(Scheme scheme) noexcept;

/// All that can be said of how the weights of a layer are quantized.
struct LayerForm {
  Scheme scheme = Scheme::w8a8_dynamic;
  std::int64_t group_size = 0;  ///< input channels that share a scale; 0: all of an output channel
  bool asymmetric = false;      ///< each scale has a zero point; of int4 alone
  friend bool operator==(const LayerForm&, const LayerForm&) = default;
};
/// "w8a16", "w4a16-group in groups of 64", "w4a8-group with a scale per channel, asymmetric"
[[nodiscard]] std::string to_string(const LayerForm& form);

struct AlphaSearchArgs {
  std::span<const TensorRef> weights;       ///< of the layers that share an input
  std::span<const float> absmax;            ///< of that input
  TensorRef rows;                           ///< [r, channels], f32: rows of that input
  std::span<const double> candidates = {};  ///< default: 0, 0.05, ..., 1
  Scheme scheme = Scheme::w8a8_dynamic;
  std::int64_t group_size = 128;  ///< of int4 weights; 0: a scale for each output channel
  bool asymmetric = false;        ///< of int4 weights
};

struct AlphaSearch {
  double alpha = 0.5;          ///< the candidate with the least error; of equal ones the first
  double error = 0;            ///< its error
  std::vector<double> errors;  ///< of each candidate: |y - y_float|^2 / |y_float|^2, all layers
};

/// Quantizes the smoothed layers with each alpha and measures their outputs on the rows.
[[nodiscard]] Result<AlphaSearch> search_alpha(const Stream& stream, const AlphaSearchArgs& args);

/// A norm and the layers that read its output, by the names of their modules.
struct SmoothingPair {
  std::string norm;
  std::vector<std::string> linears;
};

/// What is known of a model beside the names of its tensors, from its config.json.
struct ModelTraits {
  std::string model_type;            ///< "llama", ...; empty: told by the names of the tensors
  bool norm_feeds_residual = false;  ///< a norm's output also goes round the layer: not foldable
};

struct SmoothingPairs {
  std::string architecture;  ///< the family whose pairs these are, or "unknown"
  std::vector<SmoothingPair> pairs;
  std::string note;  ///< why there are none, if so
};

/// The pairs of a model with these tensors: Llama, Mistral, Qwen2, Mixtral, OPT, BLOOM, Falcon,
/// GPT-NeoX, GPT-2. In others a norm may feed more than is known here, so nothing is guessed.
[[nodiscard]] SmoothingPairs smoothing_pairs(std::span<const std::string> tensors,
                                             const ModelTraits& traits = {});

}  // namespace octavo
