// Dynamic-range quantize on a GPU.
//
// Rows that fit into shared memory are read once. All other slices take two passes: their ranges,
// put together in the workspace, from which scales and zero points follow; then the elementwise
// quantize.
#include "ops/dynamic_range/implementation.hpp"

#include <algorithm>
#include <bit>

#include "ops/dynamic_range/cuda/ranges.hpp"
#include "ops/elementwise/cuda/found.hpp"

namespace octavo::cuda {
extern const Ptx range_rows_ptx;
}

namespace octavo::detail {
namespace {

using cuda::range_rows_ptx;

constexpr KernelsOf row_kernels[4] = {
    {{range_rows_ptx, "rows_f32_16_bytes"}, {range_rows_ptx, "rows_f32_single"}},
    {{range_rows_ptx, "rows_f64_16_bytes"}, {range_rows_ptx, "rows_f64_single"}},
    {{range_rows_ptx, "rows_f16_16_bytes"}, {range_rows_ptx, "rows_f16_single"}},
    {{range_rows_ptx, "rows_bf16_16_bytes"}, {range_rows_ptx, "rows_bf16_single"}}};

// What every GPU from compute capability 8.0 on can give a block that asks for it, about.
constexpr std::int64_t max_staged = std::int64_t{96} << 10;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What is kept of a row in shared memory: pieces of 16 bytes, or single elements as patterns.
struct Staged {
  std::int64_t pieces;
  std::int64_t piece_bytes;

  Staged(std::int64_t length, DType element, bool vector)
      : pieces(vector ? ceil_div(length, 128 / bits(element)) : length),
        piece_bytes(vector                  ? 16
                    : element == DType::f64 ? 8
                                            : 4) {}
  [[nodiscard]] bool fits() const { return pieces * piece_bytes <= max_staged; }
};

class CudaDynamicRange final : public DynamicRangeImpl {
 public:
  explicit CudaDynamicRange(const DynamicRangeProblem& p)
      : DynamicRangeImpl(p),
        quantize_(found_quantize(p)) {
    if (p.numel == 0) return;
    plain_ = plain_iteration(p);
    const bool rows = p.layout == Layout::per_token || p.layout == Layout::per_group;
    const std::int64_t length = p.numel / p.slices;
    // (Groups of packed integers may begin within a byte, which is then of two rows.)
    const bool whole_bytes =
        p.layout == Layout::per_token || !is_packed(p.integer) || length % 2 == 0;
    if (!rows || !whole_bytes || !Staged(length, p.element, false).fits())
      workspace_bytes = range_bytes(p.slices, p.element);
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const DynamicRangeQuantizeArgs& args, bool plain) const override {
    cuda::CudaStream& on = cuda::cuda_of(stream);
    const cuda::Enqueue together(on);
    if (!together.status()) return together.status();
    ElementwiseArgs tensors;
    tensors.input = &args.input;
    tensors.output = &args.output;
    if (problem.numel == 0) {
      Arranged none;
      set_parameters(none.args, args);
      return find_parameters(on, none.args, problem.element);
    }
    const Iteration it = plain ? plain_ : iterate(problem, tensors);
    Arranged arranged =
        arrange(it, problem.element, args.input.data, args.output.data, bits(problem.integer));
    set_parameters(arranged.args, args);
    if (arranged.columns && problem.slices == problem.numel && !arranged.args.math.pairs)
      turn_to_rows(arranged);
    if (!it.odd_nibbles && !arranged.columns && arranged.args.rows.count == problem.slices) {
      const Staged staged(arranged.args.length, problem.element, arranged.vector);
      if (staged.fits()) return run_rows(on, arranged, staged);
    }
    arranged.args.ranges = workspace;
    if (Status s = find_ranges(on, arranged); !s) return s;
    if (Status s = find_parameters(on, arranged.args, problem.element); !s) return s;
    const TensorRef scales = args.scales;
    const TensorRef zero_points = args.zero_points;
    tensors.scales = &scales;
    if (!problem.symmetric()) tensors.zero_points = &zero_points;
    return enqueue_found(*quantize_, on, tensors, plain);
  }

 private:
  void set_parameters(cuda::RangeArgs& a, const DynamicRangeQuantizeArgs& args) const {
    a.slices = problem.slices;
    a.scales = args.scales.data;
    if (has_zero_points(args)) a.zero_points = static_cast<std::int32_t*>(args.zero_points.data);
    a.math.q_min = problem.range.min;
    a.math.q_max = problem.range.max;
    a.math.symmetric = problem.symmetric();
    a.math.torch = problem.profile == Profile::torch;
  }

  // Slices of one element, which lie side by side.
  static void turn_to_rows(Arranged& arranged) {
    cuda::RangeArgs& a = arranged.args;
    a.rows.size[a.rows.rank] = a.length;
    a.rows.stride[a.rows.rank++] = a.step;
    a.rows.count *= a.length;
    a.length = 1;
    a.step = {1, 1, 0};
    arranged.columns = arranged.vector = false;
  }

  [[nodiscard]] static Status run_rows(cuda::CudaStream& on, Arranged& arranged,
                                       const Staged& staged) {
    cuda::RangeArgs& a = arranged.args;
    const auto log2_for = [](std::int64_t n) {
      return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
    };
    // Four pieces to a thread, which are read at once, as long as neighbouring threads write 32
    // bytes together; single elements one to a thread, up to a warp's.
    const std::int64_t written =
        arranged.vector ? 16 / (bits(arranged.element) / 8) * a.math.width / 8 : 1;
    const int least = log2_for(arranged.vector ? std::max<std::int64_t>(4, 32 / written) : 32);
    a.lanes = std::clamp(log2_for(ceil_div(staged.pieces, 4)),
                         std::min(std::max(log2_for(staged.pieces), a.math.pairs ? 1 : 0), least),
                         log2_for(cuda::max_row_threads));
    const unsigned threads = a.lanes <= 5 ? 128U : 1U << a.lanes;
    const std::int64_t teams = threads >> a.lanes;
    const std::int64_t blocks = std::min(ceil_div(a.rows.count, teams), cuda::max_range_blocks);
    const std::int64_t staged_bytes =
        ceil_div(staged.pieces, std::int64_t{1} << a.lanes) * threads * staged.piece_bytes;
    return cuda::launch(on, kernel_of(row_kernels, arranged), {static_cast<unsigned>(blocks)},
                        {threads}, static_cast<unsigned>(staged_bytes), a);
  }

  Iteration plain_;  // of plain arguments
  const std::shared_ptr<const ElementwiseImpl> quantize_;
};

Found<std::shared_ptr<DynamicRangeImpl>> find(const DynamicRangeProblem& p,
                                              const Allowed& /*allowed*/) {
  return {std::make_shared<CudaDynamicRange>(p)};
}

constexpr DynamicRangeEntry entries[] = {{{Backend::cuda, Target::sm80}, find}};

}  // namespace

std::span<const DynamicRangeEntry> cuda_dynamic_range() { return entries; }

}  // namespace octavo::detail
