// Calls every function of the C++ headers that is not inline, so that one that the shared library
// does not export fails to link.
#include <octavo/octavo.hpp>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("not so: %s\n", what);
}

template <class Plan, class Args>
void use(const octavo::Stream& cpu, const octavo::Result<Plan>& plan, const Args& args,
         const char* what) {
  expect(plan.has_value(), what);
  if (!plan) return;
  const octavo::WorkspaceBuffer workspace(plan->workspace_size());
  expect(plan->can_implement(args).has_value(), what);
  expect(plan->run(cpu, workspace, args).has_value(), what);
  expect(!octavo::to_string(plan->sku()).empty(), what);
  (void)std::hash<octavo::KernelSku>()(plan->sku());
}

template <class Observer>
void observe(const octavo::Stream& cpu, const std::vector<float>& x) {
  const auto observer = Observer::select(cpu, {});
  auto state = observer->make_state();
  auto other = observer->make_state();
  use(cpu, observer, typename Observer::Args{.input = x, .state = &state}, "observe");
  expect(state.merge(other).has_value(), "merge");
  expect(state.parameters({}).has_value(), "parameters");
}

void names() {
  using namespace octavo;
  expect(name(ErrorCode::backend) == "backend" && name(Profile::onnx) == "onnx" &&
             name(Category::linear) == "linear" && name(Op::quantize) == "quantize" &&
             name(Layout::per_group) == "per_group" && name(Epilogue::relu) == "relu" &&
             name(Target::scalar) == "scalar" && name(Backend::cpu) == "cpu" &&
             name(RangeMode::symmetric) == "symmetric" && name(Calibration::mse) == "mse",
         "names");
  expect(to_float(to_f16(1.5F)) == 1.5F && to_float(to_bf16(1.5F)) == 1.5F, "16-bit floats");
  expect(parse_target("avx2") == Target::avx2, "parse_target");
  expect(is_available(available_targets()[0]), "targets");
  expect(at_or_below(Target::scalar, Target::amx), "at_or_below");
}

void linear(const octavo::Stream& cpu) {
  const std::vector<std::int8_t> w{1, 2, 3, 4};
  const std::vector<float> x{1, 2}, scale{1};
  std::vector<float> y(2);
  const auto packed = octavo::pack(cpu, octavo::TensorRef(w, {2, 2}));
  expect(packed && packed->n() == 2 && packed->k() == 2 && packed->bytes() > 0 &&
             packed->dtype() == octavo::DType::s8,
         "pack");
  std::vector<std::byte> image(packed->serialized_bytes());
  expect(packed->serialize(image).has_value() && image == packed->serialize(), "serialize");
  expect(octavo::PackedWeight::deserialize(image).has_value(), "deserialize");
  const auto packing = octavo::PackWeightPlan::select(cpu, {.n = 2, .k = 2});
  octavo::PackedWeight made = *packing->make_packed();
  use(cpu, packing, octavo::PackWeightArgs{.weight = octavo::TensorRef(w, {2, 2}), .packed = &made},
      "packing");
  octavo::LinearArgs args{.input = octavo::TensorRef(x, {1, 2}),
                          .weight = made,
                          .weight_scales = scale,
                          .output = octavo::TensorMut(y, {1, 2})};
  use(cpu,
      octavo::QuantizedLinearPlan::select(cpu, {.m = 1, .n = 2, .k = 2, .packed_weight = true}),
      args, "linear");
  expect(y[0] > 4.9F && y[0] < 5.1F, "linear result");
  const std::vector<std::int8_t> q{1, 2};
  args.input = octavo::TensorRef(q, {1, 2});
  use(cpu,
      octavo::SmoothQuantLinearPlan::select(cpu, {.m = 1, .n = 2, .k = 2, .packed_weight = true}),
      args, "smoothquant");
  use(cpu, octavo::QuantizedMatmulPlan::select(cpu, {.m = 1, .n = 2, .k = 2}),
      octavo::QuantizedMatmulArgs{.input = args.input,
                                  .activation_scales = scale,
                                  .weight = octavo::TensorRef(w, {2, 2}),
                                  .weight_scales = scale,
                                  .output = args.output},
      "matmul");
}

}  // namespace

int main() {
  const auto cpu = octavo::Stream::cpu({.threads = 1});
  expect(cpu.threads() == 1 && cpu.options().threads == 1, "stream");
  names();
  const std::vector<float> x{0.5F, -1.0F, 127.0F};
  std::vector<std::int8_t> q(3);
  std::vector<float> y(3), scales(1);
  use(cpu, octavo::QuantizePerTensorPlan::select(cpu, {.numel = 3}),
      octavo::PerTensorArgs{.input = x, .scale = 1, .output = q}, "quantize");
  expect(q[0] == 0 && q[1] == -1 && q[2] == 127, "quantize result");
  use(cpu, octavo::DynamicRangeQuantizePlan::select(cpu, {.shape = {3}}),
      octavo::DynamicRangeQuantizeArgs{.input = x, .output = q, .scales = scales}, "dynamic range");
  expect(scales[0] == 1, "dynamic range result");
  observe<octavo::MinMaxObserver>(cpu, x);
  observe<octavo::HistogramObserver>(cpu, x);
  const auto histogram = octavo::HistogramObserver::select(cpu, {});
  expect(histogram->make_state().bins() == 65536, "bins");
  linear(cpu);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
