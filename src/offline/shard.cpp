// One file of the result: a list of pieces, each worked on by one thread and written where it goes.
#include "offline/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"
#include "offline/packed_rows.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo::offline {
namespace {

constexpr std::uint64_t copy_bytes = std::uint64_t{1} << 20;

std::span<const std::byte> as_bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

StoredMetadata metadata_of(const ShardJob& job) {
  const QuantizeOptions& options = job.plan->options;
  StoredMetadata metadata = job.file->metadata();
  std::vector<std::string_view> schemes;
  for (const FormCount& f : forms_of(*job.plan)) schemes.push_back(name(f.form.scheme));
  metadata["octavo.scheme"] = fmt::format("{}", fmt::join(schemes, ", "));
  if (options.smooth) {
    metadata["octavo.smoothing"] = "absmax";
    metadata["octavo.alpha"] = options.alpha ? fmt::format("{}", *options.alpha) : "auto";
  }
  return metadata;
}

// Whether an earlier run left this very file: its size and its header.
bool is_finished(const std::filesystem::path& path, const std::string& header,
                 std::uint64_t data_bytes) {
  const auto opened = open_file(path);
  if (!opened || opened->stamp.size != header.size() + data_bytes) return false;
  const auto start = read_start(opened->file, path.string(), header.size());
  return start && *start == header;
}

}  // namespace

Result<std::unique_ptr<Shard>> Shard::open(ShardJob job) {
  return guarded(job.to.string(), [&]() -> Result<std::unique_ptr<Shard>> {
    std::vector<OutputTensor> tensors = job.index->tensors_of(*job.file);
    std::vector<StoredTensorSpec> specs;
    specs.reserve(tensors.size());
    std::uint64_t bytes = 0;
    for (const OutputTensor& t : tensors) {
      specs.push_back(t.spec);
      bytes += t.bytes();
    }
    const StoredMetadata metadata = metadata_of(job);
    const auto header = safetensors_header(specs, metadata);
    if (!header) return header.error();
    if (is_finished(job.to, *header, bytes)) return std::unique_ptr<Shard>();
    auto writer = SafetensorsWriter::create(job.to, std::move(specs), metadata);
    if (!writer) return writer.error();
    return std::unique_ptr<Shard>(
        new Shard(std::move(job), std::move(tensors), *std::move(writer)));
  });
}

Shard::Shard(ShardJob job, std::vector<OutputTensor> tensors, SafetensorsWriter writer)
    : job_(std::move(job)),
      tensors_(std::move(tensors)),
      writer_(std::move(writer)) {
  for (const OutputTensor& t : tensors_) add_pieces(t);
  sums_.resize(pieces_.size());
}

Status Shard::finish() {
  if (Status s = writer_.finish(); !s) return s;
  for (std::size_t begin = 0, end = 0; begin < pieces_.size(); begin = end) {
    const OutputTensor* const tensor = pieces_[begin].tensor;
    while (end < pieces_.size() && pieces_[end].tensor == tensor) ++end;
    if (tensor->kind == OutputTensor::Kind::quantized && job_.plan->measured)
      job_.measured(error_of(probe_of(*job_.plan, *job_.scales, *tensor->layer),
                             std::span(sums_).subspan(begin, end - begin)));
  }
  return {};
}

Status Shard::run(const Stream& one, std::size_t piece, Scratch& scratch) {
  const Piece& p = pieces_[piece];
  switch (p.tensor->kind) {
    case OutputTensor::Kind::copy:
      return copy(p);
    case OutputTensor::Kind::norm:
      return norm(p);
    case OutputTensor::Kind::scaled:
      return scaled(one, p, scratch);
    case OutputTensor::Kind::quantized:
      return quantized(one, p, scratch);
  }
  return {};
}

void Shard::add_pieces(const OutputTensor& t) {
  if (t.source == nullptr) return;  // written along with its layer's weight
  const auto add = [&](std::int64_t all, std::int64_t step) {
    for (std::int64_t at = 0; at < all; at += step)
      pieces_.push_back({&t, at, std::min(step, all - at)});
  };
  if (t.kind == OutputTensor::Kind::copy)
    add(static_cast<std::int64_t>(t.bytes()), copy_bytes);
  else if (t.kind == OutputTensor::Kind::norm)
    add(1, 1);
  else
    add(view_of(t).shape[0],
        rows_per_slab(view_of(t), t.layer != nullptr ? t.layer->form : LayerForm()));
}

TensorRef Shard::view_of(const OutputTensor& t) const {
  if (t.layer != nullptr)
    return matrix_view(*job_.file, *t.source, t.layer->layer.type, t.layer->layer.transposed);
  const LinearLayer* layer = job_.plan->checkpoint->layer(parent(t.source->name));
  return matrix_view(*job_.file, *t.source, *dtype_of_stored(t.source->type),
                     layer != nullptr && layer->transposed);
}

// The source is read once; its pages may go.
void Shard::finished(std::span<const std::byte> source) const {
  job_.file->release(source);
  job_.done(source.size());
}

void Shard::finished_rows(const Piece& piece, const TensorRef& w) const {
  const auto row = static_cast<std::size_t>(w.shape[1] * (bits(w.dtype) / 8));
  const std::size_t bytes = row * static_cast<std::size_t>(piece.count);
  if (w.strides[1] == 1)
    finished(job_.file->bytes(*piece.tensor->source)
                 .subspan(row * static_cast<std::size_t>(piece.first), bytes));
  else
    job_.done(bytes);
}

Status Shard::copy(const Piece& piece) {
  const auto bytes =
      job_.file->bytes(*piece.tensor->source)
          .subspan(static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.count));
  if (Status s =
          writer_.write(piece.tensor->spec.name, static_cast<std::uint64_t>(piece.first), bytes);
      !s)
    return s;
  finished(bytes);
  return {};
}

Status Shard::norm(const Piece& piece) {
  const StoredTensor& source = *piece.tensor->source;
  const auto bytes = job_.file->bytes(source);
  std::vector<std::byte> values(bytes.begin(), bytes.end());
  const TensorMut view(values.data(), *dtype_of_stored(source.type),
                       {static_cast<std::int64_t>(source.shape[0])});
  if (Status s = divide_vector(job_.file->path(), source.name, view,
                               job_.scales->smoothing[piece.tensor->pair]);
      !s)
    return s;
  job_.done(bytes.size());
  return writer_.write(source.name, values);
}

void Shard::gather_smoothed(const Stream& one, const Piece& piece, const TensorRef& w,
                            std::size_t pair, std::vector<std::byte>& to) const {
  const std::vector<float>& scales = job_.scales->smoothing[pair];
  const std::int64_t row = w.shape[1] * (bits(w.dtype) / 8);
  const void* from = static_cast<const std::byte*>(w.data) + piece.first * row;
  if (w.strides[1] != 1 || !is_aligned(w)) {
    gather_rows(w, piece.first, piece.count, to);
    from = to.data();
  }
  to.resize(static_cast<std::size_t>(row * piece.count));
  scale_columns(one, w.dtype, from, piece.count, scales, to.data());
}

Status Shard::scaled(const Stream& one, const Piece& piece, Scratch& scratch) {
  const TensorRef w = view_of(*piece.tensor);
  gather_smoothed(one, piece, w, piece.tensor->pair, scratch.rows);
  finished_rows(piece, w);
  return write_matrix(piece, w, scratch.rows, bits(w.dtype) / 8, scratch);
}

// Rows of [n, k], back in the order in which the source has them.
Status Shard::write_matrix(const Piece& piece, const TensorRef& w, std::span<const std::byte> rows,
                           std::int64_t element, Scratch& scratch) {
  const std::int64_t n = w.shape[0], k = w.shape[1];
  const auto at = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * element);
  };
  if (w.strides[1] == 1) return writer_.write(piece.tensor->spec.name, at(piece.first * k), rows);
  std::vector<std::byte>& strips = scratch.strip;
  strips.resize(rows.size());
  transpose(rows.data(), {piece.count, k}, {k, 1}, element, strips.data());
  for (std::int64_t column = 0; column < k; ++column)
    if (Status s =
            writer_.write(piece.tensor->spec.name, at(column * n + piece.first),
                          std::span(strips).subspan(at(column * piece.count), at(piece.count)));
        !s)
      return s;
  return {};
}

Status Shard::quantized(const Stream& one, const Piece& piece, Scratch& scratch) {
  const PlannedLayer& planned = *piece.tensor->layer;
  const TensorRef w = view_of(*piece.tensor);
  const std::int64_t k = planned.layer.k;
  // As it lies in the file, if plans can read it there.
  const void* data = static_cast<const std::byte*>(w.data) + piece.first * k * (bits(w.dtype) / 8);
  if (planned.pair) {
    gather_smoothed(one, piece, w, *planned.pair, scratch.rows);
    data = scratch.rows.data();
  } else if (w.strides[1] != 1 || !is_aligned(w)) {
    gather_rows(w, piece.first, piece.count, scratch.rows);
    data = scratch.rows.data();
  }
  QuantizedSlab& slab = scratch.slab;
  if (Status s = quantize_slab(one, data, w.dtype, piece.count, k, planned.form, slab); !s)
    return bad_tensor(job_.file->path(), piece.tensor->source->name, s.error().message());
  if (job_.plan->measured)
    if (Status s = measure(one, piece, w, scratch); !s) return s;
  finished_rows(piece, w);
  Status status = is_packed(planned.form.scheme) ? write_packed(piece, scratch)
                                                 : write_matrix(piece, w, slab.q, 1, scratch);
  if (status) status = write_scales(piece, scratch);
  if (status && piece.first == 0) status = write_companions(planned);
  return status;
}

Status Shard::write_packed(const Piece& piece, Scratch& scratch) {
  const QuantizedSlab& slab = scratch.slab;
  const std::size_t row = packed_bytes(slab.code(), slab.channels);
  std::vector<std::byte>& packed = scratch.strip;
  packed.resize(row * static_cast<std::size_t>(piece.count));
  pack_rows(slab.code(), slab.q, piece.count, slab.channels, packed);
  return writer_.write(piece.tensor->spec.name, static_cast<std::uint64_t>(piece.first) * row,
                       packed);
}

Status Shard::write_scales(const Piece& piece, Scratch& scratch) {
  const QuantizedSlab& slab = scratch.slab;
  const LinearLayer& layer = piece.tensor->layer->layer;
  std::vector<std::byte>& scales = scratch.strip;
  store_scales(slab, scale_type(slab.form.scheme, layer.type), scales);
  const std::size_t per_row = scales.size() / static_cast<std::size_t>(piece.count);
  if (Status s = writer_.write(layer.name + ".weight_scale",
                               static_cast<std::uint64_t>(piece.first) * per_row, scales);
      !s || !slab.form.asymmetric)
    return s;
  // (A piece begins at the first nibble of a word.)
  const std::int64_t groups = slab.channels / slab.group(), rows = (piece.count + 7) / 8;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(rows * groups));
  pack_zero_points(slab.zero_points, piece.count, groups, words);
  return writer_.write(layer.name + ".weight_zero_point",
                       static_cast<std::uint64_t>(piece.first / 8 * groups) * sizeof(words[0]),
                       std::as_bytes(std::span(words)));
}

Status Shard::write_companions(const PlannedLayer& planned) {
  const std::string& layer = planned.layer.name;
  if (is_packed(planned.form.scheme)) {
    const std::int64_t shape[] = {planned.layer.n, planned.layer.k};
    return writer_.write(layer + ".weight_shape", as_bytes_of(shape, sizeof(shape)));
  }
  if (planned.form.scheme != Scheme::w8a8_static) return {};
  const float scale = input_scale(*job_.plan, *job_.scales, planned);
  return writer_.write(layer + ".input_scale", as_bytes_of(&scale, sizeof(scale)));
}

Status Shard::measure(const Stream& one, const Piece& piece, const TensorRef& w, Scratch& scratch) {
  gather_rows(w, piece.first, piece.count, scratch.measured);
  // The rows are copied for each piece: that is little beside multiplying them with it.
  return measure_slab(one, probe_of(*job_.plan, *job_.scales, *piece.tensor->layer), w.dtype,
                      scratch.measured, scratch.slab,
                      sums_[static_cast<std::size_t>(&piece - pieces_.data())]);
}

}  // namespace octavo::offline
