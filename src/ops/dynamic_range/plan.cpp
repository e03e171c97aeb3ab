// The plan of dynamic-range quantize: select, check, run. Neutral: it reads no tensor.
#include "core/memory_place.hpp"
#include "ops/dynamic_range/implementation.hpp"

#include "numerics/dynamic_range.hpp"
#include "numerics/types.hpp"

namespace octavo {
namespace {

using detail::invalid;
using detail::unsupported;

Result<detail::ElementwiseProblem> to_problem(const DynamicRangeQuantizeDescriptor& d) {
  detail::ElementwiseProblem p;
  p.op = Op::quantize;
  p.layout = d.scope;
  p.element = d.input;
  p.integer = d.output;
  const IntRange range = numerics::default_range(d.output);
  p.q_min = d.q_min.value_or(range.min);
  p.q_max = d.q_max.value_or(range.max);
  p.profile = d.profile;
  p.axis = d.axis;
  p.group_size = d.group_size;
  const Result<std::int64_t> numel = detail::count_elements("shape", d.shape);
  if (!numel) return numel.error();
  switch (d.scope) {
    case Layout::per_tensor:
      p.shape = {*numel};
      return p;
    case Layout::per_channel:
      p.shape = d.shape;
      return p;
    case Layout::per_token:
    case Layout::per_group: {
      if (d.shape.rank() == 0)
        return invalid("shape", "expected rows (a rank of at least 1), got []");
      const std::int64_t rows = detail::leading_rows(d.shape);
      const std::int64_t cols = d.shape[d.shape.rank() - 1];
      if (rows < 0 || !detail::count_elements("shape", {rows}))
        return invalid("shape", fmt::format("expected fewer than 2^60 rows, got {}",
                                            detail::to_string(d.shape)));
      if (d.scope == Layout::per_group && (d.group_size <= 0 || cols % d.group_size != 0))
        return invalid("group_size",
                       fmt::format("expected a divisor of the last size ({}), got {}; "
                                   "pad the rows or choose another size",
                                   cols, d.group_size));
      p.shape = {rows, cols};
      return p;
    }
  }
  return unsupported("scope", fmt::format("expected per_tensor, per_channel, per_token or "
                                          "per_group, got {}",
                                          static_cast<int>(d.scope)));
}

// The arguments, as quantize would be given them.
struct QuantizeArgs {
  TensorRef scales;
  TensorRef zero_points;
  detail::ElementwiseArgs args;

  explicit QuantizeArgs(const DynamicRangeQuantizeArgs& given)
      : scales(given.scales),
        zero_points(given.zero_points) {
    args.input = &given.input;
    args.output = &given.output;
    args.scales = &scales;
    if (detail::has_zero_points(given)) args.zero_points = &zero_points;
  }
  QuantizeArgs(const QuantizeArgs&) = delete;  // (it points into itself)
  QuantizeArgs& operator=(const QuantizeArgs&) = delete;
  ~QuantizeArgs() = default;
};

// Whether nothing is wrong, and the tensors have no gaps: quickly, and false without a reason.
bool are_plain(const detail::DynamicRangeProblem& p, const DynamicRangeQuantizeArgs& args) {
  const bool has_zero_points = detail::has_zero_points(args);
  if ((!p.symmetric() && !has_zero_points) || !detail::are_plain(p, QuantizeArgs(args).args))
    return false;
  const auto extent = [](const void* data, std::int64_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return detail::Extent{begin, begin + static_cast<std::uintptr_t>(bytes)};
  };
  const auto input = extent(args.input.data, bytes_for(p.element, p.numel));
  const auto scales = extent(args.scales.data, bytes_for(p.compute(), p.slices));
  if (scales.overlaps(input)) return false;
  if (!has_zero_points) return true;
  const auto zero_points = extent(args.zero_points.data, bytes_for(DType::s32, p.slices));
  return !zero_points.overlaps(input) && !zero_points.overlaps(scales);
}

// What is wrong with the arguments, if anything is.
Status check(const detail::DynamicRangeProblem& p, const DynamicRangeQuantizeArgs& args) {
  const bool has_zero_points = detail::has_zero_points(args);
  if (!p.symmetric() && !has_zero_points)
    return invalid("zero_points",
                   fmt::format("expected {} of s32 in mode asymmetric, got none", p.slices));
  if (args.scales.dtype != p.compute())
    return unsupported("scales",
                       fmt::format("expected {}, the compute type of {}, got {}", name(p.compute()),
                                   name(p.element), name(args.scales.dtype)));
  if (Status s = detail::check_tensors(p, QuantizeArgs(args).args); !s) return s;
  // Scales and zero points are written too: nothing else may lie there.
  const Result<detail::Checked> input = detail::check_input("input", args.input, args.input.dtype);
  if (!input) return input.error();
  const Result<detail::Checked> scale =
      detail::check_output("scales", args.scales, args.scales.dtype);
  if (!scale) return scale.error();
  const auto apart = [](const char* argument, const detail::Checked& a, const char* other,
                        const detail::Checked& b) -> Status {
    if (!a.extent.overlaps(b.extent)) return {};
    return invalid(argument, fmt::format("expected memory apart from {}, got an overlap", other));
  };
  if (Status s = apart("scales", *scale, "input", *input); !s) return s;
  if (!has_zero_points) return {};
  const Result<detail::Checked> zero_point =
      detail::check_output("zero_points", args.zero_points, args.zero_points.dtype);
  if (!zero_point) return zero_point.error();
  if (Status s = apart("zero_points", *zero_point, "input", *input); !s) return s;
  return apart("zero_points", *zero_point, "scales", *scale);
}

// That all of it is memory of the backend.
Status check_memory(const detail::DynamicRangeImpl& impl, const DynamicRangeQuantizeArgs& args,
                    int device, const void* workspace) {
  const auto of = [](const void* data, std::int64_t elements) {
    return elements > 0 ? data : nullptr;
  };
  const detail::DynamicRangeProblem& p = impl.problem;
  return detail::check_memory(impl.sku.backend, device,
                              {{"input", of(args.input.data, p.numel)},
                               {"output", of(args.output.data, p.numel)},
                               {"scales", of(args.scales.data, p.slices)},
                               {"zero_points", of(args.zero_points.data, p.slices)},
                               {"workspace", workspace}});
}

}  // namespace

std::string_view name(RangeMode mode) noexcept {
  switch (mode) {
    case RangeMode::symmetric:
      return "symmetric";
    case RangeMode::asymmetric:
      return "asymmetric";
  }
  return "unknown";
}

namespace detail {

Status check_mode_range(RangeMode mode, IntRange range) {
  switch (mode) {
    case RangeMode::symmetric:
      if (range.max <= 0)
        return invalid("q_max",
                       fmt::format("expected more than 0 in mode symmetric, got {}", range.max));
      return {};
    case RangeMode::asymmetric:
      if (range.max <= range.min)
        return invalid("q_max", fmt::format("expected more than q_min ({}) in mode asymmetric, got "
                                            "{}",
                                            range.min, range.max));
      return {};
  }
  return unsupported(
      "mode", fmt::format("expected symmetric or asymmetric, got {}", static_cast<int>(mode)));
}

}  // namespace detail

Result<DynamicRangeQuantizePlan> DynamicRangeQuantizePlan::select(
    const Stream& stream, const Descriptor& descriptor, const PlanPreference& preference) {
  const auto problem = to_problem(descriptor);
  if (!problem) return problem.error();
  const auto checked = detail::check_problem(*problem);
  if (!checked) return checked.error();
  const auto allowed = detail::allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  if (Status s = detail::check_mode<numerics::SymmetricTypes>(descriptor.mode, descriptor.output,
                                                              checked->range);
      !s)
    return s.error();
  const detail::DynamicRangeProblem p{*checked, descriptor.mode};
  auto chosen = detail::choose(
      *allowed, p,
      {detail::cpu_dynamic_range(), detail::cuda_dynamic_range(), detail::test_dynamic_range});
  if (!chosen) return chosen.error();

  KernelSku& sku = chosen->impl->sku;
  sku.category = Category::dynamic_range;
  sku.op = p.symmetric() ? Op::dynamic_range_quantize : Op::dynamic_range_quantize_asymmetric;
  sku.element = p.element;
  sku.aux_element = p.integer;
  sku.layout = p.layout;
  sku.profile = p.profile;
  sku.target = chosen->at.target;
  sku.backend = chosen->at.backend;
  sku.guarantee.math = p.compute();
  if (Status s = detail::check_max_workspace(preference, chosen->impl->workspace_bytes,
                                             "for the ranges that each thread finds");
      !s)
    return s.error();
  return DynamicRangeQuantizePlan(std::move(chosen->impl));
}

std::size_t DynamicRangeQuantizePlan::workspace_size() const noexcept {
  return impl_->workspace_bytes;
}
std::int64_t DynamicRangeQuantizePlan::slices() const noexcept { return impl_->problem.slices; }
const KernelSku& DynamicRangeQuantizePlan::sku() const noexcept { return impl_->sku; }

Status DynamicRangeQuantizePlan::can_implement(const Args& args) const {
  if (Status s = check(impl_->problem, args); !s) return s;
  return check_memory(*impl_, args, -1, nullptr);
}

Status DynamicRangeQuantizePlan::run(const Stream& stream, Workspace workspace,
                                     const Args& args) const {
  if (Status s = detail::check_stream(stream, impl_->sku.backend); !s) return s;
  const bool plain = are_plain(impl_->problem, args);
  if (!plain)
    if (Status s = check(impl_->problem, args); !s) return s;
  const int device = stream.impl().device;
  if (impl_->workspace_bytes == 0) {
    if (Status s = check_memory(*impl_, args, device, nullptr); !s) return s;
    return impl_->problem.slices == 0 ? Status() : impl_->run(stream, nullptr, args, plain);
  }
  const TensorRef output = args.output;
  const TensorRef scales = args.scales;
  const TensorRef zero_points = args.zero_points;
  if (Status s = detail::check_workspace(workspace, impl_->workspace_bytes,
                                         {&args.input, &output, &scales, &zero_points});
      !s)
    return s;
  if (Status s = check_memory(*impl_, args, device, workspace.data); !s) return s;
  if (impl_->problem.slices == 0) return {};
  return impl_->run(stream, workspace.data, args, plain);
}

}  // namespace octavo
