// Quantization-aware training: a linear model whose weights will be 4 bits wide learns with them as
// they will be. The forward pass fake-quantizes the weights, the backward pass lets the gradient
// through where they were not cut off; the weights themselves stay f32.
#include <octavo/octavo.hpp>

#include <array>
#include <cstdio>
#include <vector>

int fail(const octavo::Error& error) {
  std::puts(error.message().c_str());
  return 1;
}

constexpr int inputs = 4, samples = 8;
constexpr std::array<std::array<float, inputs>, samples> x{{{1, 0, -1, 2},
                                                            {0, 1, 1, -1},
                                                            {2, -1, 0, 1},
                                                            {-1, 2, 1, 0},
                                                            {1, 1, 1, 1},
                                                            {0, -2, 1, 1},
                                                            {-2, 0, 2, -1},
                                                            {1, -1, 2, 0}}};
// What the weights {0.6, -0.35, 0.8, 0.15} would give.
constexpr std::array<float, samples> y{0.1F, 0.3F, 1.7F, -0.5F, 1.2F, 1.65F, 0.25F, 2.55F};

int main() {
  std::vector<float> w(inputs, 0.0F), w_q(inputs), dw_q(inputs), dw(inputs);
  const double scale = 0.125;  // of a 4-bit weight, -8..7
  const octavo::FakeQuantizeDescriptor descriptor{.numel = inputs, .q_min = -8, .q_max = 7};

  const auto cpu = octavo::Stream::cpu();
  const auto forward = octavo::FakeQuantizePlan::select(cpu, descriptor);
  if (!forward) return fail(forward.error());
  const auto backward = octavo::FakeQuantizeBackwardPlan::select(cpu, descriptor);
  if (!backward) return fail(backward.error());

  float first = 0, loss = 0;
  for (int step = 0; step <= 40; ++step) {
    auto status = forward->run(cpu, {}, {.input = w, .scale = scale, .output = w_q});
    if (!status) return fail(status.error());

    // The mean squared error of x * w_q, and its gradient with respect to w_q.
    loss = 0;
    dw_q.assign(inputs, 0);
    for (int s = 0; s < samples; ++s) {
      float error = -y[s];
      for (int i = 0; i < inputs; ++i) error += x[s][i] * w_q[i];
      loss += error * error / samples;
      for (int i = 0; i < inputs; ++i) dw_q[i] += 2 * error * x[s][i] / samples;
    }
    if (step == 0) first = loss;
    if (step % 10 == 0) std::printf("step %2d  loss %.4f\n", step, double{loss});

    status =
        backward->run(cpu, {}, {.input = w, .grad_output = dw_q, .scale = scale, .grad_input = dw});
    if (!status) return fail(status.error());
    for (int i = 0; i < inputs; ++i) w[i] -= 0.02F * dw[i];
  }
  std::printf("4-bit weights: %g %g %g %g\n", double{w_q[0]}, double{w_q[1]}, double{w_q[2]},
              double{w_q[3]});
  return loss < first / 20 ? 0 : 1;
}
