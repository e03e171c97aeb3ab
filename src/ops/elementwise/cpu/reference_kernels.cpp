// The scalar target: numerics/affine.hpp applied element by element. It is the specification, and
// the only code that handles every parameter and any nibble offset.
#include "numerics/affine.hpp"
#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/reference.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

namespace octavo::detail {
namespace {

using reference::Nibbles;
using reference::PerLane;
using reference::Plain;
using reference::Uniform;

struct None {
  static float read(const void* /*data*/, std::int64_t /*i*/) { return 0; }
};

template <class Math, class In, class Grad, class Out, class P>
Target kernel(const KernelCall& call) {
  using C = typename P::Compute;
  const auto parameters = [&call](std::int64_t i) {
    return numerics::Affine<C>(static_cast<const C*>(call.scale)[i],
                               call.zero_point == nullptr ? 0 : call.zero_point[i], call.range,
                               call.profile);
  };
  for (std::int64_t run = 0; run < call.count; ++run) {
    const std::int64_t input_at = call.input_at + run * call.input_step;
    const std::int64_t grad_at = call.grad_at + run * call.grad_step;
    const std::int64_t output_at = call.output_at + run * call.output_step;
    const std::int64_t param_at = run * call.param_step;
    auto affine = parameters(param_at);
    for (std::int64_t i = 0; i < call.length; ++i) {
      if constexpr (P::per_lane) affine = parameters(param_at + i);
      Out::write(call.output, output_at + i,
                 Math::apply(In::read(call.input, input_at + i), Grad::read(call.grad, grad_at + i),
                             affine));
    }
  }
  return Target::scalar;
}

struct Quantize {
  template <class C>
  static std::int32_t apply(C x, float /*none*/, const numerics::Affine<C>& a) {
    return numerics::quantize(x, a);
  }
};
struct QuantizeBackward {
  template <class C>
  static C apply(C x, C dy, const numerics::Affine<C>& a) {
    return numerics::quantize_backward(x, dy, a);
  }
};
struct Dequantize {
  template <class C>
  static C apply(std::int32_t q, float /*none*/, const numerics::Affine<C>& a) {
    return numerics::dequantize(q, a.scale, a.zero_point);
  }
};
struct DequantizeBackward {
  template <class C>
  static C apply(float /*none*/, C dy, const numerics::Affine<C>& a) {
    return numerics::dequantize_backward(dy, a.scale);
  }
};
struct FakeQuantize {
  template <class C>
  static C apply(C x, float /*none*/, const numerics::Affine<C>& a) {
    return numerics::fake_quantize(x, a);
  }
};
struct FakeQuantizeBackward {
  template <class C>
  static C apply(C x, C dy, const numerics::Affine<C>& a) {
    return numerics::fake_quantize_backward(x, dy, a);
  }
};

struct FindQuantize {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    if (key.op == Op::quantize_backward)
      return kernel<QuantizeBackward, Plain<T>, Plain<T>, Plain<T>, P>;
    return with_integer<Plain, Nibbles>(key.integer, []<class Q>() -> KernelFunction {
      return kernel<Quantize, Plain<T>, None, Q, P>;
    });
  }
};
struct FindDequantize {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    if (key.op == Op::dequantize_backward)
      return kernel<DequantizeBackward, None, Plain<T>, Plain<T>, P>;
    return with_integer<Plain, Nibbles>(key.integer, []<class Q>() -> KernelFunction {
      return kernel<Dequantize, Q, None, Plain<T>, P>;
    });
  }
};
struct FindFakeQuantize {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    if (key.op == Op::fake_quantize_backward)
      return kernel<FakeQuantizeBackward, Plain<T>, Plain<T>, Plain<T>, P>;
    return kernel<FakeQuantize, Plain<T>, None, Plain<T>, P>;
  }
};

}  // namespace

template <>
KernelFunction find_quantize<Target::scalar>(const KernelKey& key) {
  return find_typed<FindQuantize, Uniform, PerLane>(key);
}
template <>
KernelFunction find_dequantize<Target::scalar>(const KernelKey& key) {
  return find_typed<FindDequantize, Uniform, PerLane>(key);
}
template <>
KernelFunction find_fake_quantize<Target::scalar>(const KernelKey& key) {
  return find_typed<FindFakeQuantize, Uniform, PerLane>(key);
}

}  // namespace octavo::detail
