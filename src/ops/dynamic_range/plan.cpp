// The plan of dynamic-range quantize: select, check, run.
//
// Slices that are runs of consecutive elements (tokens, groups, channels of the first axis) go
// through a fused kernel, one after another. All others, and those that are few and long, take two
// passes: ranges, each part its own, in the workspace; then the elementwise quantize.
#include <algorithm>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "ops/dynamic_range/kernels.hpp"
#include "ops/dynamic_range/ranges.hpp"
#include "ops/elementwise/driver.hpp"
#include "ops/elementwise/parameters.hpp"
#include "ops/elementwise/plan.hpp"

namespace octavo {
namespace {

using detail::invalid;
using detail::unsupported;

// Rows that are few and no longer fit the second cache, about, are better shared out among the
// threads.
bool are_few_and_long(std::int64_t rows, std::int64_t length, int threads) {
  return threads > 1 && length > std::int64_t{1} << 18 && rows < 8 * std::int64_t{threads};
}

Result<detail::ElementwiseProblem> to_problem(const DynamicRangeQuantizeDescriptor& d) {
  detail::ElementwiseProblem p;
  p.op = Op::quantize;
  p.layout = d.scope;
  p.element = d.input;
  p.integer = d.output;
  p.q_min = d.q_min;
  p.q_max = d.q_max;
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

template <class C>
void store_parameters(const numerics::Range<C>& range, const detail::KernelCall& call,
                      std::int64_t slice) {
  const auto found = numerics::range_parameters(range, call.symmetric, call.range);
  static_cast<C*>(call.scale_found)[slice] = found.scale;
  if (call.zero_point_found != nullptr) call.zero_point_found[slice] = found.zero_point;
}

// What a fused kernel does, for a row whose elements have to be gathered: twice, piece by piece.
template <class C>
Target fuse_gathered(const detail::Work& work, const detail::KernelCall& call) {
  numerics::Range<C> range;
  detail::Work step = work;
  detail::KernelCall c = call;
  c.low = &range.low;
  c.high = &range.high;
  step.kernel = work.range;
  detail::run_gathered(step, c);
  store_parameters(range, call, 0);
  c.scale = call.scale_found;
  c.zero_point = call.symmetric ? nullptr : call.zero_point_found;
  step.kernel = work.quantize;
  return detail::run_gathered(step, c);
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

struct DynamicRangeAccess {
  using Plan = DynamicRangeQuantizePlan;
  using Args = DynamicRangeQuantizeArgs;

  const Plan& plan;
  const Args& args;
  const detail::ElementwiseProblem& problem = detail::problem_of(plan.quantize_);
  const bool wide = problem.element == DType::f64;
  const bool symmetric = plan.mode_ == RangeMode::symmetric;
  const TensorRef scales = args.scales;
  const TensorRef zero_points = args.zero_points;

  [[nodiscard]] detail::RangePass pass() const { return pass_of(plan); }
  static detail::RangePass pass_of(const Plan& plan) {
    return {plan.slices_, plan.threads_, plan.mode_ == RangeMode::symmetric,
            detail::problem_of(plan.quantize_).element};
  }

  [[nodiscard]] bool has_zero_points() const {
    return args.zero_points.data != nullptr || args.zero_points.shape.rank() > 0;
  }

  [[nodiscard]] std::int32_t* found_zero_points() const {
    return has_zero_points() ? static_cast<std::int32_t*>(args.zero_points.data) : nullptr;
  }

  [[nodiscard]] detail::ElementwiseArgs elementwise_args() const {
    detail::ElementwiseArgs e;
    e.input = &args.input;
    e.output = &args.output;
    e.scales = &scales;
    if (has_zero_points()) e.zero_points = &zero_points;
    return e;
  }

  [[nodiscard]] Status check() const {
    if (!symmetric && !has_zero_points())
      return invalid("zero_points",
                     fmt::format("expected {} of s32 in mode asymmetric, got none", plan.slices_));
    if (const DType compute = compute_type(problem.element); args.scales.dtype != compute)
      return unsupported("scales",
                         fmt::format("expected {}, the compute type of {}, got {}", name(compute),
                                     name(problem.element), name(args.scales.dtype)));
    if (Status s = detail::check_tensors(plan.quantize_, elementwise_args()); !s) return s;
    // They are written too: nothing else may lie there.
    const auto extent = [](const char* argument, const TensorMut& t) {
      return detail::check_output(argument, t, t.dtype);
    };
    const Result<detail::Checked> input =
        detail::check_input("input", args.input, args.input.dtype);
    if (!input) return input.error();
    const Result<detail::Checked> scale = extent("scales", args.scales);
    if (!scale) return scale.error();
    const auto apart = [](const char* argument, const detail::Checked& a, const char* other,
                          const detail::Checked& b) -> Status {
      if (!a.extent.overlaps(b.extent)) return {};
      return invalid(argument, fmt::format("expected memory apart from {}, got an overlap", other));
    };
    if (Status s = apart("scales", *scale, "input", *input); !s) return s;
    if (!has_zero_points()) return {};
    const Result<detail::Checked> zero_point = extent("zero_points", args.zero_points);
    if (!zero_point) return zero_point.error();
    if (Status s = apart("zero_points", *zero_point, "input", *input); !s) return s;
    return apart("zero_points", *zero_point, "scales", *scale);
  }

  [[nodiscard]] Status check_workspace(const Workspace& workspace) const {
    const TensorRef output = args.output;
    return detail::check_workspace(workspace, plan.workspace_size(),
                                   {&args.input, &output, &scales, &zero_points});
  }

  [[nodiscard]] detail::Work work() const {
    detail::Work w;
    const detail::ElementwiseArgs e = elementwise_args();
    w.iteration = detail::iterate(problem, e);
    w.input_type = problem.element;
    w.output_type = problem.integer;
    w.call.input = args.input.data;
    w.call.output = args.output.data;
    w.call.range = detail::range_of(plan.quantize_);
    w.call.profile = problem.profile;
    w.call.symmetric = symmetric;
    w.call.scale_found = args.scales.data;
    w.call.zero_point_found = found_zero_points();
    return w;
  }

  [[nodiscard]] detail::KernelKey key(bool per_lane) const {
    return {Op::quantize, problem.element, problem.integer, per_lane};
  }

  // The parameters of all slices from their ranges; without a workspace there was no element.
  void find_all(const Stream& stream, const detail::KernelCall& call, const void* ranges) const {
    const std::int64_t slices = plan.slices_;
    const int finders =
        static_cast<int>(std::clamp<std::int64_t>(slices / 4096, 1, stream.threads()));
    const auto find = [&]<class C>(C /*compute type*/, std::int64_t i) {
      store_parameters(ranges == nullptr ? numerics::Range<C>() : pass().merged<C>(ranges, i), call,
                       i);
    };
    detail::parallel(stream, finders, [&](int part) {
      const std::int64_t first = slices / finders * part;
      const std::int64_t last = part + 1 == finders ? slices : slices / finders * (part + 1);
      for (std::int64_t i = first; i < last; ++i) wide ? find(double(), i) : find(float(), i);
    });
  }

  // A slice for each row.
  void run_rows(const Stream& stream, detail::Work w, Target target) const {
    const auto kernels = detail::dynamic_range_kernels_of(target);
    w.kernel = kernels.find_fused(key(false));
    w.range = kernels.find_range(key(false));
    w.quantize = detail::kernels_of(target).find(key(false));
    w.gathered_row = wide ? fuse_gathered<double> : fuse_gathered<float>;
    w.whole_rows = true;
    detail::execute(stream, w);
  }

  // Ranges first, then quantize.
  void run_passes(const Stream& stream, const detail::Work& base, Target target,
                  void* workspace) const {
    pass().run(stream, base, target, workspace);
    find_all(stream, base.call, workspace);

    detail::Work w = base;
    const bool per_lane = w.iteration.per_lane;
    detail::Parameters p;
    p.compute = p.scale_type = compute_type(problem.element);
    p.range = base.call.range;
    p.count = plan.slices_;
    p.scan = detail::kernels_of(target).scan;
    p.scales = args.scales.data;
    if (!symmetric) p.zero_points = base.call.zero_point_found;
    (void)detail::prepare(p, nullptr);  // (what was found is a scale)
    w.kernel = detail::kernels_of(target).find(key(per_lane));
    w.call.scale_found = nullptr;
    w.call.zero_point_found = nullptr;
    detail::set_parameters(w.call, p);
    detail::execute(stream, w);
  }

  void run(const Stream& stream, void* workspace) const {
    if (plan.slices_ == 0) return;
    if (plan.numel_ == 0) {
      detail::KernelCall none;
      none.range = detail::range_of(plan.quantize_);
      none.symmetric = symmetric;
      none.scale_found = args.scales.data;
      none.zero_point_found = found_zero_points();
      return find_all(stream, none, nullptr);
    }
    detail::Work w = work();
    detail::Iteration& it = w.iteration;
    // Slices of one element lie along the lanes; they are rows all the same.
    if (it.per_lane && plan.slices_ == plan.numel_) {
      it.odd_nibbles = is_packed(problem.integer);
      if (it.odd_nibbles) it.rows_per_cut = it.length();
      it.rows *= it.length();
      it.dims[static_cast<std::size_t>(it.rank++)] = {1, {1, 1, 1, 0}};
      it.per_lane = false;
    }
    // Runs that start within a byte are the reference's.
    const Target target = it.odd_nibbles ? Target::scalar : plan.sku_.target;
    const bool rows = !it.per_lane && it.rows == plan.slices_;
    const bool shared =
        plan.workspace_size() > 0 && are_few_and_long(plan.slices_, it.length(), stream.threads());
    if (rows && !shared) {
      run_rows(stream, w, target);
    } else {
      run_passes(stream, w, target, workspace);
    }
  }
};

Result<DynamicRangeQuantizePlan> DynamicRangeQuantizePlan::select(
    const Stream& stream, const Descriptor& descriptor, const PlanPreference& preference) {
  const auto problem = to_problem(descriptor);
  if (!problem) return problem.error();
  PlanPreference rest = preference;
  rest.max_workspace_bytes = std::nullopt;
  const auto quantize = detail::ElementwisePlan::select(stream, *problem, rest);
  if (!quantize) return quantize.error();
  if (Status s =
          detail::check_mode(descriptor.mode, descriptor.output, detail::range_of(*quantize));
      !s)
    return s.error();

  DynamicRangeQuantizePlan plan(*quantize);
  plan.mode_ = descriptor.mode;
  plan.numel_ = *detail::count_elements("shape", problem->shape);
  plan.slices_ = detail::slices_of(*quantize);
  plan.threads_ = stream.threads();
  plan.sku_ = quantize->sku();
  plan.sku_.category = Category::dynamic_range;
  plan.sku_.op = descriptor.mode == RangeMode::symmetric ? Op::dynamic_range_quantize
                                                         : Op::dynamic_range_quantize_asymmetric;
  if (Status s = detail::check_max_workspace(preference, plan.workspace_size(),
                                             "for the ranges that each thread finds");
      !s)
    return s.error();
  return plan;
}

std::size_t DynamicRangeQuantizePlan::workspace_size() const noexcept {
  const auto& problem = detail::problem_of(quantize_);
  const bool rows = problem.layout == Layout::per_token || problem.layout == Layout::per_group;
  if (rows && (slices_ == 0 || !are_few_and_long(slices_, numel_ / slices_, threads_))) return 0;
  return DynamicRangeAccess::pass_of(*this).workspace_size();
}

Status DynamicRangeQuantizePlan::can_implement(const Args& args) const {
  return DynamicRangeAccess{*this, args}.check();
}

Status DynamicRangeQuantizePlan::run(const Stream& stream, Workspace workspace,
                                     const Args& args) const {
  const DynamicRangeAccess access{*this, args};
  if (Status s = access.check(); !s) return s;
  if (Status s = access.check_workspace(workspace); !s) return s;
  access.run(stream, workspace.data);
  return {};
}

}  // namespace octavo
