// The scalar target: numerics/affine.hpp applied element by element. It is the specification, and
// the only code that handles every parameter and any nibble offset.
#include <algorithm>
#include <cstring>

#include "numerics/affine.hpp"
#include "numerics/half.hpp"
#include "ops/elementwise/kernels.hpp"
#include "ops/elementwise/select_kernel.hpp"

namespace octavo::detail {
namespace {

template <class T>
struct Plain {
  static auto read(const void* data, std::int64_t i) {
    const T value = static_cast<const T*>(data)[i];
    if constexpr (requires { numerics::widen(value); }) {
      return numerics::widen(value);
    } else {
      return value;
    }
  }
  template <class V>
  static void write(void* data, std::int64_t i, V value) {
    T& to = static_cast<T*>(data)[i];
    if constexpr (std::is_same_v<T, f16>) {
      to = numerics::narrow_f16(value);
    } else if constexpr (std::is_same_v<T, bf16>) {
      to = numerics::narrow_bf16(value);
    } else {
      to = static_cast<T>(value);
    }
  }
};

template <class T>
struct Nibbles {
  static std::int32_t read(const void* data, std::int64_t i) {
    // Shifts, not divisions: indices are negative where strides are.
    const int byte = static_cast<const std::uint8_t*>(data)[i >> 1];
    const int nibble = (byte >> ((i & 1) * 4)) & 0xF;
    return std::is_same_v<T, std::int8_t> ? (nibble ^ 8) - 8 : nibble;
  }
  // An even element clears its byte, so the unused half of an odd row's last byte is 0. Elements of
  // a row are written in order, by one thread.
  static void write(void* data, std::int64_t i, std::int32_t value) {
    std::uint8_t& byte = static_cast<std::uint8_t*>(data)[i >> 1];
    byte = static_cast<std::uint8_t>((i & 1) == 0 ? value & 0xF : byte | ((value & 0xF) << 4));
  }
};

struct None {
  static float read(const void* /*data*/, std::int64_t /*i*/) { return 0; }
};

// Where the parameters of a run are found.
template <class C>
struct Uniform {
  static constexpr bool per_lane = false;
  using Compute = C;
};
template <class C>
struct PerLane {
  static constexpr bool per_lane = true;
  using Compute = C;
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

struct FindReference {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    switch (key.op) {
      case Op::quantize:
        return with_integer<Plain, Nibbles>(key.integer, []<class Q>() -> KernelFunction {
          return kernel<Quantize, Plain<T>, None, Q, P>;
        });
      case Op::dequantize:
        return with_integer<Plain, Nibbles>(key.integer, []<class Q>() -> KernelFunction {
          return kernel<Dequantize, Q, None, Plain<T>, P>;
        });
      case Op::quantize_backward:
        return kernel<QuantizeBackward, Plain<T>, Plain<T>, Plain<T>, P>;
      case Op::dequantize_backward:
        return kernel<DequantizeBackward, None, Plain<T>, Plain<T>, P>;
      case Op::fake_quantize:
        return kernel<FakeQuantize, Plain<T>, None, Plain<T>, P>;
      case Op::fake_quantize_backward:
        return kernel<FakeQuantizeBackward, Plain<T>, Plain<T>, Plain<T>, P>;
      default:
        break;  // in rooms of their own
    }
    return nullptr;
  }
};

}  // namespace

Extremes scan_reference(const void* values, std::int64_t n, std::int32_t mask) {
  const auto at = [&](std::int64_t i) {
    std::int32_t value = 0;
    std::memcpy(&value, static_cast<const unsigned char*>(values) + i * 4, 4);
    return value & mask;
  };
  Extremes e{at(0), at(0)};
  for (std::int64_t i = 1; i < n; ++i) {
    e.least = std::min(e.least, at(i));
    e.most = std::max(e.most, at(i));
  }
  return e;
}

KernelFunction find_reference(const KernelKey& key) {
  return find_typed<FindReference, Uniform, PerLane>(key);
}

}  // namespace octavo::detail
