// A checked call of floats. Rows are brought into blocks; then each thread multiplies blocks by
// pairs of panels of its own, segment by segment of k, so that the weights of a segment are still
// in the second cache when the next block comes.
#include "ops/linear/cpu/float_linear.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "ops/linear/cpu/pack.hpp"

namespace octavo::detail {
namespace {

constexpr std::int64_t unit = static_cast<std::int64_t>(workspace_alignment);
// Below this many products per thread, waking another one costs more than it saves.
constexpr std::int64_t products_per_thread = std::int64_t{1} << 18;
// Blocks that are multiplied together.
constexpr std::int64_t together = 8;
constexpr std::int64_t level_values = together * float_rows * group_columns;
constexpr std::int64_t max_levels = 4;  // of the tree of max_segments
static_assert(numerics::max_segments == 8);

}  // namespace

CpuFloatLinear::CpuFloatLinear(const LinearProblem& p, const LinearKernels& kernels, Target target,
                               int threads)
    : LinearImpl(p, host_format(p.weight, 0, false, DType::f32)),
      kernels_(kernels),
      target_(target),
      threads_(p.packed_weight || count_elements("k", {threads, 2 * wide_columns, p.k + 1024})
                   ? threads
                   : 1),
      segments_(numerics::segments_of(p.k)),
      panel_bytes_(float_panel_bytes(p.k, p.weight)) {
  if (p.m == 0 || p.n == 0) return;
  threads_at_ = round_up(p.m * p.k * 4, unit);
  panels_at_ = max_levels * level_values * 4;
  thread_bytes_ = round_up(panels_at_ + (p.packed_weight ? 0 : 2 * panel_bytes_), unit);
  workspace_bytes = threads_ < threads
                        ? SIZE_MAX
                        : static_cast<std::size_t>(threads_at_ + threads_ * thread_bytes_);
}

CpuFloatLinear::Block CpuFloatLinear::Blocks::operator[](std::int64_t i) const {
  const std::int64_t first = rows * i / count;
  return {first, static_cast<int>(rows * (i + 1) / count - first), values + first * k};
}

void CpuFloatLinear::bring(const TensorRef& input, const Block& block, float* to) const {
  constexpr std::int64_t piece = 512;
  alignas(64) float widened[float_rows][piece];
  const std::int64_t size = bits(problem.activation) / 8;
  const ConvertFunction widen = problem.activation == DType::f32
                                    ? nullptr
                                    : kernels_.conversion(problem.activation, DType::f32);
  const unsigned char* rows[float_rows];
  for (std::int64_t k = 0; k < problem.k; k += piece) {
    const std::int64_t n = std::min(piece, problem.k - k);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      rows[r] = static_cast<const unsigned char*>(input.data) +
                ((block.first + r) * input.strides[0] + k) * size;
      if (widen == nullptr) continue;
      widen(rows[r], n, block.rows == 1 ? to + k : widened[r]);
      rows[r] = reinterpret_cast<const unsigned char*>(widened[r]);
    }
    if (block.rows == 1) continue;  // (One row of f32 is read where it is.)
    // (A float is as long as a step of bytes.)
    static_assert(sizeof(float) == step_k);
    kernels_.rows.interleave(rows, block.rows, n * step_k, 0,
                             reinterpret_cast<unsigned char*>(to + k * block.rows));
  }
}

Status CpuFloatLinear::run(const Stream& stream, void* workspace, const LinearOperands& o) const {
  const TensorRef& input = *o.input;
  const std::int64_t rows = input.shape[0];
  if (rows == 0 || problem.n == 0) return {};
  auto* own = static_cast<unsigned char*>(workspace);
  auto* brought = static_cast<float*>(workspace);
  Blocks blocks{rows, (rows + float_rows - 1) / float_rows, brought, problem.k};
  const int threads = std::min(threads_, stream.threads());
  if (rows == 1 && problem.activation == DType::f32) {
    blocks.values = static_cast<const float*>(input.data);
  } else {
    constexpr std::int64_t products_per_element = 8;  // what bringing one takes as long as
    const int parts = parts_of(amount(amount(rows, problem.k), products_per_element),
                               products_per_thread, std::min<std::int64_t>(blocks.count, threads));
    parallel(stream, parts, [&](int part) {
      for (std::int64_t b = blocks.count * part / parts; b < blocks.count * (part + 1) / parts; ++b)
        bring(input, blocks[b], brought + blocks[b].first * problem.k);
    });
  }
  const Finish<float> finish(problem, o, kernels_);
  const std::int64_t pairs = (problem.n + group_columns - 1) / group_columns;
  const int parts =
      parts_of(amount(amount(rows, problem.k), problem.n), products_per_thread, threads);
  const Grid grid = share_out(blocks.count, pairs, parts, problem.packed_weight, float_rows);
  parallel(stream, parts_in(grid), [&](int part) {
    multiply_share(share_of(grid, part, blocks.count, pairs), o, blocks, finish,
                   own + threads_at_ + part * thread_bytes_);
    if (stream.options().trace != nullptr)
      stream.options().trace->fetch_or(1U << static_cast<unsigned>(target_),
                                       std::memory_order_relaxed);
  });
  return {};
}

void CpuFloatLinear::multiply_share(const Share& share, const LinearOperands& o,
                                    const Blocks& blocks, const Finish<float>& finish,
                                    unsigned char* own) const {
  auto* levels = reinterpret_cast<float*>(own);
  float ones[float_rows];
  std::fill_n(ones, float_rows, 1.0F);
  alignas(64) ColumnScales<float> scales;
  for (std::int64_t pair = share.first_panel; pair < share.last_panel; ++pair) {
    const std::int64_t column = pair * group_columns;
    const std::int64_t columns = std::min(group_columns, problem.n - column);
    const std::byte* weights[2] = {};
    find_weights(o, pair, own + panels_at_, weights);
    finish.gather(column, columns, scales);
    for (std::int64_t first = share.first_row; first < share.last_row; first += together) {
      const std::int64_t last = std::min(first + together, share.last_row);
      multiply(blocks, first, last, weights, levels);
      for (std::int64_t b = first; b < last; ++b) {
        EpilogueCall<float> call;
        call.rows = blocks[b].rows;
        call.columns = columns;
        call.values = levels + (b - first) * float_rows * group_columns;
        call.row_scale = ones;
        finish(call, scales, blocks[b].first, column);
      }
    }
  }
}

void CpuFloatLinear::find_weights(const LinearOperands& o, std::int64_t pair, unsigned char* own,
                                  const std::byte* (&weights)[2]) const {
  const std::int64_t panels = wide_panels_of(problem.n);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t panel = std::min(2 * pair + i, panels - 1);  // the last one twice
    if (problem.packed_weight) {
      weights[i] = host_weight(o.weight->packed).panel(panel, panel_bytes_);
      continue;
    }
    auto* to = reinterpret_cast<std::byte*>(own + i * panel_bytes_);
    if (2 * pair + i == panel) {
      pack_float_panel(rows_of(o.weight->tensor, problem.n, problem.k, false), panel, to);
      weights[i] = to;
    } else {
      weights[i] = weights[0];
    }
  }
}

void CpuFloatLinear::multiply(const Blocks& blocks, std::int64_t first, std::int64_t last,
                              const std::byte* const (&weights)[2], float* levels) const {
  const std::int64_t step = panel_bytes_ == 0 ? 0 : panel_bytes_ / problem.k;
  int level = 0;
  for (int j = 0; j < segments_; ++j) {
    const std::int64_t begin = numerics::segment_begin(problem.k, segments_, j);
    FloatCall call;
    call.count = numerics::segment_begin(problem.k, segments_, j + 1) - begin;
    call.weights[0] = weights[0] + begin * step;
    call.weights[1] = weights[1] + begin * step;
    float* own = levels + level * level_values;
    for (std::int64_t b = first; b < last; ++b) {
      const Block block = blocks[b];
      call.activations = block.values + begin * block.rows;
      call.rows = block.rows;
      call.values = own + (b - first) * float_rows * group_columns;
      kernels_.floats(call);
    }
    for (int merge = numerics::merges_after(j); merge > 0; --merge) {
      float* before = levels + --level * level_values;
      const float* after = before + level_values;
      for (std::int64_t i = 0; i < (last - first) * float_rows * group_columns; ++i)
        before[i] = before[i] + after[i];
    }
    ++level;
  }
}

}  // namespace octavo::detail
