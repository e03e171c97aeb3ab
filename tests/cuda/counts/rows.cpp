// Dynamic ranges, observers, and rows of a table.
#include <fmt/core.h>

#include <vector>

#include "tests/cuda/counts/counts.hpp"

namespace octavo::counts {
namespace {

struct Range {
  std::int64_t rows, columns;
  Layout scope;
  std::int64_t group;
  const char* name;
};
constexpr Range ranges[] = {
    {8192, 128, Layout::per_token, 0, "token"},
    {256, 4096, Layout::per_token, 0, "token"},
    {4, 262144, Layout::per_token, 0, "token"},
    {512, 2048, Layout::per_group, 128, "group 128"},
    {512, 2048, Layout::per_channel, 0, "channel 1"},
    {512, 2048, Layout::per_tensor, 0, "tensor"},
};

Result<Case> dynamic_range(Data& data, const Range& r, DType from, RangeMode mode) {
  DynamicRangeQuantizeDescriptor d;
  d.shape = {r.rows, r.columns};
  d.mode = mode;
  d.scope = r.scope;
  d.axis = 1;
  d.group_size = r.group;
  d.input = from;
  const auto plan = DynamicRangeQuantizePlan::select(data.stream(), d);
  if (!plan) return plan.error();
  DynamicRangeQuantizeArgs args;
  args.input = data.random(from, d.shape);
  args.output = data.random(DType::s8, d.shape);
  args.scales = data.random(DType::f32, {plan->slices()});
  if (mode == RangeMode::asymmetric) args.zero_points = data.random(DType::s32, {plan->slices()});
  // (What more than a block of threads have the range of is read twice.)
  const bool once = r.scope == Layout::per_token || r.scope == Layout::per_group;
  Case c{
      fmt::format("dynamic_range {} s8{}", name(from), mode == RangeMode::symmetric ? "" : " asym"),
      fmt::format("{} {}x{}", r.name, r.rows, r.columns),
      r.rows * r.columns,
      data.bytes(),
      {.memory = once && r.columns < 100000, .asked = once && r.columns < 100000, .sectors = true},
      {}};
  const Workspace workspace = data.workspace(plan->workspace_size());
  c.run = [&data, plan = *plan, args, workspace] {
    return plan.run(data.stream(), workspace, args);
  };
  return c;
}

template <class Observer>
Result<Case> observer(Data& data, const char* kind, DType type, Layout scope) {
  constexpr std::int64_t rows = 512;
  constexpr std::int64_t columns = 2048;
  ObserverDescriptor d;
  d.input = type;
  d.scope = scope;
  d.channels = scope == Layout::per_channel ? columns : 1;
  const auto plan = Observer::select(data.stream(), d);
  if (!plan) return plan.error();
  const TensorRef input = data.random(type, {rows, columns});
  Case c{fmt::format("{} {}", kind, name(type)),
         scope == Layout::per_channel ? "channel 1" : "tensor",
         rows * columns,
         data.bytes(),
         {.sectors = true},
         {}};
  const Workspace workspace = data.workspace(plan->workspace_size());
  c.run = [&data, plan = *plan, input, workspace] {
    auto state = plan.make_state();
    return plan.run(data.stream(), workspace, {.input = input, .state = &state});
  };
  return c;
}

Result<Case> embedding(Data& data, DType table) {
  constexpr std::int64_t m = 512;
  constexpr std::int64_t columns = 2048;
  const bool quantized = !is_float(table);
  EmbeddingDescriptor d;
  d.m = d.rows = m;
  d.columns = columns;
  d.table = table;
  d.output = DType::bf16;
  const auto plan = EmbeddingPlan::select(data.stream(), d);
  if (!plan) return plan.error();
  EmbeddingArgs args;
  args.indices = data.counted(m);
  args.table = data.random(table, {m, columns});
  if (quantized) args.scales = data.powers(DType::f32, m, -4);
  args.output = data.random(DType::bf16, {m, columns});
  Case c{fmt::format("embedding {} bf16", name(table)),
         fmt::format("{}x{}", m, columns),
         m * columns,
         data.bytes(),
         {.memory = true, .sectors = true},
         {}};
  const Workspace workspace = data.workspace(plan->workspace_size());
  c.run = [&data, plan = *plan, args, workspace] {
    return plan.run(data.stream(), workspace, args);
  };
  return c;
}

}  // namespace

void add_rows(Cases& cases) {
  for (const Range& r : ranges) {
    cases.emplace_back(
        [&r](Data& d) { return dynamic_range(d, r, DType::f32, RangeMode::symmetric); });
    cases.emplace_back(
        [&r](Data& d) { return dynamic_range(d, r, DType::bf16, RangeMode::asymmetric); });
  }
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Layout scope : {Layout::per_tensor, Layout::per_channel})
      cases.emplace_back(
          [=](Data& d) { return observer<MinMaxObserver>(d, "min_max", type, scope); });
    cases.emplace_back([=](Data& d) {
      return observer<HistogramObserver>(d, "histogram", type, Layout::per_tensor);
    });
  }
  for (const DType table : {DType::bf16, DType::s8, DType::s4})
    cases.emplace_back([=](Data& d) { return embedding(d, table); });
}

}  // namespace octavo::counts
