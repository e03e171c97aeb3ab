// A linear layer in 8 bits: weights are quantized per output channel and packed once; activations
// are quantized row by row as they come.
#include <octavo/octavo.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int fail(const octavo::Error& error) {
  std::puts(error.message().c_str());
  return 1;
}

int main() {
  constexpr std::int64_t rows = 4, inputs = 256, outputs = 32;
  std::vector<float> weights(outputs * inputs), x(rows * inputs), bias(outputs, 0.5F);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = 0.1F * static_cast<float>(std::sin(static_cast<double>(i)));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));

  const auto cpu = octavo::Stream::cpu();

  // Once: weights to s8, one scale per output channel, and packed.
  std::vector<std::int8_t> q(weights.size());
  std::vector<float> scales(outputs);
  const auto quantize = octavo::DynamicRangeQuantizePlan::select(
      cpu, {.shape = {outputs, inputs}, .scope = octavo::Layout::per_channel, .axis = 0});
  if (!quantize) return fail(quantize.error());
  const octavo::WorkspaceBuffer scratch(quantize->workspace_size());
  auto status = quantize->run(cpu, scratch,
                              {.input = octavo::TensorRef(weights, {outputs, inputs}),
                               .output = octavo::TensorMut(q, {outputs, inputs}),
                               .scales = scales});
  if (!status) return fail(status.error());
  const auto packed = octavo::pack(cpu, octavo::TensorRef(q, {outputs, inputs}));
  if (!packed) return fail(packed.error());

  // Then, for every batch of up to `rows` rows:
  const auto linear = octavo::QuantizedLinearPlan::select(
      cpu, {.m = rows,
            .n = outputs,
            .k = inputs,
            .packed_weight = true,
            .epilogue = octavo::Epilogue::bias | octavo::Epilogue::relu});
  if (!linear) return fail(linear.error());
  const octavo::WorkspaceBuffer workspace(linear->workspace_size());
  std::vector<float> y(rows * outputs);
  status = linear->run(cpu, workspace,
                       {.input = octavo::TensorRef(x, {rows, inputs}),
                        .weight = *packed,
                        .weight_scales = scales,
                        .bias = bias,
                        .output = octavo::TensorMut(y, {rows, outputs})});
  if (!status) return fail(status.error());

  // What it cost: the largest difference from the layer in f64.
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < outputs; ++o) {
      double exact = bias[static_cast<std::size_t>(o)];
      for (std::int64_t i = 0; i < inputs; ++i)
        exact += double{weights[static_cast<std::size_t>(o * inputs + i)]} *
                 x[static_cast<std::size_t>(r * inputs + i)];
      exact = exact < 0 ? 0 : exact;
      worst = std::fmax(worst, std::fabs(exact - y[static_cast<std::size_t>(r * outputs + o)]));
    }
  std::printf("%s\n%lld x %lld outputs, largest error %.4f\n",
              octavo::to_string(linear->sku()).c_str(), static_cast<long long>(rows),
              static_cast<long long>(outputs), worst);
  return worst < 0.02 ? 0 : 1;
}
