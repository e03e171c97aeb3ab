// Dynamic-range quantize on the CPU.
//
// Slices that are runs of consecutive elements (tokens, groups, channels of the first axis) go
// through a fused kernel, one after another. All others, and those that are few and long, take two
// passes: ranges, each part its own, in the workspace; then the elementwise quantize.
#include <algorithm>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "ops/dynamic_range/cpu/kernels.hpp"
#include "ops/dynamic_range/cpu/ranges.hpp"
#include "ops/dynamic_range/implementation.hpp"
#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/parameters.hpp"

namespace octavo::detail {
namespace {

// Rows that are few and no longer fit the second cache, about, are better shared out among the
// threads.
bool are_few_and_long(std::int64_t rows, std::int64_t length, int threads) {
  return threads > 1 && length > std::int64_t{1} << 18 && rows < 8 * std::int64_t{threads};
}

template <class C>
void store_parameters(const numerics::Range<C>& range, const KernelCall& call, std::int64_t slice) {
  const auto found = numerics::range_parameters(range, call.symmetric, call.range);
  static_cast<C*>(call.scale_found)[slice] = found.scale;
  if (call.zero_point_found != nullptr) call.zero_point_found[slice] = found.zero_point;
}

// What a fused kernel does, for a row whose elements have to be gathered: twice, piece by piece.
template <class C>
Target fuse_gathered(const Work& work, const KernelCall& call) {
  numerics::Range<C> range;
  Work step = work;
  KernelCall c = call;
  c.low = &range.low;
  c.high = &range.high;
  step.kernel = work.range;
  run_gathered(step, c);
  store_parameters(range, call, 0);
  c.scale = call.scale_found;
  c.zero_point = call.symmetric ? nullptr : call.zero_point_found;
  step.kernel = work.quantize;
  return run_gathered(step, c);
}

// Of one target.
struct Kernels {
  KernelFunction fused = nullptr;
  KernelFunction range[2] = {};  // of runs, and of lanes
  KernelFunction quantize[2] = {};
  ScanFunction scan = nullptr;

  explicit operator bool() const {
    return fused != nullptr && range[0] != nullptr && range[1] != nullptr &&
           quantize[0] != nullptr && quantize[1] != nullptr;
  }
};

class CpuDynamicRange final : public DynamicRangeImpl {
 public:
  CpuDynamicRange(const DynamicRangeProblem& p, int threads, const Kernels& kernels,
                  const Kernels& reference)
      : DynamicRangeImpl(p),
        kernels_(kernels),
        reference_(reference),
        pass_(p.slices, threads, p.symmetric(), p.element) {
    const bool rows = p.layout == Layout::per_token || p.layout == Layout::per_group;
    if (!rows || (p.slices > 0 && are_few_and_long(p.slices, p.numel / p.slices, threads)))
      workspace_bytes = pass_.workspace_size();
    if (p.numel > 0) plain_ = with_rows(plain_iteration(p));
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const DynamicRangeQuantizeArgs& args, bool plain) const override {
    const FpEnvironment environment;
    KernelCall call;
    call.input = args.input.data;
    call.output = args.output.data;
    call.range = problem.range;
    call.profile = problem.profile;
    call.symmetric = problem.symmetric();
    call.scale_found = args.scales.data;
    if (has_zero_points(args))
      call.zero_point_found = static_cast<std::int32_t*>(args.zero_points.data);
    if (problem.numel == 0) {
      find_all(stream, call, nullptr);
      return {};
    }
    if (plain) {
      run_iteration(stream, workspace, call, plain_);
    } else {
      ElementwiseArgs tensors;
      tensors.input = &args.input;
      tensors.output = &args.output;
      run_iteration(stream, workspace, call, with_rows(iterate(problem, tensors)));
    }
    return {};
  }

 private:
  // Slices of one element lie along the lanes; they are rows all the same.
  [[nodiscard]] Iteration with_rows(Iteration it) const {
    if (!it.per_lane || problem.slices != problem.numel) return it;
    it.odd_nibbles = is_packed(problem.integer);
    if (it.odd_nibbles) it.rows_per_cut = it.length();
    it.rows *= it.length();
    it.dims[static_cast<std::size_t>(it.rank++)] = {1, {1, 1, 1, 0}};
    it.per_lane = false;
    return it;
  }

  void run_iteration(const Stream& stream, void* workspace, const KernelCall& call,
                     const Iteration& it) const {
    Work work;
    work.iteration = &it;
    work.call = call;
    work.input_type = problem.element;
    work.output_type = problem.integer;
    // Runs that start within a byte are the reference's.
    const Kernels& kernels = it.odd_nibbles ? reference_ : kernels_;
    const bool rows = !it.per_lane && it.rows == problem.slices;
    const bool shared =
        workspace_bytes > 0 && are_few_and_long(problem.slices, it.length(), stream.threads());
    if (rows && !shared) {
      run_rows(stream, work, kernels);
    } else {
      run_passes(stream, work, kernels, workspace);
    }
  }

  // The parameters of all slices from their ranges; without a workspace there was no element.
  void find_all(const Stream& stream, const KernelCall& call, const void* ranges) const {
    const std::int64_t slices = problem.slices;
    const int finders = parts_of(slices, 4096, stream.threads());
    const auto find = [&]<class C>(C /*compute type*/, std::int64_t i) {
      store_parameters(ranges == nullptr ? numerics::Range<C>() : pass_.merged<C>(ranges, i), call,
                       i);
    };
    const bool wide = problem.compute() == DType::f64;
    parallel(stream, finders, [&](int part) {
      const std::int64_t first = slices / finders * part;
      const std::int64_t last = part + 1 == finders ? slices : slices / finders * (part + 1);
      for (std::int64_t i = first; i < last; ++i) wide ? find(double(), i) : find(float(), i);
    });
  }

  // A slice for each row.
  void run_rows(const Stream& stream, Work& work, const Kernels& kernels) const {
    work.kernel = kernels.fused;
    work.range = kernels.range[0];
    work.quantize = kernels.quantize[0];
    work.gathered_row =
        problem.compute() == DType::f64 ? fuse_gathered<double> : fuse_gathered<float>;
    work.whole_rows = true;
    execute(stream, work);
  }

  // Ranges first, then quantize.
  void run_passes(const Stream& stream, const Work& base, const Kernels& kernels,
                  void* workspace) const {
    const int per_lane = base.iteration->per_lane ? 1 : 0;
    pass_.run(stream, base, kernels.range[per_lane], workspace);
    find_all(stream, base.call, workspace);

    Parameters p;
    p.integer = problem.integer;
    p.compute = p.scale_type = problem.compute();
    p.range = problem.range;
    p.count = problem.slices;
    p.scan = kernels.scan;
    p.scales = base.call.scale_found;
    if (!problem.symmetric()) p.zero_points = base.call.zero_point_found;
    (void)prepare(p, nullptr);  // (what was found is a scale)
    Work work = base;
    work.kernel = kernels.quantize[per_lane];
    work.call.scale_found = nullptr;
    work.call.zero_point_found = nullptr;
    set_parameters(work.call, p);
    execute(stream, work);
  }

  const Kernels kernels_;
  const Kernels reference_;
  const RangePass pass_;
  Iteration plain_;  // of plain arguments
};

template <Target target>
Kernels kernels_on(const DynamicRangeProblem& p) {
  Kernels kernels;
  const KernelKey key{Op::quantize, p.element, p.integer, false};
  kernels.fused = find_fused<target>(key);
  kernels.scan = scan<target>;
  for (const bool per_lane : {false, true}) {
    const KernelKey own{key.op, key.element, key.integer, per_lane};
    kernels.range[per_lane ? 1 : 0] = find_range<target>(own);
    kernels.quantize[per_lane ? 1 : 0] = find_kernel<target>(own);
  }
  return kernels;
}

template <Target target>
struct Find {
  static Found<std::shared_ptr<DynamicRangeImpl>> find(const DynamicRangeProblem& p,
                                                       const Allowed& allowed) {
    const Kernels kernels = kernels_on<target>(p);
    const Kernels reference = kernels_on<Target::scalar>(p);
    if (!kernels || !reference) return {nullptr, "no kernel for these types"};
    return {std::make_shared<CpuDynamicRange>(p, allowed.threads, kernels, reference)};
  }
};

constexpr auto entries =
    entries_of<DynamicRangeProblem, std::shared_ptr<DynamicRangeImpl>, Find>(VectorTargets());

}  // namespace

std::span<const DynamicRangeEntry> cpu_dynamic_range() { return entries; }

}  // namespace octavo::detail
