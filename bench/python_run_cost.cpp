// What `run` alone costs for the cases of python_overhead.py, in ns, the best of many: one line
// each.
#include <octavo/octavo.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

namespace {

template <class T>
const T& checked(const octavo::Result<T>& result) {
  if (result) return result.value();
  std::puts(result.error().message().c_str());
  std::exit(1);
}

template <class Run>
void report(const char* name, Run&& run) {
  using Clock = std::chrono::steady_clock;
  constexpr int batches = 400;
  constexpr int calls = 500;
  double best = std::numeric_limits<double>::infinity();
  for (int b = 0; b < batches; ++b) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i)
      if (!run()) std::exit(1);
    const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
    best = std::min(best, taken.count() / calls);
  }
  std::printf("%s %.1f\n", name, best);
}

void quantize(const char* name, std::int64_t n) {
  const auto cpu = octavo::Stream::cpu({.threads = 1});
  const std::vector<float> x(static_cast<std::size_t>(n), 1.0F);
  std::vector<std::int8_t> q(x.size());
  const auto plan = checked(octavo::QuantizePerTensorPlan::select(cpu, {.numel = n}));
  report(name,
         [&] { return plan.run(cpu, {}, {.input = x, .scale = 0.5, .output = q}).has_value(); });
}

void linear(const char* name, std::int64_t size) {
  const auto cpu = octavo::Stream::cpu({.threads = 1});
  const std::vector<std::int8_t> w(static_cast<std::size_t>(size * size), 1);
  const std::vector<float> x(static_cast<std::size_t>(size), 1.0F);
  const std::vector<float> scales(x.size(), 0.5F);
  std::vector<float> y(x.size());
  const auto packed = checked(octavo::pack(cpu, octavo::TensorRef(w, {size, size})));
  const auto plan = checked(octavo::QuantizedLinearPlan::select(
      cpu, {.m = 1, .n = size, .k = size, .packed_weight = true}));
  const octavo::WorkspaceBuffer scratch(plan.workspace_size());
  const octavo::WeightRef weight = packed;
  report(name, [&] {
    return plan
        .run(cpu, scratch,
             {.input = octavo::TensorRef(x, {1, size}),
              .weight = weight,
              .weight_scales = scales,
              .output = octavo::TensorMut(y, {1, size})})
        .has_value();
  });
}

}  // namespace

int main() {
  quantize("quantize_64", 64);
  quantize("quantize_4096", 4096);
  linear("linear_64", 64);
}
