#include "octavo/packed_weight.hpp"

#include "c/boundary.hpp"

namespace octavo::c {
namespace {

PackWeightDescriptor descriptor_of(Reader& reader, const octavo_pack_desc* desc) {
  const octavo_pack_desc d = reader.need("desc", desc);
  return {.n = d.n,
          .k = d.k,
          .weight = reader.dtype("weight", d.weight),
          .group_size = d.group_size,
          .scale = reader.dtype("scale", d.scale).value_or(DType::f32),
          .zero_points = d.zero_points != 0,
          .offset = d.offset != 0};
}

class Arguments {
 public:
  using Plan = PackWeightPlan;
  static constexpr const char* select = "octavo_pack_select";

  Arguments(Reader& reader, const Plan& /*plan*/, const octavo_pack_args* given) {
    const octavo_pack_args a = reader.need("args", given);
    if (!reader.ok()) return;
    args_.weight = reader.tensor("weight", a.weight);
    args_.scales = reader.maybe_tensor("scales", a.scales);
    args_.zero_points = reader.maybe_tensor("zero_points", a.zero_points);
    if (reader.not_null("packed", a.packed)) args_.packed = &a.packed->packed;
  }
  [[nodiscard]] const PackWeightArgs& get() const { return args_; }

 private:
  PackWeightArgs args_;
};

// An image, read by one of the ways there are.
template <class Read>
Status read_image(const void* image, std::size_t bytes, octavo_packed_weight** out, Read read) {
  Reader reader;
  reader.not_null("image", image);
  reader.not_null("out", out);
  if (!reader.ok()) return reader.error();
  const Result<PackedWeight> packed = read(std::span(static_cast<const std::byte*>(image), bytes));
  if (!packed) return packed.error();
  return give(octavo_packed_weight{*packed}, out);
}

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;
using octavo::Status;

octavo_status octavo_pack_select(const octavo_stream* stream, const octavo_pack_desc* desc,
                                 const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&] {
    return c::select<octavo::PackWeightPlan>(
        stream, preference, out, [&](c::Reader& reader) { return c::descriptor_of(reader, desc); });
  });
}
octavo_status octavo_pack_make_packed(const octavo_plan* plan, octavo_packed_weight** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    const auto* p = c::plan_of<octavo::PackWeightPlan>(reader, plan, c::Arguments::select);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    octavo::Result<octavo::PackedWeight> made = p->make_packed();
    if (!made) return made.error();
    return c::give(octavo_packed_weight{std::move(*made)}, out);
  });
}
octavo_status octavo_pack_can_implement(const octavo_plan* plan, const octavo_pack_args* args) {
  return c::guarded([&] { return c::can_implement<c::Arguments>(plan, args); });
}
octavo_status octavo_pack_run(const octavo_plan* plan, const octavo_stream* stream, void* workspace,
                              size_t workspace_bytes, const octavo_pack_args* args) {
  return c::guarded([&] {
    return c::run<c::Arguments>(plan, stream, {workspace, workspace_bytes}, args);
  });
}

octavo_status octavo_pack_weight(const octavo_stream* stream, const octavo_tensor* weight,
                                 octavo_packed_weight** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    const octavo::Stream* on = reader.stream(stream);
    const octavo::TensorRef rows = reader.tensor("weight", weight);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto packed = octavo::pack(*on, rows);
    if (!packed) return packed.error();
    return c::give(octavo_packed_weight{*packed}, out);
  });
}
octavo_status octavo_pack_weight_groups(const octavo_stream* stream, const octavo_tensor* weight,
                                        int64_t group_size, const octavo_tensor* scales,
                                        const octavo_tensor* zero_points,
                                        octavo_packed_weight** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    const octavo::Stream* on = reader.stream(stream);
    const octavo::TensorRef rows = reader.tensor("weight", weight);
    const octavo::WeightGroups groups{group_size, reader.tensor("scales", scales),
                                      reader.maybe_tensor("zero_points", zero_points)};
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto packed = octavo::pack(*on, rows, groups);
    if (!packed) return packed.error();
    return c::give(octavo_packed_weight{*packed}, out);
  });
}
octavo_status octavo_packed_weight_get_info(const octavo_packed_weight* packed,
                                            octavo_packed_weight_info* out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("packed", packed);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const octavo::PackedWeight& w = packed->packed;
    octavo_packed_weight_info known{};
    known.n = w.n();
    known.k = w.k();
    known.dtype = static_cast<octavo_dtype>(w.dtype());
    known.bytes = w.bytes();
    known.serialized_bytes = w.serialized_bytes();
    const octavo::WeightFormat format = w.format();
    known.group_size = format.group;
    known.layout = static_cast<int32_t>(format.layout);
    known.scale = static_cast<octavo_dtype>(format.scales);
    known.zero_points = format.zero_points ? 1 : 0;
    return c::write_struct("out", &known, sizeof known, out);
  });
}
octavo_status octavo_packed_weight_to(const octavo_packed_weight* packed,
                                      const octavo_stream* stream, octavo_packed_weight** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("packed", packed);
    const octavo::Stream* on = reader.stream(stream);
    reader.not_null("out", out);
    if (!reader.ok()) return reader.error();
    const auto moved = packed->packed.to(*on);
    if (!moved) return moved.error();
    return c::give(octavo_packed_weight{*moved}, out);
  });
}
octavo_status octavo_packed_weight_serialize(const octavo_packed_weight* packed, void* image,
                                             size_t bytes) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("packed", packed);
    reader.not_null("image", image);
    if (!reader.ok()) return reader.error();
    return packed->packed.serialize(std::span(static_cast<std::byte*>(image), bytes));
  });
}
octavo_status octavo_packed_weight_deserialize(const void* image, size_t bytes,
                                               octavo_packed_weight** out) {
  return c::guarded([&] {
    return c::read_image(image, bytes, out, [](std::span<const std::byte> read) {
      return octavo::PackedWeight::deserialize(read);
    });
  });
}
octavo_status octavo_packed_weight_deserialize_in_place(const void* image, size_t bytes,
                                                        octavo_packed_weight** out) {
  return c::guarded([&] {
    return c::read_image(image, bytes, out, [](std::span<const std::byte> read) {
      // The caller keeps it; so there is nothing to do when it is no longer needed.
      return octavo::PackedWeight::deserialize_in_place(
          read, std::shared_ptr<const void>(read.data(), [](const void* /*image*/) {}));
    });
  });
}
octavo_status octavo_packed_weight_unpack(const octavo_packed_weight* packed,
                                          const octavo_tensor* weight, const octavo_tensor* scales,
                                          const octavo_tensor* zero_points) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("packed", packed);
    const octavo::TensorMut rows = reader.tensor("weight", weight);
    const octavo::TensorMut to_scales = reader.maybe_tensor("scales", scales);
    const octavo::TensorMut to_zero_points = reader.maybe_tensor("zero_points", zero_points);
    if (!reader.ok()) return reader.error();
    return packed->packed.unpack(rows, to_scales, to_zero_points);
  });
}
void octavo_packed_weight_destroy(octavo_packed_weight* packed) { delete packed; }
