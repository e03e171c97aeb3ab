// The plan of embeddings: select, check, run. Neutral: it reads no tensor.
#include "core/check.hpp"
#include "core/memory_place.hpp"
#include "ops/embedding/implementation.hpp"

namespace octavo {
namespace {

using detail::check_type;
using detail::invalid;

Status check_problem(const EmbeddingDescriptor& d) {
  if (Status s = check_type<detail::EmbeddingTables>("table", d.table); !s) return s;
  if (Status s = check_type<detail::EmbeddingFloats>("output", d.output); !s) return s;
  if (d.m < 0) return invalid("m", fmt::format("expected 0 or more, got {}", d.m));
  if (d.rows < 0) return invalid("rows", fmt::format("expected 0 or more, got {}", d.rows));
  if (d.columns < 0)
    return invalid("columns", fmt::format("expected 0 or more, got {}", d.columns));
  for (const std::int64_t rows : {d.m, d.rows})
    if (const auto count = detail::count_elements("columns", {rows, d.columns}); !count)
      return count.error();
  if (d.group_size < 0 || d.group_size % 4 != 0)
    return invalid("group_size", fmt::format("expected a multiple of 4, got {}", d.group_size));
  if (d.group_size > 0 && d.columns % d.group_size != 0)
    return invalid("group_size", fmt::format("expected a divisor of columns = {}, got {}",
                                             d.columns, d.group_size));
  if (!is_float(d.table)) return {};
  if (d.group_size != 0)
    return invalid("group_size", fmt::format("expected none with a table of {}, got {}",
                                             name(d.table), d.group_size));
  if (d.zero_points)
    return invalid("zero_points",
                   fmt::format("expected none with a table of {}, got some", name(d.table)));
  return {};
}

// [rows, columns], with rows that may lie apart.
template <class Tensor>
Status check_matrix(const char* argument, const Tensor& t, std::int64_t rows,
                    std::int64_t columns) {
  if (!(t.shape == Shape{rows, columns}))
    return invalid(argument, fmt::format("expected shape [{}, {}], got {}", rows, columns,
                                         detail::to_string(t.shape)));
  if (rows > 0 && columns > 1 && t.strides[1] != 1)
    return invalid(argument, fmt::format("expected rows of consecutive elements (last stride 1), "
                                         "got strides {}; copy it first",
                                         detail::to_string(t.strides)));
  return {};
}

Status check_tensors(const detail::EmbeddingImpl& impl, const EmbeddingArgs& args) {
  const EmbeddingDescriptor& d = impl.problem;
  const auto count = detail::count_elements("indices", args.indices.shape);
  if (!count) return count.error();
  if (*count > d.m)
    return invalid("indices", fmt::format("expected at most {}, as the plan was made for, got {}",
                                          d.m, *count));
  const auto indices = detail::check_array("indices", args.indices, DType::s32, *count);
  if (!indices) return indices.error();
  const auto table = detail::check_input("table", args.table, d.table);
  if (!table) return table.error();
  if (Status s = check_matrix("table", args.table, d.rows, d.columns); !s) return s;
  const auto output = detail::check_output("output", args.output, d.output);
  if (!output) return output.error();
  if (Status s = check_matrix("output", args.output, *count, d.columns); !s) return s;

  const auto apart = [&](const char* argument, const detail::Extent& extent) -> Status {
    if (!extent.overlaps(output->extent)) return {};
    return invalid("output",
                   fmt::format("expected memory apart from {}, got an overlap", argument));
  };
  if (Status s = apart("indices", indices->extent); !s) return s;
  if (Status s = apart("table", table->extent); !s) return s;
  const auto parameters = [&](const char* argument, const TensorRef& t, bool wanted,
                              DType type) -> Status {
    const bool given = t.data != nullptr || t.shape.rank() > 0;
    if (!wanted)
      return given ? Status(invalid(argument, "expected none, as the plan was made for, got some"))
                   : Status();
    if (!given && d.rows > 0)
      return invalid(argument,
                     fmt::format("expected shape [{}, {}], got none", d.rows, impl.groups()));
    const auto checked = detail::check_array(argument, t, type, given ? d.rows * impl.groups() : 0);
    return checked ? apart(argument, checked->extent) : Status(checked.error());
  };
  const bool quantized = !is_float(d.table);
  if (quantized && (args.scales.data != nullptr || args.scales.shape.rank() > 0))
    if (Status s = check_type<numerics::FloatTypes>("scales", args.scales.dtype); !s) return s;
  if (Status s = parameters("scales", args.scales, quantized, args.scales.dtype); !s) return s;
  return parameters("zero_points", args.zero_points, d.zero_points, DType::s32);
}

// That all of it is memory of the backend.
Status check_memory(const detail::EmbeddingImpl& impl, const EmbeddingArgs& args, int device) {
  const auto of = [](const auto& t) -> const void* {
    for (int i = 0; i < t.shape.rank(); ++i)
      if (t.shape[i] == 0) return nullptr;
    return t.data;
  };
  return detail::check_memory(impl.sku.backend, device,
                              {{"indices", of(args.indices)},
                               {"table", of(args.table)},
                               {"scales", of(args.scales)},
                               {"zero_points", of(args.zero_points)},
                               {"output", of(args.output)}});
}

}  // namespace

namespace detail {

Error wrong_index(std::int64_t rows, std::int32_t index, std::int64_t at) {
  return invalid("indices",
                 fmt::format("expected 0 to {} (the table has {} rows), got {} at index {}",
                             rows - 1, rows, index, at));
}
Error wrong_scale(float scale, std::int64_t at) {
  return invalid("scales",
                 fmt::format("expected finite scales, got {} (as f32) at index {}", scale, at));
}
Error wrong_zero_point(DType table, std::int32_t zero_point, std::int64_t at) {
  const IntRange range = storage_range(table);
  return invalid("zero_points",
                 fmt::format("expected {} to {}, the range of {}, got {} at index {}", range.min,
                             range.max, name(table), zero_point, at));
}

}  // namespace detail

Result<EmbeddingPlan> EmbeddingPlan::select(const Stream& stream, const Descriptor& descriptor,
                                            const PlanPreference& preference) {
  EmbeddingDescriptor d = descriptor;
  if (d.group_size >= d.columns && d.group_size > 0 && !is_float(d.table)) d.group_size = 0;
  if (Status s = check_problem(d); !s) return s.error();
  const auto allowed = detail::allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen = detail::choose(
      *allowed, d, {detail::cpu_embedding(), detail::cuda_embedding(), detail::test_embedding});
  if (!chosen) return chosen.error();
  KernelSku& sku = chosen->impl->sku;
  sku.category = Category::embedding;
  sku.op = Op::embedding;
  sku.element = d.output;
  sku.aux_element = d.table;
  sku.layout = d.group_size == 0 ? Layout::per_token : Layout::per_group;
  sku.target = chosen->at.target;
  sku.backend = chosen->at.backend;
  return EmbeddingPlan(std::move(chosen->impl));
}

const KernelSku& EmbeddingPlan::sku() const noexcept { return impl_->sku; }

Status EmbeddingPlan::can_implement(const Args& args) const {
  if (Status s = check_tensors(*impl_, args); !s) return s;
  if (Status s = check_memory(*impl_, args, -1); !s) return s;
  return impl_->check_values(args);
}

Status EmbeddingPlan::run(const Stream& stream, Workspace /*workspace*/, const Args& args) const {
  if (Status s = detail::check_stream(stream, impl_->sku.backend); !s) return s;
  if (Status s = check_tensors(*impl_, args); !s) return s;
  if (Status s = check_memory(*impl_, args, stream.impl().device); !s) return s;
  return impl_->run(stream, args);
}

}  // namespace octavo
