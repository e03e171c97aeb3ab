// How far a quantized layer is from its float one: what verify measures of a finished checkpoint
// and quantize of one that it is writing. Slab by slab, and slabs are cut alike, so both find the
// same bits.
#pragma once

#include <span>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/slab.hpp"
#include "offline/stored_layer.hpp"

namespace octavo::offline {

/// A layer, and the rows that it is fed with.
struct Probe {
  LayerError layer;              // its name, shape and scheme; the figures are still to come
  std::vector<float> smoothing;  // of its input channels; empty: none
  Activations plain, quantized;  // sampled rows as the float layer and the quantized one meet them
};

struct ProbeArgs {
  const LinearLayer& layer;
  LayerForm form = {};
  std::uint64_t bytes = 0;  // of all that is stored of it
  std::vector<float> smoothing = {};
  double input_scale = 1.0;                     // of static activations
  const LayerStatistics* statistics = nullptr;  // of the layer, if there are any
};
Probe make_probe(ProbeArgs args);

/// Of a weight, in a layer that takes so many bytes.
double stored_bits(const LinearLayer& layer, std::uint64_t bytes);

struct ErrorSums {
  double signal = 0, noise = 0, product = 0, energy = 0, max_abs = 0;
  double clipped = 0;
  std::int64_t non_finite = 0;
  double output_signal = 0, output_noise = 0;
};

/// Some rows of the float weight, contiguous, and the same rows quantized. `rows` is smoothed in
/// place.
Status measure_slab(const Stream& one, const Probe& probe, DType type, std::vector<std::byte>& rows,
                    const QuantizedSlab& slab, ErrorSums& sums);

/// All slabs of a layer, in order.
LayerError error_of(const Probe& probe, std::span<const ErrorSums> slabs);

/// A layer that is stored, against its float weight [n, k].
Result<LayerError> measure_stored(const Stream& stream, const Probe& probe, const TensorRef& weight,
                                  const StoredLayer& stored);

/// Sorts the layers of a report by name, and adds what the original says of them.
void complete(const Checkpoint& original, VerifyReport& report);

}  // namespace octavo::offline
