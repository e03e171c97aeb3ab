// What the tests of the linear plans share: any plan behind one call, beside the oracle's answer.
#pragma once

#include "ops/linear/testing_oracle.hpp"
#include "testing/cuda.hpp"

namespace octavo::testing {

// ---- The plans ----------------------------------------------------------------------------------

template <class D>
void fill_descriptor(D& to, const LinearCase& c) {
  to.m = c.m;
  to.n = c.n;
  to.k = c.k;
  to.activation = c.activation;
  to.weight = c.weight;
  to.output = c.output;
  if constexpr (requires { to.group_size; }) {
    to.weight_zero_points = c.weight_zero_points;
    to.group_size = c.group;
    to.weight_scale = c.parameter;
  }
  to.packed_weight = c.packed;
  to.epilogue = c.epilogue;
  to.profile = c.profile;
}

/// The arguments of a call.
template <class Args>
Args linear_args(const LinearData& d, const PackedWeight& packed, Matrix& out) {
  Args args;
  args.input = d.input.ref();
  args.weight = d.c.packed ? WeightRef(packed) : WeightRef(d.weight.ref());
  const auto array = [](const Matrix& m) { return TensorRef(m.bytes.data(), m.type, {m.columns}); };
  const auto zeros = [](const std::vector<std::int32_t>& z) { return TensorRef(z); };
  if constexpr (requires { args.weight_scales; }) {
    const bool held = d.c.packed && d.c.group != 0;  // by the pack
    if (d.c.output != DType::s32 && !held) args.weight_scales = array(d.weight_scales);
    if (d.c.weight_zero_points && !held) args.weight_zero_points = zeros(d.weight_zero_points);
  }
  if (contains(d.c.epilogue, Epilogue::bias)) args.bias = array(d.bias);
  if (contains(d.c.epilogue, Epilogue::residual)) args.residual = d.residual.ref();
  args.output_scale = d.output_scale;
  args.output_zero_point = d.output_zero_point;
  args.output = out.mut();
  if constexpr (requires { args.activation_scales; }) {
    if (d.c.output != DType::s32) args.activation_scales = array(d.activation_scales);
    if (d.c.activation_zero_points) args.activation_zero_points = zeros(d.activation_zero_points);
  }
  return args;
}

/// What a pack holds beside the weights.
[[nodiscard]] inline WeightGroups groups_of(const LinearData& d) {
  WeightGroups groups;
  if (d.c.group == 0) return groups;
  groups.size = d.c.group;
  groups.scales =
      TensorRef(d.weight_scales.bytes.data(), d.weight_scales.type, {d.c.n, d.c.groups()});
  if (d.c.weight_zero_points)
    groups.zero_points = TensorRef(d.weight_zero_points.data(), {d.c.n, d.c.groups()});
  return groups;
}

[[nodiscard]] inline Result<PackedWeight> packed_weight(const Stream& stream, const LinearData& d) {
  return pack(stream, d.weight.ref(), groups_of(d));
}

/// The arguments of a linear, on a device.
template <class Args>
void add_tensors(const Args& args, Mirror& mirror) {
  mirror.add(args.input);
  if (!args.weight.is_packed) mirror.add(args.weight.tensor);
  if constexpr (requires { args.weight_scales; }) {
    mirror.add(args.weight_scales);
    mirror.add(args.weight_zero_points);
  }
  mirror.add(args.bias);
  mirror.add(args.residual);
  if constexpr (requires { args.activation_scales; }) {
    mirror.add(args.activation_scales);
    mirror.add(args.activation_zero_points);
  }
  mirror.add(args.output);
}
template <class Args>
Args moved(Args args, const Mirror& mirror) {
  args.input = mirror.moved(args.input);
  args.weight.tensor = mirror.moved(args.weight.tensor);
  if constexpr (requires { args.weight_scales; }) {
    args.weight_scales = mirror.moved(args.weight_scales);
    args.weight_zero_points = mirror.moved(args.weight_zero_points);
  }
  args.bias = mirror.moved(args.bias);
  args.residual = mirror.moved(args.residual);
  if constexpr (requires { args.activation_scales; }) {
    args.activation_scales = mirror.moved(args.activation_scales);
    args.activation_zero_points = mirror.moved(args.activation_zero_points);
  }
  args.output = mirror.moved(args.output);
  return args;
}

/// Packs rows of the host's memory where the stream computes.
[[nodiscard]] inline Result<PackedWeight> packed_there(const Stream& stream, const LinearData& d) {
  if (stream.backend() != Backend::cuda) return packed_weight(stream, d);
  const TensorRef rows = d.weight.ref();
  WeightGroups groups = groups_of(d);
  Mirror mirror(stream);
  mirror.add(rows);
  mirror.add(groups.scales);
  mirror.add(groups.zero_points);
  mirror.upload();
  groups.scales = mirror.moved(groups.scales);
  groups.zero_points = mirror.moved(groups.zero_points);
  Result<PackedWeight> packed = pack(stream, mirror.moved(rows), groups);
  const Status done = stream.synchronize();
  if (packed && !done) return done.error();
  return packed;
}

/// Runs a plan with arguments of the host's memory, wherever it computes, and waits. (Packed
/// weights are there already.)
template <class Plan>
Status run_anywhere(const Stream& stream, const Plan& plan, const typename Plan::Args& args) {
  if (stream.backend() != Backend::cuda)
    return plan.run(stream, WorkspaceBuffer(plan.workspace_size()), args);
  Mirror mirror(stream);
  add_tensors(args, mirror);
  mirror.upload();
  const WorkspaceBuffer workspace(stream, plan.workspace_size());
  const Status ran = plan.run(stream, workspace, moved(args, mirror));
  const Status done = stream.synchronize();
  if (!mirror.download())
    return Error(ErrorCode::backend, "output", "output: bytes in front of an argument changed");
  return ran ? done : ran;
}

template <class Plan>
std::string run_there(const Stream& stream, const Plan& plan, const LinearData& d, Matrix& out) {
  PackedWeight packed;
  if (d.c.packed) {
    auto made = packed_there(stream, d);
    if (!made) return made.error().message();
    packed = *made;
  }
  out = blank_output(d.c);
  const Status s = run_anywhere(stream, plan, linear_args<typename Plan::Args>(d, packed, out));
  return s ? std::string() : s.error().message();
}

template <class Plan>
std::string run_plan(const Stream& stream, const typename Plan::Descriptor& descriptor,
                     const LinearData& d, Matrix& out) {
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error().message();
  if (stream.backend() == Backend::cuda) return run_there(stream, *plan, d, out);
  PackedWeight packed;
  if (d.c.packed) {
    auto made = packed_weight(stream, d);
    if (!made) return made.error().message();
    packed = *made;
  }
  const WorkspaceBuffer workspace(plan->workspace_size());
  out = blank_output(d.c);
  const Status s = plan->run(stream, workspace, linear_args<typename Plan::Args>(d, packed, out));
  return s ? std::string() : s.error().message();
}

[[nodiscard]] inline QuantizedMatmulDescriptor matmul_descriptor(const LinearCase& c) {
  QuantizedMatmulDescriptor to;
  fill_descriptor(to, c);
  to.activation_zero_points = c.activation_zero_points;
  return to;
}
[[nodiscard]] inline QuantizedLinearDescriptor dynamic_descriptor(const LinearCase& c) {
  QuantizedLinearDescriptor to;
  fill_descriptor(to, c);
  to.mode = c.mode;
  to.quantized = c.quantized;
  return to;
}
[[nodiscard]] inline SmoothQuantLinearDescriptor smoothquant_descriptor(const LinearData& d) {
  SmoothQuantLinearDescriptor to;
  fill_descriptor(to, d.c);
  to.act_scale = d.act_scale;
  to.act_zero_point = d.act_zero_point;
  return to;
}

[[nodiscard]] inline FloatLinearDescriptor float_descriptor(const LinearCase& c) {
  FloatLinearDescriptor to;
  fill_descriptor(to, c);
  return to;
}

/// Runs the case's plan; the error's message, or empty.
[[nodiscard]] inline std::string run(const Stream& stream, const LinearData& d, Matrix& out) {
  switch (d.c.kind) {
    case LinearKind::matmul:
      return run_plan<QuantizedMatmulPlan>(stream, matmul_descriptor(d.c), d, out);
    case LinearKind::dynamic:
      return run_plan<QuantizedLinearPlan>(stream, dynamic_descriptor(d.c), d, out);
    case LinearKind::smoothquant:
      return run_plan<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d, out);
    case LinearKind::floats:
      return run_plan<FloatLinearPlan>(stream, float_descriptor(d.c), d, out);
  }
  return "unknown kind";
}

/// Empty if the plan's output is the oracle's, to the byte, what lies between the rows included.
[[nodiscard]] inline std::string compare(const Stream& stream, const LinearData& d,
                                         const Matrix& answer) {
  Matrix out;
  if (std::string error = run(stream, d, out); !error.empty()) return d.c.text() + ": " + error;
  if (out.bytes == answer.bytes) return {};
  for (std::int64_t m = 0; m < d.c.m; ++m)
    for (std::int64_t n = 0; n < d.c.n; ++n)
      if (out.get(m, n) != answer.get(m, n))
        return d.c.text() + ": at [" + std::to_string(m) + ", " + std::to_string(n) +
               "] expected bits " + std::to_string(answer.get(m, n)) + ", got " +
               std::to_string(out.get(m, n));
  return d.c.text() + ": bytes between the rows changed";
}

}  // namespace octavo::testing
