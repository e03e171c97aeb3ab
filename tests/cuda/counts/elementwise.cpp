// Quantize, dequantize and fake-quantize, contiguous, in every granularity.
#include "tests/cuda/counts/counts.hpp"

namespace octavo::counts {
namespace {

constexpr std::int64_t rows = 512;
constexpr std::int64_t columns = 2048;

struct Operation {
  Op op;
  DType element, integer;
  const char* name;
};
constexpr Operation operations[] = {
    {Op::quantize, DType::f32, DType::s8, "quantize f32 s8"},
    {Op::quantize, DType::bf16, DType::s8, "quantize bf16 s8"},
    {Op::quantize, DType::f16, DType::s4, "quantize f16 s4"},
    {Op::dequantize, DType::f32, DType::s8, "dequantize s8 f32"},
    {Op::dequantize, DType::bf16, DType::u4, "dequantize u4 bf16"},
    {Op::fake_quantize, DType::f32, DType::s8, "fake_quantize f32"},
    {Op::fake_quantize, DType::f16, DType::s8, "fake_quantize f16"},
};

struct Granularity {
  Layout layout;
  int axis;
  std::int64_t group;
  std::int64_t scales;
  const char* name;
};
constexpr Granularity granularities[] = {
    {Layout::per_tensor, 0, 0, 0, "tensor"},
    {Layout::per_channel, 0, 0, rows, "channel 0"},
    {Layout::per_channel, 1, 0, columns, "channel 1"},
    {Layout::per_token, 0, 0, rows, "token"},
    {Layout::per_group, 0, 128, rows* columns / 128, "group 128"},
};

Result<Case> make(Data& data, const Operation& o, const Granularity& g) {
  detail::ElementwiseProblem p;
  p.op = o.op;
  p.layout = g.layout;
  p.shape = {rows, columns};
  if (g.layout == Layout::per_tensor) p.shape = {rows * columns};
  p.axis = g.axis;
  p.group_size = g.group;
  p.element = o.element;
  p.integer = o.integer;
  p.has_integer = o.op != Op::fake_quantize;
  p.has_range = o.op != Op::dequantize;
  if (o.op == Op::fake_quantize) {
    p.q_min = -128;
    p.q_max = 127;
  }
  const auto plan = detail::AnyElementwisePlan::select(data.stream(), p, {});
  if (!plan) return plan.error();

  const DType from = o.op == Op::dequantize ? o.integer : o.element;
  const DType to = o.op == Op::quantize ? o.integer : o.element;
  const TensorRef input = data.random(from, p.shape);
  const TensorMut output = data.random(to, p.shape);
  TensorRef scales;
  if (g.scales != 0) scales = data.powers(DType::f32, g.scales, -4);
  Case c{o.name,
         g.name,
         rows * columns,
         data.bytes(),
         {.memory = true, .asked = g.scales == 0, .sectors = true},
         {}};
  const Workspace workspace = data.workspace(plan->workspace_size());
  c.run = [&data, plan = *plan, input, output, scales, workspace] {
    detail::ElementwiseArgs args;
    args.input = &input;
    args.output = &output;
    if (scales.data != nullptr) args.scales = &scales;
    args.scale = 0.0625;
    return plan.run(data.stream(), workspace, args);
  };
  return c;
}

}  // namespace

void add_elementwise(Cases& cases) {
  for (const Operation& o : operations)
    for (const Granularity& g : granularities)
      cases.emplace_back([&o, &g](Data& data) { return make(data, o, g); });
}

}  // namespace octavo::counts
