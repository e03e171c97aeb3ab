#include "ops/dynamic_range/cpu/ranges.hpp"

#include <cstring>

#include "core/parallel.hpp"
#include "core/parts.hpp"

namespace octavo::detail {
namespace {

constexpr std::int64_t max_shared_slices = 16384;

// Too many slices for ranges of each part's own: the parts share them out instead.
void run_shared_out(const Stream& stream, const Work& work) {
  const auto& dims = work.iteration->dims;
  const auto at =
      std::find_if(dims.begin(), dims.end(),
                   [](const Iteration::Dim& dim) { return dim.stride[op_params] != 0; }) -
      dims.begin();
  const Iteration::Dim& slices = dims[static_cast<std::size_t>(at)];
  const std::int64_t grain = work.iteration->per_lane ? 1024 : 64;
  const std::int64_t grains = (slices.size + grain - 1) / grain;
  const int parts = parts_of(grains, 1, stream.threads());
  parallel(stream, parts, [&](int part) {
    const std::int64_t first = grains * part / parts * grain;
    const std::int64_t last = std::min(slices.size, grains * (part + 1) / parts * grain);
    Iteration iteration = *work.iteration;
    iteration.dims[static_cast<std::size_t>(at)].size = last - first;
    if (!iteration.per_lane) iteration.rows = iteration.rows / slices.size * (last - first);
    Work own = work;
    own.iteration = &iteration;
    own.call.input = static_cast<const unsigned char*>(work.call.input) +
                     first * slices.stride[op_input] * bits(work.input_type) / 8;
    own.call.skip_parameters(first * slices.stride[op_params], work.scale_bytes());
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

void RangePass::run(const Stream& stream, const Work& work, KernelFunction range,
                    void* workspace) const {
  std::memset(workspace, 0, workspace_size());
  Work w = work;
  w.kernel = range;
  w.call.output = nullptr;
  w.call.scale_found = nullptr;
  w.call.zero_point_found = nullptr;
  w.call.symmetric = symmetric;
  w.call.high = workspace;
  if (!symmetric)
    w.call.low = static_cast<unsigned char*>(workspace) + parts * slices * w.scale_bytes();
  w.max_parts = parts;
  w.ranges_per_part = slices;
  if (slices > max_shared_slices) {
    run_shared_out(stream, w);
  } else {
    execute(stream, w);
  }
}

}  // namespace octavo::detail
