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

// What holds its integers, packed or not.
Entry weight_of(const SafetensorsSet& tensors, const std::string& layer) {
  const Entry packed = tensors.find(layer + ".weight_packed");
  return packed ? packed : tensors.find(layer + ".weight");
}

}  // namespace

bool StoredLayer::exists(const SafetensorsSet& tensors, const std::string& layer) {
  const Entry weight = tensors.find(layer + ".weight");
  return static_cast<bool>(tensors.find(layer + ".weight_packed")) ||
         (weight && weight.tensor->type == StoredType::I8);
}

Result<const ConfigGroup*> StoredLayer::listed(const SafetensorsSet& tensors,
                                               const LinearLayer& layer,
                                               const ConfigSettings& config) {
  const Entry weight = weight_of(tensors, layer.name);
  const bool is_there = exists(tensors, layer.name);
  // Loaders do not agree on whether a class is meant to name heads; float ones do no harm.
  if (!weight || (!is_there && layer.kind != LayerKind::linear)) return nullptr;
  auto group = config.group_of(tensors, layer);
  if (!group || is_there == (*group != nullptr)) return group;
  return wrong(weight, *group != nullptr
                           ? fmt::format("a layer of {}, for config.json does not ignore it",
                                         octavo::name((*group)->form.scheme))
                           : "a float weight, for config.json has this layer among those it "
                             "ignores, or not among its targets");
}

Status StoredLayer::read_scales(const SafetensorsSet& tensors, bool one_scale) {
  const Entry scale = tensors.find(layer_.name + ".weight_scale");
  if (!scale)
    return bad_tensor(weight_of(tensors, layer_.name).file->path(), layer_.name + ".weight_scale",
                      "expected this tensor, got none");
  const auto type = dtype_of_stored(scale.tensor->type);
  if (!type || !is_float(*type)) return wrong(scale, "a float type");
  compute_ = compute_type(*type);
  scales_ = widened(scale, compute_);
  bytes += scale.tensor->size();
  const auto n = static_cast<std::uint64_t>(layer_.n), k = static_cast<std::uint64_t>(layer_.k);
  const std::uint64_t scales = scales_.size() / (compute_ == DType::f64 ? 8 : 4);
  if (const std::size_t at = first_not_finite(scales_, compute_); at != scales)
    return bad_tensor(scale.file->path(), scale.tensor->name,
                      fmt::format("expected finite scales, got another at index {}", at));
  if (form_.group_size > 0) {
    const auto group = static_cast<std::uint64_t>(form_.group_size);
    if (k % group != 0)
      return wrong(weight_of(tensors, layer_.name),
                   fmt::format("input channels in groups of {}", group));
    scales_per_row_ = k / group;
    if (scale.tensor->shape != std::vector<std::uint64_t>{n, scales_per_row_})
      return wrong(scale, fmt::format("[{}, {}], for groups of {}", n, scales_per_row_, group));
    return {};
  }
  if (scales != (one_scale ? 1 : n))
    return wrong(scale, one_scale ? "[1], for config.json says one scale for a tensor"
                                  : fmt::format("[{}, 1], a scale for each channel", n));
  if (one_scale) {  // for all rows
    const std::vector<std::byte> one = scales_;
    for (std::uint64_t i = 1; i < n; ++i) scales_.insert(scales_.end(), one.begin(), one.end());
  }
  return {};
}

// Words of integers and of zero points, and the shape that they had.
Status StoredLayer::read_packed(const SafetensorsSet& tensors) {
  const Entry packed = tensors.find(layer_.name + ".weight_packed");
  const auto n = static_cast<std::uint64_t>(layer_.n), k = static_cast<std::uint64_t>(layer_.k);
  const auto words = static_cast<std::uint64_t>(packed_words(code_of(form_.scheme), layer_.k));
  if (packed.tensor->type != StoredType::I32 ||
      packed.tensor->shape != std::vector<std::uint64_t>{n, words})
    return wrong(packed, fmt::format("I32 [{}, {}]", n, words));
  packed_ = packed.file->bytes(*packed.tensor);
  const Entry zero_points = tensors.find(layer_.name + ".weight_zero_point");
  if (form_.asymmetric && !zero_points)
    return bad_tensor(packed.file->path(), layer_.name + ".weight_zero_point",
                      "expected this tensor, for config.json says asymmetric, got none");
  if (zero_points) {
    const std::vector<std::uint64_t> shape{(n + 7) / 8, scales_per_row_};
    if (zero_points.tensor->type != StoredType::I32 || zero_points.tensor->shape != shape)
      return wrong(zero_points, "I32 " + to_string(shape));
    zero_points_ = zero_points.file->bytes(*zero_points.tensor);
    bytes += zero_points_.size();
  }
  const Entry stored = tensors.find(layer_.name + ".weight_shape");
  if (!stored) return {};
  std::array<std::int64_t, 2> sizes{};
  const auto shape = stored.file->bytes(*stored.tensor);
  if (stored.tensor->type != StoredType::I64 || shape.size() != sizeof(sizes))
    return wrong(stored, "I64 [2]");
  std::memcpy(sizes.data(), shape.data(), sizeof(sizes));
  bytes += shape.size();
  if (sizes == std::array{layer_.n, layer_.k}) return {};
  return bad_tensor(stored.file->path(), stored.tensor->name,
                    fmt::format("expected {} and {}, the shape of the float weight, got {} and {}",
                                n, k, sizes[0], sizes[1]));
}

Status StoredLayer::read_input_scale(const SafetensorsSet& tensors) {
  const Entry input = tensors.find(layer_.name + ".input_scale");
  if (!input)
    return bad_tensor(weight_of(tensors, layer_.name).file->path(), layer_.name + ".input_scale",
                      "expected this tensor, got none");
  const auto type = dtype_of_stored(input.tensor->type);
  if (!type || !is_float(*type) ||
      input.tensor->size() != static_cast<std::uint64_t>(bits(*type) / 8))
    return wrong(input, "one float");
  std::memcpy(&input_scale, widened(input, DType::f64).data(), sizeof(double));
  bytes += input.tensor->size();
  if (std::isfinite(input_scale) && input_scale > 0) return {};
  return bad_tensor(input.file->path(), input.tensor->name,
                    fmt::format("expected a finite scale above 0, got {}", input_scale));
}

Result<StoredLayer> StoredLayer::open(const SafetensorsSet& tensors, const LinearLayer& layer,
                                      const LayerForm& form, bool one_scale) {
  StoredLayer out;
  out.layer_ = layer;
  out.form_ = form;
  const bool packed = is_packed(form.scheme);
  const Entry weight = weight_of(tensors, layer.name);
  if (static_cast<bool>(tensors.find(layer.name + ".weight_packed")) != packed)
    return wrong(weight,
                 fmt::format("{}{} of {}-bit integers, as config.json says", layer.name,
                             packed ? ".weight_packed" : ".weight", weight_bits(form.scheme)));
  std::vector<const char*> others{".weight_g_idx"};
  if (packed) others.push_back(".weight");
  if (form.scheme != Scheme::w8a8_static) others.push_back(".input_scale");
  for (const char* end : others)
    if (const Entry other = tensors.find(layer.name + end))
      return wrong(other,
                   fmt::format("no such tensor, for config.json says {}", name(form.scheme)));
  // Read without it, an asymmetric layer would be measured as another one.
  for (const char* end : {".weight_zero_point", ".input_zero_point"})
    if (const Entry other = tensors.find(layer.name + end);
        other && (!form.asymmetric || end[1] == 'i'))
      return wrong(other, "no zero point, for config.json says symmetric");
  out.bytes = weight.tensor->size();
  if (Status s = out.read_scales(tensors, one_scale); !s) return s.error();
  if (packed) {
    if (Status s = out.read_packed(tensors); !s) return s.error();
    return out;
  }
  const auto n = static_cast<std::uint64_t>(layer.n), k = static_cast<std::uint64_t>(layer.k);
  const std::vector<std::uint64_t> shape =
      layer.transposed ? std::vector<std::uint64_t>{k, n} : std::vector<std::uint64_t>{n, k};
  if (weight.tensor->shape != shape) return wrong(weight, "I8 " + to_string(shape));
  out.weight_ = matrix_view(*weight.file, *weight.tensor, DType::s8, layer.transposed);
  if (form.scheme == Scheme::w8a8_static)
    if (Status s = out.read_input_scale(tensors); !s) return s.error();
  return out;
}

void StoredLayer::read(std::int64_t first, std::int64_t count, QuantizedSlab& out) const {
  out.rows = count;
  out.channels = layer_.k;
  out.form = form_;
  out.compute = compute_;
  const std::size_t row = scales_per_row_ * (compute_ == DType::f64 ? 8 : 4);
  const auto at = scales_.begin() + static_cast<std::ptrdiff_t>(row) * first;
  out.scales.assign(at, at + static_cast<std::ptrdiff_t>(row) * count);
  out.zero_points.clear();
  const auto groups = static_cast<std::int64_t>(scales_per_row_);
  for (std::int64_t i = 0; i < (form_.asymmetric ? count * groups : 0); ++i)
    out.zero_points.push_back(zero_point_at(zero_points_, groups, first + i / groups, i % groups));
  if (!is_packed(form_.scheme)) {
    gather_rows(weight_, first, count, out.q);
    return;
  }
  const DType code = out.code();
  out.q.resize(static_cast<std::size_t>(bytes_for(code, layer_.k) * count));
  unpack_rows(code, packed_.subspan(static_cast<std::size_t>(first) * packed_bytes(code, layer_.k)),
              count, layer_.k, out.q);
}

}  // namespace octavo::offline
