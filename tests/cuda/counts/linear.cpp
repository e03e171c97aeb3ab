// Linear layers: products of matrices, and whole layers with what quantizes their activations.
#include <fmt/core.h>

#include <optional>

#include "tests/cuda/counts/counts.hpp"

namespace octavo::counts {
namespace {

struct Size {
  std::int64_t m, n, k;
};
// (The last has blocks of threads enough for every multiprocessor without a cut through k.)
constexpr Size sizes[] = {{1, 1024, 2048}, {16, 1024, 2048}, {128, 1024, 2048}, {512, 2048, 512}};

struct Layer {
  const char* name;
  DType activation;
  std::optional<DType> quantized;  // none: the product alone, with scales of the rows
  DType weight;
  std::int64_t group;
};
constexpr Layer layers[] = {
    {"matmul s8 s8", DType::s8, std::nullopt, DType::s8, 0},
    {"linear bf16 s8 s8", DType::bf16, DType::s8, DType::s8, 0},
    {"linear bf16 s8 s4 group 128", DType::bf16, DType::s8, DType::s4, 128},
    {"linear bf16 s16 s4 group 128", DType::bf16, DType::s16, DType::s4, 128},
    {"float_linear bf16", DType::bf16, std::nullopt, DType::bf16, 0},
};

// The weights, packed on the device.
Result<PackedWeight> weights(Data& data, const Layer& l, const Size& size) {
  const auto [m, n, k] = size;
  const TensorRef rows = data.random(l.weight, {n, k});
  if (l.group == 0) return pack(data.stream(), rows);
  TensorRef scales = data.powers(DType::f32, n * (k / l.group), -10);
  scales = TensorRef(scales.data, DType::f32, {n, k / l.group});
  return pack(data.stream(), rows, {.size = l.group, .scales = scales});
}

template <class Plan, class Descriptor, class Args>
Result<Case> finish(Data& data, const Layer& l, const Size& size, const Descriptor& d, Args args) {
  const auto [m, n, k] = size;
  const auto plan = Plan::select(data.stream(), d);
  if (!plan) return plan.error();
  const auto packed = weights(data, l, size);
  if (!packed) return packed.error();
  data.begin();
  args.weight = *packed;
  args.input = data.random(l.activation, {m, k});
  args.output = data.random(d.output, {m, n});
  if constexpr (requires { args.weight_scales; }) {
    if (l.group == 0) args.weight_scales = data.powers(DType::f32, n, -10);
  }
  if constexpr (requires { args.activation_scales; })
    args.activation_scales = data.powers(DType::f32, m, -4);
  Case c{l.name,
         fmt::format("{}x{}x{}", m, n, k),
         0,
         data.bytes() + static_cast<std::int64_t>(packed->bytes()),
         {.sectors = true},
         {}};
  const Workspace workspace = data.workspace(plan->workspace_size());
  c.run = [&data, plan = *plan, args, workspace] {
    return plan.run(data.stream(), workspace, args);
  };
  return c;
}

Result<Case> of_size(Data& data, const Layer& l, const Size& size) {
  const auto [m, n, k] = size;
  if (is_float(l.weight)) {
    FloatLinearDescriptor d;
    d.m = m;
    d.n = n;
    d.k = k;
    d.activation = d.weight = d.output = l.activation;
    d.packed_weight = true;
    return finish<FloatLinearPlan>(data, l, size, d, FloatLinearArgs{});
  }
  if (!l.quantized) {
    QuantizedMatmulDescriptor d;
    d.m = m;
    d.n = n;
    d.k = k;
    d.activation = l.activation;
    d.weight = l.weight;
    d.output = DType::bf16;
    d.packed_weight = true;
    return finish<QuantizedMatmulPlan>(data, l, size, d, QuantizedMatmulArgs{});
  }
  QuantizedLinearDescriptor d;
  d.m = m;
  d.n = n;
  d.k = k;
  d.activation = d.output = l.activation;
  d.weight = l.weight;
  d.quantized = l.quantized;
  d.packed_weight = true;
  d.group_size = l.group;
  return finish<QuantizedLinearPlan>(data, l, size, d, LinearArgs{});
}

Result<Case> make(Data& data, const Layer& l, const Size& size) {
  auto c = of_size(data, l, size);
  const auto deeper = of_size(data, l, {size.m, size.n, 2 * size.k});
  if (c && !deeper) return deeper.error();
  if (c) c->deeper = deeper->run;
  return c;
}

}  // namespace

void add_linear(Cases& cases) {
  for (const Layer& l : layers)
    for (const Size& size : sizes)
      cases.emplace_back([&l, &size](Data& data) { return make(data, l, size); });
}

}  // namespace octavo::counts
