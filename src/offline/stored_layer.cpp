#include "offline/stored_layer.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "offline/convert.hpp"
#include "offline/files.hpp"
#include "offline/packed_rows.hpp"
#include "offline/safetensors_header.hpp"

namespace octavo::offline {
namespace {

using Entry = SafetensorsSet::Entry;

Error wrong(const Entry& entry, const std::string& expected) {
  return bad_tensor(entry.file->path(), entry.tensor->name,
                    fmt::format("expected {}, got {} {}", expected, name(entry.tensor->type),
                                to_string(entry.tensor->shape)));
}

// Scales of any float type, in the type that plans compute in.
std::vector<std::byte> widened(const Entry& entry, DType compute) {
  const auto bytes = entry.file->bytes(*entry.tensor);
  const DType type = *dtype_of_stored(entry.tensor->type);
  return with_float_type(type, [&]<class T>() {
    std::vector<std::byte> out;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T value{};
      std::memcpy(&value, &bytes[at], sizeof(T));
      const double wide = static_cast<double>(widen(value));
      const auto narrow = static_cast<float>(wide);
      const auto* from = compute == DType::f64 ? reinterpret_cast<const std::byte*>(&wide)
                                               : reinterpret_cast<const std::byte*>(&narrow);
      out.insert(out.end(), from, from + (compute == DType::f64 ? 8 : 4));
    }
    return out;
  });
}

// The first of these scales that is not finite, or their number.
std::size_t first_not_finite(const std::vector<std::byte>& scales, DType compute) {
  return with_float_type(compute, [&]<class T>() {
    const std::size_t count = scales.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      T value{};
      std::memcpy(&value, &scales[i * sizeof(T)], sizeof(T));
      if (!std::isfinite(static_cast<double>(widen(value)))) return i;
    }
    return count;
  });
}

}  // namespace

bool StoredLayer::exists(const SafetensorsSet& tensors, const std::string& layer) {
  const Entry weight = tensors.find(layer + ".weight");
  return static_cast<bool>(tensors.find(layer + ".weight_packed")) ||
         (weight && weight.tensor->type == StoredType::I8);
}

Status StoredLayer::check_listed(const SafetensorsSet& tensors, const LinearLayer& layer,
                                 const ConfigScheme& config) {
  const Entry packed = tensors.find(layer.name + ".weight_packed");
  const Entry weight = packed ? packed : tensors.find(layer.name + ".weight");
  const bool listed =
      config.targets.contains(tensors, layer.name) && !config.ignore.contains(tensors, layer.name);
  if (!weight || exists(tensors, layer.name) == listed) return {};
  return wrong(weight, listed ? fmt::format("a layer of {}, for config.json does not ignore it",
                                            octavo::name(config.scheme))
                              : "a float weight, for config.json has this layer among those it "
                                "ignores, or not among its targets");
}

Result<StoredLayer> StoredLayer::open(const SafetensorsSet& tensors, const LinearLayer& layer,
                                      const ConfigScheme& config) {
  StoredLayer out;
  out.layer_ = layer;
  const auto n = static_cast<std::uint64_t>(layer.n), k = static_cast<std::uint64_t>(layer.k);
  const Entry packed = tensors.find(layer.name + ".weight_packed");
  const Entry weight = packed ? packed : tensors.find(layer.name + ".weight");
  const bool is_int4 = config.scheme == Scheme::w4a16_group;
  if (static_cast<bool>(packed) != is_int4)
    return wrong(weight, fmt::format("{}{} of {}-bit integers, as config.json says", layer.name,
                                     is_int4 ? ".weight_packed" : ".weight", is_int4 ? 4 : 8));
  std::vector<const char*> others{".weight_g_idx"};
  if (is_int4) others.push_back(".weight");
  if (config.scheme != Scheme::w8a8_static) others.push_back(".input_scale");
  for (const char* end : others)
    if (const Entry other = tensors.find(layer.name + end))
      return wrong(other,
                   fmt::format("no such tensor, for config.json says {}", name(config.scheme)));
  const Entry scale = tensors.find(layer.name + ".weight_scale");
  if (!scale)
    return bad_tensor(weight.file->path(), layer.name + ".weight_scale",
                      "expected this tensor, got none");
  // Read without it, an asymmetric layer would be measured as another one.
  for (const char* end : {".weight_zero_point", ".input_zero_point"})
    if (const Entry zero_point = tensors.find(layer.name + end))
      return wrong(zero_point, "no zero point, for layers are symmetric");
  const auto scale_type = dtype_of_stored(scale.tensor->type);
  if (!scale_type || !is_float(*scale_type)) return wrong(scale, "a float type");
  out.compute_ = compute_type(*scale_type);
  out.scales_ = widened(scale, out.compute_);
  const std::uint64_t scales = out.scales_.size() / (out.compute_ == DType::f64 ? 8 : 4);
  if (const std::size_t at = first_not_finite(out.scales_, out.compute_); at != scales)
    return bad_tensor(scale.file->path(), scale.tensor->name,
                      fmt::format("expected finite scales, got another at index {}", at));
  if (packed) {
    if (config.group_size <= 0 || k % static_cast<std::uint64_t>(config.group_size) != 0)
      return wrong(weight, fmt::format("input channels in groups of {}", config.group_size));
    out.group_size_ = config.group_size;
    out.scales_per_row_ = k / static_cast<std::uint64_t>(config.group_size);
    const auto words = static_cast<std::uint64_t>(packed_words(layer.k));
    if (packed.tensor->type != StoredType::I32 ||
        packed.tensor->shape != std::vector<std::uint64_t>{n, words})
      return wrong(packed, fmt::format("I32 [{}, {}]", n, words));
    if (scale.tensor->shape != std::vector<std::uint64_t>{n, out.scales_per_row_})
      return wrong(scale, fmt::format("[{}, {}], for groups of {}", n, out.scales_per_row_,
                                      config.group_size));
    if (const Entry stored = tensors.find(layer.name + ".weight_shape")) {
      std::array<std::int64_t, 2> sizes{};
      const auto bytes = stored.file->bytes(*stored.tensor);
      if (stored.tensor->type != StoredType::I64 || bytes.size() != sizeof(sizes))
        return wrong(stored, "I64 [2]");
      std::memcpy(sizes.data(), bytes.data(), sizeof(sizes));
      if (sizes != std::array{layer.n, layer.k})
        return bad_tensor(stored.file->path(), stored.tensor->name,
                          fmt::format("expected {} and {}, the shape of the float weight, got {} "
                                      "and {}",
                                      n, k, sizes[0], sizes[1]));
    }
    out.packed_ = packed.file->bytes(*packed.tensor);
    return out;
  }
  const std::vector<std::uint64_t> shape =
      layer.transposed ? std::vector<std::uint64_t>{k, n} : std::vector<std::uint64_t>{n, k};
  if (weight.tensor->shape != shape) return wrong(weight, "I8 " + to_string(shape));
  if (scales != (config.one_scale ? 1 : n))
    return wrong(scale, config.one_scale ? "[1], for config.json says one scale for a tensor"
                                         : fmt::format("[{}, 1], a scale for each channel", n));
  if (config.one_scale) {  // for all rows
    const std::vector<std::byte> one = out.scales_;
    for (std::uint64_t i = 1; i < n; ++i)
      out.scales_.insert(out.scales_.end(), one.begin(), one.end());
  }
  out.weight_ = matrix_view(*weight.file, *weight.tensor, DType::s8, layer.transposed);
  if (config.scheme != Scheme::w8a8_static) return out;
  const Entry input = tensors.find(layer.name + ".input_scale");
  if (!input)
    return bad_tensor(weight.file->path(), layer.name + ".input_scale",
                      "expected this tensor, got none");
  const auto type = dtype_of_stored(input.tensor->type);
  if (!type || !is_float(*type) ||
      input.tensor->size() != static_cast<std::uint64_t>(bits(*type) / 8))
    return wrong(input, "one float");
  std::memcpy(&out.input_scale, widened(input, DType::f64).data(), sizeof(double));
  if (!std::isfinite(out.input_scale) || out.input_scale <= 0)
    return bad_tensor(input.file->path(), input.tensor->name,
                      fmt::format("expected a finite scale above 0, got {}", out.input_scale));
  return out;
}

void StoredLayer::read(std::int64_t first, std::int64_t count, QuantizedSlab& out) const {
  out.rows = count;
  out.channels = layer_.k;
  out.group_size = group_size_;
  out.compute = compute_;
  const std::size_t row = scales_per_row_ * (compute_ == DType::f64 ? 8 : 4);
  const auto at = scales_.begin() + static_cast<std::ptrdiff_t>(row) * first;
  out.scales.assign(at, at + static_cast<std::ptrdiff_t>(row) * count);
  if (packed_.empty()) {
    gather_rows(weight_, first, count, out.q);
    return;
  }
  out.q.resize(static_cast<std::size_t>(bytes_for(DType::s4, layer_.k) * count));
  unpack_rows(packed_.subspan(static_cast<std::size_t>(first) * packed_bytes(layer_.k)), count,
              layer_.k, out.q);
}

}  // namespace octavo::offline
