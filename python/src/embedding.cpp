#include "octavo/embedding.hpp"

#include <bit>

#include "linear_call.hpp"
#include "plan_cache.hpp"

namespace octavo::python {
namespace {

void refuse_embedding(const Error& error, bool selecting) {
  refuse(error, {{"m", "indices"},
                 {"rows", "table"},
                 {"columns", "table"},
                 {"scales", "scale"},
                 {"zero_points", "zero_point"},
                 {"output", selecting ? "out_dtype" : "out"}});
}

std::shared_ptr<const EmbeddingPlan> cached(const Stream& stream, const EmbeddingDescriptor& d) {
  static auto* cache = new PlanCache<EmbeddingDescriptor, EmbeddingPlan>();
  return cache->get(stream, d, [&] {
    const Result<EmbeddingPlan> plan = EmbeddingPlan::select(stream, d);
    if (!plan) refuse_embedding(plan.error(), true);
    return *plan;
  });
}

// The indices' shape, and one dimension more.
Shape output_shape(const Numbers& indices, std::int64_t columns) {
  const int rank = indices.shape().rank();
  if (rank == max_rank)
    invalid("indices", fmt::format("expected at most {} dimensions (the output has one more), got "
                                   "{}",
                                   max_rank - 1, rank));
  std::array<std::int64_t, max_rank> sizes{};
  for (int i = 0; i < rank; ++i) sizes[static_cast<std::size_t>(i)] = indices.shape()[i];
  sizes[static_cast<std::size_t>(rank)] = columns;
  return {std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank) + 1)};
}

void not_with_floats(nb::handle value, const char* argument, DType table) {
  if (!value.is_none())
    invalid(argument, fmt::format("expected None (a table of {} has none), got {}",
                                  octavo::name(table), describe(value)));
}

}  // namespace

nb::object embedding(nb::handle indices, nb::handle table, nb::handle scale, nb::handle zero_point,
                     nb::handle group_size, nb::handle q_dtype, nb::handle length,
                     nb::handle out_dtype, nb::handle out, nb::handle stream) {
  On on(stream);
  Numbers rows(indices, "indices", true, on);
  if (!rows.given()) invalid("indices", "expected an integer or an array of them, got None");
  const Rows held(table, "table", on);
  EmbeddingArgs args;
  args.table = weight_of(held, q_dtype, length);
  EmbeddingDescriptor d;
  d.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows.numel())));
  d.rows = args.table.shape[0];
  d.columns = args.table.shape[1];
  d.table = args.table.dtype;
  d.output = parse_dtype(out_dtype, "out_dtype");

  std::optional<Numbers> scales, zeros;
  if (is_float(d.table)) {
    not_with_floats(scale, "scale", d.table);
    not_with_floats(zero_point, "zero_point", d.table);
    not_with_floats(group_size, "group_size", d.table);
  } else {
    d.group_size = parse_weight_group(group_size, d.columns);
    const std::int64_t count = d.rows * (d.group_size == 0 ? 1 : d.columns / d.group_size);
    const auto read = [&](std::optional<Numbers>& place, nb::handle value, const char* argument,
                          bool integers) {
      place.emplace(value, argument, integers, on);
      check_weight_numbers(*place, argument, d.rows, d.columns, d.group_size, "row");
    };
    read(scales, scale, "scale", false);
    if (!scales->given()) invalid("scale", "expected a number or an array, got None");
    args.scales = scales->ref(count, on);
    read(zeros, zero_point, "zero_point", true);
    d.zero_points = zeros->matter();
    if (d.zero_points) args.zero_points = zeros->ref(count, on);
  }

  const std::shared_ptr<const EmbeddingPlan> plan = cached(on.stream(), d);
  const OutputRows output(out, held.array().maker, output_shape(rows, d.columns), d.output, on,
                          "out_dtype");
  held.check_apart(output.array);
  rows.check_apart(output.array);
  for (const auto* const numbers : {&scales, &zeros})
    if (*numbers) (*numbers)->check_apart(output.array);
  args.indices = rows.ref(1, on);
  args.output = output.mut;
  const Status status = run_plan(*plan, on, args);
  if (!status) refuse_embedding(status.error(), false);
  return output.array.object;
}

}  // namespace octavo::python
