// From f32: quantized::linear_dynamic, which has one scale (and zero point) for all rows, so it
// does less than per row. Its engines, FBGEMM and oneDNN, both pack the weights; the one that is
// faster on the shape is taken. From s8: onednn::qlinear_pointwise, on u8 activations with zero
// point 128, for with s8 ones it falls back to its reference kernel. Not _int_mm: it leaves its
// sums unscaled and, packing its weights in every call, is nowhere much faster. Weights of four
// bits in groups: _weight_int4pack_mm_for_cpu, whose activations stay floats. It is made for bf16,
// and 50 times slower on f32: so f32 activations are rounded to that, and outputs widened, in every
// call.
#include "peers/torch_linear.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/quantized/PackedParams.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace octavo::bench {
namespace {

using torch::jit::Stack;

at::Tensor call(const char* name, Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return std::move(stack[0]).toTensor();
}

template <class T>
at::Tensor view(const void* data, at::IntArrayRef shape) {
  return at::from_blob(const_cast<void*>(data), shape,
                       at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

// compute(i) for i in turn, each time with another copy of the weights. Lets go of the previous
// output first, so that its memory is used again.
template <class F>
Task task_of(F&& compute) {
  return [compute = std::forward<F>(compute), output = at::Tensor(),
          next = std::size_t{0}]() mutable -> const void* {
    const c10::InferenceMode guard;
    output = at::Tensor();
    output = compute(next++);
    return output.const_data_ptr();
  };
}

Task dynamic(const Linear& l, at::QEngine engine) {
  at::globalContext().setQEngine(engine);
  const at::Tensor weight = at::_make_per_channel_quantized_tensor(
      view<std::int8_t>(l.weight, {l.n, l.k}), view<float>(l.weight_scales, {l.n}).to(at::kDouble),
      at::zeros({l.n}, at::kLong), 0);
  std::vector<c10::intrusive_ptr<LinearPackedParamsBase>> packed;
  for (int i = 0; i < l.copies; ++i) {
    Stack stack{weight, c10::IValue()};
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("quantized::linear_prepack", "")
        .callBoxed(&stack);
    packed.push_back(stack[0].toCustomClass<LinearPackedParamsBase>());
  }
  return task_of([packed, x = view<float>(l.input, {l.m, l.k})](std::size_t i) {
    return packed[i % packed.size()]->apply_dynamic(x, false);
  });
}

Task product(const Linear& l) {
  constexpr std::int64_t zero = 128;
  const at::Tensor x =
      view<std::int8_t>(l.input, {l.m, l.k}).to(at::kShort).add(zero).to(at::kByte);
  const at::Tensor scales = view<float>(l.weight_scales, {l.n}).clone();
  const at::Tensor zeros = at::zeros({l.n}, at::kInt);
  std::vector<at::Tensor> packed;
  packed.reserve(static_cast<std::size_t>(l.copies));
  for (int i = 0; i < l.copies; ++i)
    packed.push_back(call(
        "onednn::qlinear_prepack",
        {view<std::int8_t>(l.weight, {l.n, l.k}).clone(), std::vector<std::int64_t>{l.m, l.k}}));
  const double scale = l.act_scale;
  const c10::List<std::optional<at::Scalar>> no_arguments;
  return task_of([=](std::size_t i) {
    return call("onednn::qlinear_pointwise",
                {x, scale, zero, packed[i % packed.size()], scales, zeros, c10::IValue(), 1.0,
                 std::int64_t{0}, at::kFloat, "none", no_arguments, ""});
  });
}

double time_of(const Task& task) {
  using Clock = std::chrono::steady_clock;
  task();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    task();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

Task torch_linear(const Linear& l) {
  const c10::InferenceMode guard;
  at::set_num_threads(l.threads);
  if (static_cast<DType>(l.activation) == DType::s8) return product(l);
  if (static_cast<DType>(l.activation) != DType::f32) return {};
  Task fastest;
  double seconds = 1e9;
  for (const auto engine : {at::QEngine::FBGEMM, at::QEngine::ONEDNN}) {
    try {
      Task task = dynamic(l, engine);
      if (const double t = time_of(task); t < seconds) {
        seconds = t;
        fastest = std::move(task);
      }
    } catch (const std::exception&) {
      continue;  // one that this CPU or this build lacks
    }
  }
  return fastest;
}

// It wants integers from 0 to 15, and of each group a scale and what the middle, 8, stands for.
Task torch_groups(const Groups& g) {
  if (g.bits != 4) return {};
  const c10::InferenceMode guard;
  at::set_num_threads(g.threads);
  const at::Tensor bytes = view<std::uint8_t>(g.weight, {g.n, g.k / 2}).bitwise_xor(0x88);
  const at::Tensor codes =
      at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 2).view({g.n, g.k});
  const at::Tensor scales = view<float>(g.scales, {g.n, g.k / g.group}).t();
  const at::Tensor both =
      at::stack({scales, at::zeros_like(scales)}, 2).to(at::kBFloat16).contiguous();
  constexpr std::int64_t tiles = 2;  // of the order on a GPU; not used here
  std::vector<at::Tensor> packed;
  for (int i = 0; i < g.copies; ++i)
    packed.push_back(at::_convert_weight_to_int4pack_for_cpu(codes.to(at::kInt), tiles));
  return task_of([=, group = g.group, x = view<float>(g.input, {g.m, g.k})](std::size_t i) {
    return at::_weight_int4pack_mm_for_cpu(x.to(at::kBFloat16), packed[i % packed.size()], group,
                                           both)
        .to(at::kFloat);
  });
}

Task torch_floats(const Floats& f) {
  const c10::InferenceMode guard;
  at::set_num_threads(f.threads);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < f.copies; ++i) weights.push_back(view<float>(f.weight, {f.n, f.k}).clone());
  return task_of([=, x = view<float>(f.input, {f.m, f.k})](std::size_t i) {
    return at::linear(x, weights[i % weights.size()]);
  });
}

}  // namespace octavo::bench
