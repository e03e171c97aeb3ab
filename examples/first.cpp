// Six weights to 8-bit integers and back.
#include <octavo/octavo.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int fail(const octavo::Error& error) {
  std::puts(error.message().c_str());
  return 1;
}

int main() {
  const std::vector<float> weights{0.314F, -1.272F, 0.0F, 0.045F, 0.9F, 1.5F};
  std::vector<std::int8_t> q(weights.size());
  std::vector<float> back(weights.size());
  const auto n = static_cast<std::int64_t>(weights.size());

  const auto cpu = octavo::Stream::cpu();  // all cores; {.threads = 1} for one
  const auto quantize = octavo::QuantizePerTensorPlan::select(cpu, {.numel = n});  // f32 to s8
  if (!quantize) return fail(quantize.error());
  const auto restore = octavo::DequantizePerTensorPlan::select(cpu, {.numel = n});
  if (!restore) return fail(restore.error());

  auto status = quantize->run(cpu, {}, {.input = weights, .scale = 0.01, .output = q});
  if (status) status = restore->run(cpu, {}, {.input = q, .scale = 0.01, .output = back});
  if (!status) return fail(status.error());

  for (std::size_t i = 0; i < q.size(); ++i)
    std::printf("%6.3f -> %4d -> %5.2f\n", double{weights[i]}, q[i], double{back[i]});
}
