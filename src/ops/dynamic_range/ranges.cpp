#include "ops/dynamic_range/ranges.hpp"

#include <cstring>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "ops/dynamic_range/kernels.hpp"

namespace octavo::detail {
namespace {

constexpr std::int64_t max_shared_slices = 16384;

// Too many lanes for ranges of each part's own: the parts share them out instead.
void run_columns(const Stream& stream, const Work& work) {
  constexpr std::int64_t grain = 1024;
  const std::int64_t length = work.iteration.length();
  const std::int64_t grains = (length + grain - 1) / grain;
  const int parts = static_cast<int>(std::clamp<std::int64_t>(grains, 1, stream.threads()));
  parallel(stream, parts, [&](int part) {
    const std::int64_t first = grains * part / parts * grain;
    const std::int64_t last = std::min(length, grains * (part + 1) / parts * grain);
    Work own = work;
    Iteration::Dim& inner = own.iteration.dims[static_cast<std::size_t>(own.iteration.rank - 1)];
    inner.size = last - first;
    own.call.input = static_cast<const unsigned char*>(work.call.input) +
                     first * inner.stride[op_input] * bits(work.input_type) / 8;
    own.call.skip_parameters(first, work.scale_bytes());
    execute_here(stream, own);
  });
}

}  // namespace

RangePass::RangePass(std::int64_t slice_count, int threads, bool is_symmetric, DType type)
    : slices(slice_count),
      parts(slice_count > max_shared_slices ? 1 : threads),
      symmetric(is_symmetric),
      element(type) {}

std::size_t RangePass::workspace_size() const {
  return static_cast<std::size_t>(parts * slices * (symmetric ? 1 : 2) *
                                  (bits(compute_type(element)) / 8));
}

void RangePass::run(const Stream& stream, const Work& work, Target target, void* workspace) const {
  std::memset(workspace, 0, workspace_size());
  Work w = work;
  const bool per_lane = w.iteration.per_lane;
  w.kernel =
      dynamic_range_kernels_of(target).find_range({Op::quantize, element, DType::s8, per_lane});
  w.call.output = nullptr;
  w.call.scale_found = nullptr;
  w.call.zero_point_found = nullptr;
  w.call.symmetric = symmetric;
  w.call.high = workspace;
  if (!symmetric)
    w.call.low = static_cast<unsigned char*>(workspace) + parts * slices * w.scale_bytes();
  w.max_parts = parts;
  w.ranges_per_part = slices;
  if (per_lane && parts == 1) {
    run_columns(stream, w);
  } else {
    execute(stream, w);
  }
}

Status check_mode(RangeMode mode, DType output, IntRange range) {
  switch (mode) {
    case RangeMode::symmetric:
      if (output != DType::s8 && output != DType::s4)
        return unsupported("output", fmt::format("expected s8 or s4 in mode symmetric, got {}; use "
                                                 "mode asymmetric",
                                                 name(output)));
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

}  // namespace octavo::detail
