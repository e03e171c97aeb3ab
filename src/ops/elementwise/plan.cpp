// The plan behind the elementwise family: select, check, run.
#include <algorithm>
#include <bit>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "core/target.hpp"
#include "octavo/elementwise.hpp"
#include "ops/elementwise/driver.hpp"
#include "ops/elementwise/kernels.hpp"
#include "ops/elementwise/parameters.hpp"
#include "ops/elementwise/plan.hpp"

namespace octavo::detail {
namespace {

bool is_backward(Op op) {
  return op == Op::quantize_backward || op == Op::dequantize_backward ||
         op == Op::fake_quantize_backward;
}

// The names of a problem's fields in the public descriptors and arguments.
const char* element_name(const ElementwiseProblem& p) {
  if (!p.has_integer) return "element";
  return p.has_range ? "input" : "output";
}
const char* output_name(Op op) { return is_backward(op) ? "grad_input" : "output"; }

DType input_type(const ElementwiseProblem& p) {
  return p.op == Op::dequantize ? p.integer : p.element;
}
DType output_type(const ElementwiseProblem& p) {
  return p.op == Op::quantize ? p.integer : p.element;
}

Status check_types(const ElementwiseProblem& p) {
  if (!is_float(p.element))
    return unsupported(element_name(p),
                       fmt::format("expected f32, f64, f16 or bf16, got {}", name(p.element)));
  if (p.has_integer && !is_quantized(p.integer))
    return unsupported(p.has_range ? "output" : "input",
                       fmt::format("expected s8, u8, s4 or u4, got {}", name(p.integer)));
  if (p.scale_type && !is_float(*p.scale_type))
    return unsupported("scale_type",
                       fmt::format("expected f32, f64, f16 or bf16, got {}", name(*p.scale_type)));
  if (p.profile != Profile::torch && p.profile != Profile::onnx)
    return unsupported("profile",
                       fmt::format("expected torch or onnx, got {}", static_cast<int>(p.profile)));
  return {};
}

Result<IntRange> check_range(const ElementwiseProblem& p) {
  if (!p.has_range) return IntRange{};
  const IntRange storage = storage_range(p.has_integer ? p.integer : DType::s32);
  const IntRange range{p.q_min.value_or(storage.min), p.q_max.value_or(storage.max)};
  if (range.min > range.max)
    return invalid("q_max", fmt::format("expected at least q_min, got q_min {} and q_max {}",
                                        range.min, range.max));
  const auto outside = [&](const char* argument, std::int32_t q) {
    return invalid(argument, fmt::format("expected a value that {} holds, {} to {}, got {}",
                                         name(p.integer), storage.min, storage.max, q));
  };
  if (range.min < storage.min) return outside("q_min", range.min);
  if (range.max > storage.max) return outside("q_max", range.max);
  return range;
}

// Elements and scales of the problem.
struct Sizes {
  std::int64_t numel = 0;
  std::int64_t scales = 1;
};

Result<Sizes> check_sizes(const ElementwiseProblem& p) {
  static constexpr const char* fields[][2] = {
      {"numel", "numel"}, {"shape", "shape"}, {"tokens", "hidden"}, {"rows", "cols"}};
  const auto& field = fields[static_cast<std::size_t>(p.layout)];
  if (p.layout != Layout::per_channel)
    for (int i = 0; i < p.shape.rank(); ++i)
      if (p.shape[i] < 0)
        return invalid(field[i], fmt::format("expected 0 or more, got {}", p.shape[i]));
  const Result<std::int64_t> numel = count_elements(field[0], p.shape);
  if (!numel) return numel.error();
  Sizes sizes{*numel, 1};
  const int rank = p.shape.rank();
  switch (p.layout) {
    case Layout::per_tensor:
      break;
    case Layout::per_token:
      sizes.scales = p.shape[0];
      break;
    case Layout::per_channel:
      if (p.axis < -rank || p.axis >= rank)
        return invalid("axis", fmt::format("expected an axis of shape {}, {} to {}, got {}",
                                           to_string(p.shape), -rank, rank - 1, p.axis));
      sizes.scales = p.shape[p.axis < 0 ? p.axis + rank : p.axis];
      break;
    case Layout::per_group: {
      if (p.group_size <= 0 || p.shape[1] % p.group_size != 0)
        return invalid("group_size", fmt::format("expected a divisor of cols ({}), got {}; pad the "
                                                 "rows or choose another size",
                                                 p.shape[1], p.group_size));
      const Result<std::int64_t> scales =
          count_elements("rows", {p.shape[0], p.shape[1] / p.group_size});
      if (!scales) return scales.error();
      sizes.scales = *scales;
      break;
    }
  }
  // Not bounded by numel when the other sizes are 0.
  const Result<std::int64_t> bounded = count_elements(field[0], {sizes.scales});
  if (!bounded) return bounded.error();
  return sizes;
}

}  // namespace

std::int64_t leading_rows(const Shape& shape) {
  std::int64_t rows = 1;
  bool overflow = false;  // possible where the last size is 0
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    if (shape[i] == 0) return 0;
    overflow = __builtin_mul_overflow(rows, shape[i], &rows) || overflow;
  }
  return overflow ? -1 : rows;
}

namespace {

// The shape of an argument, against the descriptor: channel as it is; the others in any shape that
// has the descriptor's rows.
Status check_shape(const char* argument, const ElementwiseProblem& p, const Shape& shape,
                   std::int64_t numel) {
  const auto mismatch = [&](const std::string& expected) {
    return invalid(argument, fmt::format("expected {}, as the plan was made for, got {}", expected,
                                         to_string(shape)));
  };
  const std::int64_t last = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  switch (p.layout) {
    case Layout::per_tensor:
      if (numel != p.shape[0]) return mismatch(fmt::format("a shape of {} elements", p.shape[0]));
      break;
    case Layout::per_channel:
      if (!(shape == p.shape)) return mismatch(fmt::format("shape {}", to_string(p.shape)));
      break;
    case Layout::per_token:
    case Layout::per_group: {
      if (shape.rank() < 1 || last != p.shape[1] || leading_rows(shape) != p.shape[0])
        return mismatch(fmt::format("a shape [..., {}] with {} rows", p.shape[1], p.shape[0]));
      break;
    }
  }
  return {};
}

}  // namespace

struct ElementwiseAccess {
  static const ElementwiseProblem& problem(const ElementwisePlan& plan) { return plan.problem_; }
  static IntRange range(const ElementwisePlan& plan) { return plan.range_; }
  static std::int64_t slices(const ElementwisePlan& plan) { return plan.scales_; }

  static Status check_tensors(const ElementwisePlan& plan, const ElementwiseArgs& args) {
    const ElementwiseProblem& p = plan.problem_;
    const char* out_name = output_name(p.op);
    const DType in_type = input_type(p);
    const DType out_type = output_type(p);

    const Result<Checked> out = check_output(out_name, *args.output, out_type);
    if (!out) return out.error();
    if (Status s = check_shape(out_name, p, args.output->shape, out->numel); !s) return s;

    const auto check_read = [&](const char* argument, const TensorRef& t, DType type) -> Status {
      const Result<Checked> in = check_input(argument, t, type);
      if (!in) return in.error();
      if (!(t.shape == args.output->shape))
        return invalid(argument, fmt::format("expected the shape of {}, {}, got {}", out_name,
                                             to_string(args.output->shape), to_string(t.shape)));
      if (!in->extent.overlaps(out->extent)) return {};
      const bool in_place = t.data == args.output->data && bits(type) == bits(out_type) &&
                            same_strides(t, *args.output);
      if (in_place) return {};
      return invalid(out_name,
                     fmt::format("expected memory apart from {}, or exactly the same (pointer, "
                                 "element size and strides), got an overlap",
                                 argument));
    };
    if (args.input != nullptr)
      if (Status s = check_read("input", *args.input, in_type); !s) return s;
    if (args.grad != nullptr)
      if (Status s = check_read("grad_output", *args.grad, p.element); !s) return s;

    if (args.scales == nullptr) return {};
    const auto check_parameters = [&](const char* argument, const TensorRef& t,
                                      DType type) -> Status {
      const Result<Checked> in = check_array(argument, t, type, plan.scales_);
      if (!in) return in.error();
      if (in->extent.overlaps(out->extent))
        return invalid(out_name,
                       fmt::format("expected memory apart from {}, got an overlap", argument));
      return {};
    };
    if (args.scales->dtype != plan.scale_type_)
      return unsupported("scales", fmt::format("expected {}, as the plan was made for, got {}; set "
                                               "scale_type in the descriptor",
                                               name(plan.scale_type_), name(args.scales->dtype)));
    if (Status s = check_parameters("scales", *args.scales, plan.scale_type_); !s) return s;
    if (!has_zero_points(args)) return {};
    return check_parameters("zero_points", *args.zero_points, DType::s32);
  }

  static Parameters parameters(const ElementwisePlan& plan, const ElementwiseArgs& args) {
    Parameters p;
    p.op = plan.problem_.op;
    p.compute = compute_type(plan.problem_.element);
    p.scale_type = plan.scale_type_;
    p.range = plan.range_;
    p.count = plan.scales_;
    p.divides = plan.problem_.has_range;
    if (p.count > 1) p.scan = kernels_of(plan.sku_.target).scan;
    p.scalar_scale = args.scale;
    p.scalar_zero_point = args.zero_point;
    if (args.scales != nullptr) p.scales = args.scales->data;
    if (args.scales != nullptr && has_zero_points(args))
      p.zero_points = static_cast<const std::int32_t*>(args.zero_points->data);
    return p;
  }

  // All of a call but where its runs are.
  static KernelCall kernel_call(const ElementwisePlan& plan, const ElementwiseArgs& args,
                                const Parameters& parameters) {
    KernelCall call;
    call.input = args.input == nullptr ? nullptr : args.input->data;
    call.grad = args.grad == nullptr ? nullptr : args.grad->data;
    call.output = args.output->data;
    call.range = plan.range_;
    call.profile = plan.problem_.profile;
    set_parameters(call, parameters);
    return call;
  }

  static Status run(const ElementwisePlan& plan, const Stream& stream, void* workspace,
                    const ElementwiseArgs& args) {
    Parameters parameters = ElementwiseAccess::parameters(plan, args);
    if (Status s = prepare(parameters, workspace); !s) return s;
    if (plan.numel_ == 0) return {};
    Work work;
    work.iteration = iterate(plan.problem_, args);
    const bool reference = parameters.beyond_simd || work.iteration.odd_nibbles;
    work.kernel = (reference ? plan.reference_ : plan.kernels_)[work.iteration.per_lane ? 1 : 0];
    work.call = kernel_call(plan, args, parameters);
    work.input_type = input_type(plan.problem_);
    work.grad_type = plan.problem_.element;
    work.output_type = output_type(plan.problem_);
    execute(stream, work);
    return {};
  }

  // The commonest call, in a few nanoseconds: one scale, and a few elements one after another.
  // False: nothing was done, go the general way, which also says what is wrong.
  static bool run_small(const ElementwisePlan& plan, const Stream& stream,
                        const ElementwiseArgs& args) {
    const ElementwiseProblem& p = plan.problem_;
    if (p.layout != Layout::per_tensor || plan.numel_ < 1 || plan.numel_ > max_small) return false;
    const DType in_type = input_type(p);
    const DType out_type = output_type(p);
    Extent out;
    Extent in;
    if (!is_simple(*args.output, out_type, plan.numel_, out)) return false;
    const auto readable = [&](const TensorRef* t, DType type) {
      if (t == nullptr) return true;
      if (!is_simple(*t, type, plan.numel_, in)) return false;
      return !in.overlaps(out) || (in.begin == out.begin && in.end == out.end);
    };
    if (!readable(args.input, in_type) || !readable(args.grad, p.element)) return false;

    const FpEnvironment environment;
    Parameters parameters = ElementwiseAccess::parameters(plan, args);
    if (!prepare_here(parameters, nullptr)) return false;
    KernelCall call = kernel_call(plan, args, parameters);
    call.count = 1;
    call.length = plan.numel_;
    const Target ran = (parameters.beyond_simd ? plan.reference_ : plan.kernels_)[0](call);
    if (stream.options().trace != nullptr)
      stream.options().trace->fetch_or(1U << static_cast<unsigned>(ran), std::memory_order_relaxed);
    return true;
  }

 private:
  template <class Tensor>
  static bool is_simple(const Tensor& t, DType type, std::int64_t numel, Extent& extent) {
    const std::int64_t bytes = bytes_for(type, numel);
    const auto address = reinterpret_cast<std::uintptr_t>(t.data);
    extent = {address, address + static_cast<std::uintptr_t>(bytes)};
    return t.dtype == type && t.shape.rank() == 1 && t.shape[0] == numel && t.strides.rank() == 1 &&
           t.strides[0] == 1 && t.data != nullptr &&
           address % static_cast<std::uintptr_t>(bytes_for(type, 1)) == 0 &&
           (t.buffer_bytes < 0 || t.buffer_bytes >= bytes);
  }
  static bool has_zero_points(const ElementwiseArgs& args) {
    return args.zero_points != nullptr &&
           (args.zero_points->data != nullptr || args.zero_points->shape.rank() > 0);
  }
};

const ElementwiseProblem& problem_of(const ElementwisePlan& plan) {
  return ElementwiseAccess::problem(plan);
}
IntRange range_of(const ElementwisePlan& plan) { return ElementwiseAccess::range(plan); }
std::int64_t slices_of(const ElementwisePlan& plan) { return ElementwiseAccess::slices(plan); }
Status check_tensors(const ElementwisePlan& plan, const ElementwiseArgs& args) {
  return ElementwiseAccess::check_tensors(plan, args);
}

Result<ElementwisePlan> ElementwisePlan::select(const Stream& stream,
                                                const ElementwiseProblem& problem,
                                                const PlanPreference& preference) {
  if (Status s = check_types(problem); !s) return s.error();
  const Result<IntRange> range = check_range(problem);
  if (!range) return range.error();
  const Result<Sizes> sizes = check_sizes(problem);
  if (!sizes) return sizes.error();
  const Result<std::uint32_t> allowed = allowed_targets(stream, preference);
  if (!allowed) return allowed.error();

  ElementwisePlan plan;
  plan.problem_ = problem;
  plan.range_ = *range;
  plan.numel_ = sizes->numel;
  plan.scales_ = sizes->scales;
  plan.scale_type_ = problem.scale_type.value_or(compute_type(problem.element));
  const auto find = [&](Target target, bool per_lane) {
    return kernels_of(target).find({problem.op, problem.element, problem.integer, per_lane});
  };
  const Target chosen =
      best_target(*allowed, [](Target t) { return kernels_of(t).find != nullptr; });
  for (const bool per_lane : {false, true}) {
    plan.kernels_[per_lane ? 1 : 0] = find(chosen, per_lane);
    plan.reference_[per_lane ? 1 : 0] = find(Target::scalar, per_lane);
  }
  plan.sku_.op = problem.op;
  plan.sku_.element = problem.element;
  plan.sku_.aux_element = problem.has_integer ? problem.integer : problem.element;
  plan.sku_.layout = problem.layout;
  plan.sku_.profile = problem.profile;
  plan.sku_.target = chosen;
  plan.sku_.guarantee.math = compute_type(problem.element);
  if (Status s = check_max_workspace(preference, plan.workspace_size(),
                                     "to hold the scales in the compute type");
      !s)
    return s.error();
  return plan;
}

std::size_t ElementwisePlan::workspace_size() const noexcept {
  const DType compute = compute_type(problem_.element);
  return scale_type_ == compute ? 0 : static_cast<std::size_t>(bytes_for(compute, scales_));
}

Status ElementwisePlan::can_implement(const ElementwiseArgs& args) const {
  if (Status s = ElementwiseAccess::check_tensors(*this, args); !s) return s;
  Parameters parameters = ElementwiseAccess::parameters(*this, args);
  return prepare(parameters, nullptr);
}

Status ElementwisePlan::run(const Stream& stream, Workspace workspace,
                            const ElementwiseArgs& args) const {
  if (ElementwiseAccess::run_small(*this, stream, args)) return {};
  if (Status s = ElementwiseAccess::check_tensors(*this, args); !s) return s;
  const std::size_t needed = workspace_size();
  const TensorRef output = *args.output;
  if (Status s = check_workspace(workspace, needed,
                                 {args.input, args.grad, &output, args.scales, args.zero_points});
      !s)
    return s;
  return ElementwiseAccess::run(*this, stream, needed == 0 ? nullptr : workspace.data, args);
}

}  // namespace octavo::detail
