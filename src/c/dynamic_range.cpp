#include "octavo/dynamic_range_quantize.hpp"

#include "c/boundary.hpp"

namespace octavo::c {
namespace {

DynamicRangeQuantizeDescriptor descriptor_of(Reader& reader,
                                             const octavo_dynamic_range_desc* desc) {
  const octavo_dynamic_range_desc given = reader.need("desc", desc);
  DynamicRangeQuantizeDescriptor d;
  d.shape = reader.sizes("shape", given.rank, given.shape);
  d.mode = reader.enumerator<RangeMode>("mode", given.mode, 2);
  d.scope = reader.layout("scope", given.scope);
  d.axis = given.axis;
  d.group_size = given.group_size;
  d.input = reader.dtype("input", given.input);
  d.output = reader.dtype("output", given.output);
  d.q_min = to_optional(given.q_min);
  d.q_max = to_optional(given.q_max);
  d.profile = reader.profile(given.profile);
  return d;
}

class Arguments {
 public:
  using Plan = DynamicRangeQuantizePlan;
  static constexpr const char* select = "octavo_dynamic_range_select";

  Arguments(Reader& reader, const Plan& /*plan*/, const octavo_dynamic_range_args* given) {
    const octavo_dynamic_range_args a = reader.need("args", given);
    if (!reader.ok()) return;
    args_.input = reader.tensor("input", a.input);
    args_.output = reader.tensor("output", a.output);
    args_.scales = reader.tensor("scales", a.scales);
    args_.zero_points = reader.maybe_tensor("zero_points", a.zero_points);
  }
  [[nodiscard]] const DynamicRangeQuantizeArgs& get() const { return args_; }

 private:
  DynamicRangeQuantizeArgs args_;
};

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;

octavo_status octavo_dynamic_range_select(const octavo_stream* stream,
                                          const octavo_dynamic_range_desc* desc,
                                          const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&] {
    return c::select<octavo::DynamicRangeQuantizePlan>(
        stream, preference, out, [&](c::Reader& reader) { return c::descriptor_of(reader, desc); });
  });
}
octavo_status octavo_dynamic_range_can_implement(const octavo_plan* plan,
                                                 const octavo_dynamic_range_args* args) {
  return c::guarded([&] { return c::can_implement<c::Arguments>(plan, args); });
}
octavo_status octavo_dynamic_range_run(const octavo_plan* plan, const octavo_stream* stream,
                                       void* workspace, size_t workspace_bytes,
                                       const octavo_dynamic_range_args* args) {
  return c::guarded([&] {
    return c::run<c::Arguments>(plan, stream, {workspace, workspace_bytes}, args);
  });
}
