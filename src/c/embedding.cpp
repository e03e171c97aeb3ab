#include "octavo/embedding.hpp"

#include "c/boundary.hpp"

namespace octavo::c {
namespace {

EmbeddingDescriptor descriptor_of(Reader& reader, const octavo_embedding_desc* desc) {
  const octavo_embedding_desc given = reader.need("desc", desc);
  EmbeddingDescriptor d;
  d.m = given.m;
  d.rows = given.rows;
  d.columns = given.columns;
  d.table = reader.dtype("table", given.table);
  d.output = reader.dtype("output", given.output);
  d.group_size = given.group_size;
  d.zero_points = given.zero_points != 0;
  return d;
}

class Arguments {
 public:
  using Plan = EmbeddingPlan;
  static constexpr const char* select = "octavo_embedding_select";

  Arguments(Reader& reader, const Plan& /*plan*/, const octavo_embedding_args* given) {
    const octavo_embedding_args a = reader.need("args", given);
    if (!reader.ok()) return;
    args_.indices = reader.tensor("indices", a.indices);
    args_.table = reader.tensor("table", a.table);
    args_.scales = reader.maybe_tensor("scales", a.scales);
    args_.zero_points = reader.maybe_tensor("zero_points", a.zero_points);
    args_.output = reader.tensor("output", a.output);
  }
  [[nodiscard]] const EmbeddingArgs& get() const { return args_; }

 private:
  EmbeddingArgs args_;
};

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;

octavo_status octavo_embedding_select(const octavo_stream* stream,
                                      const octavo_embedding_desc* desc,
                                      const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&] {
    return c::select<octavo::EmbeddingPlan>(
        stream, preference, out, [&](c::Reader& reader) { return c::descriptor_of(reader, desc); });
  });
}
octavo_status octavo_embedding_can_implement(const octavo_plan* plan,
                                             const octavo_embedding_args* args) {
  return c::guarded([&] { return c::can_implement<c::Arguments>(plan, args); });
}
octavo_status octavo_embedding_run(const octavo_plan* plan, const octavo_stream* stream,
                                   void* workspace, size_t workspace_bytes,
                                   const octavo_embedding_args* args) {
  return c::guarded([&] {
    return c::run<c::Arguments>(plan, stream, {workspace, workspace_bytes}, args);
  });
}
