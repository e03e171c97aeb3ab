// The elementwise plans on the CPU: scales are read and checked, tensors become runs, and threads
// hand them to the kernels that were chosen.
#include "ops/elementwise/implementation.hpp"

#include <array>

#include "core/fp_environment.hpp"
#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/driver.hpp"
#include "ops/runs/cpu/parameters.hpp"

namespace octavo::detail {
namespace {

// For parameters that are uniform, and per lane.
using Kernels = std::array<KernelFunction, 2>;

class CpuElementwise final : public ElementwiseImpl {
 public:
  CpuElementwise(const SlicedProblem& p, const Kernels& kernels, const Kernels& reference,
                 ScanFunction scan)
      : ElementwiseImpl(p),
        kernels_(kernels),
        reference_(reference),
        base_(parameters_of(p, scan)) {
    if (p.scales != p.compute())
      workspace_bytes = static_cast<std::size_t>(bytes_for(p.compute(), p.slices));
    if (p.numel == 0) return;
    plain_ = plain_iteration(p);
    one_call_ = whole_call(plain_);
    one_call_.range = p.range;
    one_call_.profile = p.profile;
    is_one_call_ = p.numel <= max_small && plain_.rank <= 2 && !joins_rows(plain_);
    one_kernel_ = (plain_.odd_nibbles ? reference_ : kernels_)[plain_.per_lane ? 1 : 0];
    one_reference_ = reference_[plain_.per_lane ? 1 : 0];
    const bool reads_input = p.op != Op::dequantize_backward;
    const bool reads_gradient = p.op == Op::quantize_backward || p.op == Op::dequantize_backward ||
                                p.op == Op::fake_quantize_backward;
    bytes_ = (reads_input ? bytes_for(p.input_type(), p.numel) : 0) +
             (reads_gradient ? bytes_for(p.element, p.numel) : 0) +
             bytes_for(p.output_type(), p.numel);
  }

  [[nodiscard]] Status check_values(const ElementwiseArgs& args) const override {
    const FpEnvironment environment;
    Parameters parameters = parameters_of(args);
    return prepare(parameters, nullptr);
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace, const ElementwiseArgs& args,
                           bool plain) const override {
    const FpEnvironment environment;
    Parameters parameters = parameters_of(args);
    if (Status s = prepare(parameters, workspace); !s) return s;
    if (problem.numel == 0) return {};
    if (plain && is_one_call_) {
      run_one_call(stream, args, parameters);
    } else if (plain) {
      run_iteration(stream, args, parameters, plain_);
    } else {
      run_iteration(stream, args, parameters, iterate(problem, args));
    }
    return {};
  }

 private:
  [[nodiscard]] KernelFunction kernel_for(const Iteration& iteration,
                                          const Parameters& parameters) const {
    const bool reference = parameters.beyond_simd || iteration.odd_nibbles;
    return (reference ? reference_ : kernels_)[iteration.per_lane ? 1 : 0];
  }

  void set_tensors(KernelCall& call, const ElementwiseArgs& args,
                   const Parameters& parameters) const {
    call.input = args.input == nullptr ? nullptr : args.input->data;
    call.grad = args.grad == nullptr ? nullptr : args.grad->data;
    call.output = args.output->data;
    set_parameters(call, parameters);
  }

  // The commonest runs, in a few nanoseconds: a few elements without gaps.
  void run_one_call(const Stream& stream, const ElementwiseArgs& args,
                    const Parameters& parameters) const {
    KernelCall call = one_call_;
    set_tensors(call, args, parameters);
    call.stream_stores = go_past_caches(call, bytes_);
    note(stream, (parameters.beyond_simd ? one_reference_ : one_kernel_)(call));
  }

  void run_iteration(const Stream& stream, const ElementwiseArgs& args,
                     const Parameters& parameters, const Iteration& iteration) const {
    Work work;
    work.iteration = &iteration;
    work.kernel = kernel_for(iteration, parameters);
    work.call.range = problem.range;
    work.call.profile = problem.profile;
    set_tensors(work.call, args, parameters);
    work.input_type = problem.input_type();
    work.grad_type = problem.element;
    work.output_type = problem.output_type();
    execute(stream, work);
  }

  static Parameters parameters_of(const SlicedProblem& problem, ScanFunction scan) {
    Parameters p;
    p.op = problem.op;
    p.integer = problem.integer;
    p.compute = problem.compute();
    p.scale_type = problem.scales;
    p.range = problem.range;
    p.count = problem.slices;
    p.divides = problem.has_range;
    p.scan = scan;
    return p;
  }
  [[nodiscard]] Parameters parameters_of(const ElementwiseArgs& args) const {
    Parameters p = base_;
    p.scalar_scale = args.scale;
    p.scalar_zero_point = args.zero_point;
    if (args.scales == nullptr) return p;
    p.scales = args.scales->data;
    if (has_zero_points(args))
      p.zero_points = static_cast<const std::int32_t*>(args.zero_points->data);
    return p;
  }

  const Kernels kernels_;
  // For parameters that no SIMD kernel is exact for (zero points beyond what float bounds can
  // express), and for packed runs that start within a byte.
  const Kernels reference_;
  const Parameters base_;  // without those of a call
  // Of plain arguments: whether one call of a kernel does them all, which one, and the bytes that
  // are read and written; and their runs.
  bool is_one_call_ = false;
  KernelFunction one_kernel_ = nullptr;
  KernelFunction one_reference_ = nullptr;
  std::int64_t bytes_ = 0;
  KernelCall one_call_;
  Iteration plain_;
};

template <Target target>
Kernels kernels_on(const SlicedProblem& p) {
  Kernels kernels;
  for (const bool per_lane : {false, true})
    kernels[per_lane ? 1 : 0] = find_kernel<target>({p.op, p.element, p.integer, per_lane});
  return kernels;
}

template <Target target>
struct Find {
  static Found<std::shared_ptr<ElementwiseImpl>> find(const SlicedProblem& p,
                                                      const Allowed& /*allowed*/) {
    const Kernels kernels = kernels_on<target>(p);
    const Kernels reference = kernels_on<Target::scalar>(p);
    for (const KernelFunction kernel : {kernels[0], kernels[1], reference[0], reference[1]})
      if (kernel == nullptr) return {nullptr, "no kernel for these types"};
    return {std::make_shared<CpuElementwise>(p, kernels, reference, scan<target>)};
  }
};

constexpr auto entries =
    entries_of<SlicedProblem, std::shared_ptr<ElementwiseImpl>, Find>(VectorTargets());

}  // namespace

std::span<const ElementwiseEntry> cpu_elementwise() { return entries; }

}  // namespace octavo::detail
