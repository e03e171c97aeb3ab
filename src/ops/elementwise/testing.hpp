// What the tests of the elementwise plans share: every plan behind one call, the answer of the
// oracle to that call, and data that is hard to quantize. All data comes from integer arithmetic:
// it is the same on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/octavo.hpp"
#include "ops/elementwise/oracle.hpp"
#include "testing/cuda.hpp"
#include "testing/machine.hpp"
#include "testing/memory.hpp"

namespace octavo::testing {

using Problem = octavo::detail::ElementwiseProblem;

inline constexpr std::array all_ops{Op::quantize,      Op::quantize_backward,
                                    Op::dequantize,    Op::dequantize_backward,
                                    Op::fake_quantize, Op::fake_quantize_backward};
inline constexpr std::array all_layouts{Layout::per_tensor, Layout::per_channel, Layout::per_token,
                                        Layout::per_group};
inline constexpr std::array all_floats{DType::f32, DType::f64, DType::f16, DType::bf16};
inline constexpr std::array all_integers{DType::s8, DType::u8, DType::s4, DType::u4, DType::s16};
inline constexpr std::array all_profiles{Profile::torch, Profile::onnx};

// ---- kinds of operation ------------------------------------------------------------------------

[[nodiscard]] constexpr bool has_input(Op op) { return op != Op::dequantize_backward; }
[[nodiscard]] constexpr bool has_grad(Op op) {
  return op == Op::quantize_backward || op == Op::dequantize_backward ||
         op == Op::fake_quantize_backward;
}
[[nodiscard]] constexpr bool has_integer(Op op) {
  return op != Op::fake_quantize && op != Op::fake_quantize_backward;
}
[[nodiscard]] constexpr bool has_range(Op op) {
  return op != Op::dequantize && op != Op::dequantize_backward;
}

/// What fixes a kernel: an operation, its granularity, its types and its profile.
struct Kind {
  Op op = Op::quantize;
  Layout layout = Layout::per_tensor;
  DType element = DType::f32;
  DType integer = DType::s8;
  Profile profile = Profile::torch;
};

/// "quantize.f32.s8.torch": only what takes part in the operation is named; not the layout, which
/// changes no bit.
[[nodiscard]] inline std::string digest_name(const Kind& kind) {
  std::string text = std::string(name(kind.op)) + "." + std::string(name(kind.element));
  if (has_integer(kind.op)) text += "." + std::string(name(kind.integer));
  if (has_range(kind.op)) text += "." + std::string(name(kind.profile));
  return text;
}

/// Every kind of one operation and layout; a part that takes no part has one value only.
[[nodiscard]] inline std::vector<Kind> kinds_of(Op op, Layout layout) {
  std::vector<Kind> kinds;
  for (const DType element : all_floats)
    for (const DType integer : all_integers)
      for (const Profile profile : all_profiles) {
        if (!has_integer(op) && integer != all_integers.front()) continue;
        if (!has_range(op) && profile != all_profiles.front()) continue;
        kinds.push_back({op, layout, element, integer, profile});
      }
  return kinds;
}

/// The problem of a kind. Shapes as in ElementwiseProblem.
[[nodiscard]] inline Problem problem_of(const Kind& kind, const Shape& shape, int axis = 0,
                                        std::int64_t group_size = 0) {
  Problem p;
  p.op = kind.op;
  p.layout = kind.layout;
  p.shape = shape;
  p.axis = axis;
  p.group_size = group_size;
  p.element = kind.element;
  p.integer = kind.integer;
  p.has_integer = has_integer(kind.op);
  p.has_range = has_range(kind.op);
  p.profile = kind.profile;
  if (!p.has_integer) {
    p.q_min = -128;
    p.q_max = 127;
  }
  return p;
}

[[nodiscard]] inline DType input_type(const Problem& p) {
  return p.op == Op::dequantize ? p.integer : p.element;
}
[[nodiscard]] inline DType output_type(const Problem& p) {
  return p.op == Op::quantize ? p.integer : p.element;
}
[[nodiscard]] inline DType scale_type(const Problem& p) {
  return p.scale_type.value_or(compute_type(p.element));
}
[[nodiscard]] inline IntRange range_of(const Problem& p) {
  const IntRange storage = storage_range(p.integer);
  return {p.q_min.value_or(storage.min), p.q_max.value_or(storage.max)};
}

/// How many scales a problem has, and which of them element i (row-major) uses.
[[nodiscard]] inline std::int64_t slice_count(const Problem& p) {
  switch (p.layout) {
    case Layout::per_channel:
      return p.shape[p.axis < 0 ? p.axis + p.shape.rank() : p.axis];
    case Layout::per_token:
      return p.shape[0];
    case Layout::per_group:
      return p.shape[0] * (p.shape[1] / p.group_size);
    default:
      return 1;
  }
}
[[nodiscard]] inline std::int64_t slice_of(const Problem& p, std::int64_t i) {
  switch (p.layout) {
    case Layout::per_channel: {
      const int axis = p.axis < 0 ? p.axis + p.shape.rank() : p.axis;
      return i / product(p.shape, axis + 1, p.shape.rank()) % p.shape[axis];
    }
    case Layout::per_token:
      return i / p.shape[1];
    case Layout::per_group:
      return i / p.group_size;
    default:
      return 0;
  }
}

inline void describe(std::ostream& out, const Problem& p) {
  out << name(p.op) << '.' << name(p.layout) << '.' << name(p.element) << '.' << name(p.integer)
      << '.' << name(p.profile) << " shape [";
  for (int i = 0; i < p.shape.rank(); ++i) out << (i == 0 ? "" : ",") << p.shape[i];
  const IntRange range = range_of(p);
  out << "] axis " << p.axis << " group " << p.group_size << " range [" << range.min << ','
      << range.max << "] scale type " << name(scale_type(p));
}

// ---- a call ------------------------------------------------------------------------------------

/// Scales and zero points, dealt out in turn to the slices of a problem.
struct Parameters {
  std::vector<double> scales{1.0};
  std::vector<std::int32_t> zero_points{0};
};

/// The operands of one call. Scales are exact in the scale type.
struct Operands {
  Problem problem;
  std::vector<double> scales;
  std::vector<std::int32_t> zero_points;
  Bytes scale_bytes;
  Bytes input;
  Bytes grad;
};

/// Where the operands of one call lie; what does not take part is null.
struct Pointers {
  const void* input = nullptr;
  const void* grad = nullptr;
  const void* scales = nullptr;
  const void* zero_points = nullptr;
  void* output = nullptr;
};
[[nodiscard]] inline Pointers pointers_of(const Operands& o, void* output) {
  return {o.input.data(), o.grad.data(), o.scale_bytes.data(), o.zero_points.data(), output};
}

[[nodiscard]] inline std::int64_t output_bytes(const Problem& p) {
  return Elements(output_type(p), p.shape).bytes();
}

/// Runs a plan of any kind, wherever the stream is, and waits. Per tensor, the scale and the zero
/// point are read through the pointers.
inline Status run(const octavo::detail::AnyElementwisePlan& plan, const Stream& stream,
                  const Problem& p, const Pointers& at, Workspace workspace = {}) {
  const Shape slices{slice_count(p)};
  TensorRef input(has_input(p.op) ? at.input : nullptr, input_type(p), p.shape);
  TensorRef grad(has_grad(p.op) ? at.grad : nullptr, p.element, p.shape);
  TensorRef scales(at.scales, scale_type(p), slices);
  TensorRef zero_points(at.zero_points, DType::s32, slices);
  TensorMut output(at.output, output_type(p), p.shape);
  octavo::detail::ElementwiseArgs args;
  if (has_input(p.op)) args.input = &input;
  if (has_grad(p.op)) args.grad = &grad;
  args.output = &output;
  if (p.layout == Layout::per_tensor) {
    const DType type = scale_type(p);
    args.scale = decode(type, load_bits(at.scales, octavo::bits(type) / 8, 0));
    args.zero_point = static_cast<std::int32_t>(load_bits(at.zero_points, 4, 0));
  } else {
    args.scales = &scales;
    if (has_input(p.op)) args.zero_points = &zero_points;
  }
  return run_there(stream, {&input, &grad, &scales, &zero_points}, {&output}, workspace,
                   [&](Workspace lent) { return plan.run(stream, lent, args); });
}

/// Selects and runs, with a workspace of its own.
inline Status run(const Stream& stream, const Problem& p, const Pointers& at,
                  std::optional<Target>* ran = nullptr) {
  auto plan = octavo::detail::AnyElementwisePlan::select(stream, p, {});
  if (!plan) return plan.error();
  if (ran != nullptr) *ran = plan->sku().target;
  const WorkspaceBuffer workspace(plan->workspace_size());
  return run(*plan, stream, p, at, workspace);
}

/// Whether this CPU has the target, or there is a device that does, and the library elementwise
/// kernels just for it.
[[nodiscard]] inline bool own_kernels(Target target) {
  if (target == Target::sm80) return has_cuda();
  if (!is_available(target)) return false;
  const auto plan = octavo::detail::AnyElementwisePlan::select(
      Stream::cpu({.threads = 1, .cap = target}), problem_of({}, {1}), {});
  return plan && plan->sku().target == target;
}

/// The oracle's answer to the same call.
template <class C>
void expect_as(const Operands& o, Bytes& output) {
  const Problem& p = o.problem;
  const Elements in(input_type(p), p.shape);
  const Elements out(output_type(p), p.shape);
  const Elements floats(p.element, p.shape);
  const IntRange range = range_of(p);
  const std::int64_t n = numel(p.shape);
  const auto read = [&](const Bytes& bytes, std::int64_t i) {
    return static_cast<C>(
        decode(p.element, static_cast<std::uint64_t>(floats.get(bytes.data(), i))));
  };
  for (std::int64_t i = 0; i < n; ++i) {
    const auto slice = static_cast<std::size_t>(slice_of(p, i));
    const Oracle<C> oracle{static_cast<C>(o.scales[slice]), o.zero_points[slice], range.min,
                           range.max, p.profile};
    const auto write = [&](C value) {
      out.set(output.data(), i, static_cast<std::int64_t>(encode(p.element, value)));
    };
    switch (p.op) {
      case Op::quantize:
        out.set(output.data(), i, oracle.quantize(read(o.input, i)));
        break;
      case Op::quantize_backward:
        write(oracle.quantize_backward(read(o.input, i), read(o.grad, i)));
        break;
      case Op::dequantize:
        write(oracle.dequantize(in.get(o.input.data(), i)));
        break;
      case Op::dequantize_backward:
        write(oracle.dequantize_backward(read(o.grad, i)));
        break;
      case Op::fake_quantize:
        write(oracle.fake_quantize(read(o.input, i)));
        break;
      case Op::fake_quantize_backward:
        write(oracle.fake_quantize_backward(read(o.input, i), read(o.grad, i)));
        break;
      default:  // not elementwise
        break;
    }
  }
}
[[nodiscard]] inline Bytes expected(const Operands& o) {
  Bytes output(static_cast<std::size_t>(output_bytes(o.problem)));
  if (o.problem.element == DType::f64) {
    expect_as<double>(o, output);
  } else {
    expect_as<float>(o, output);
  }
  return output;
}

}  // namespace octavo::testing
