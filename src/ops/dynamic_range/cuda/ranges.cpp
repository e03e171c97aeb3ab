#include "ops/dynamic_range/cuda/ranges.hpp"

#include <algorithm>
#include <bit>

namespace octavo::cuda {
extern const Ptx range_tiles_ptx;
}

namespace octavo::detail {
namespace {

using cuda::Kernel;
using cuda::range_tiles_ptx;

constexpr KernelsOf runs[4] = {
    {{range_tiles_ptx, "range_runs_f32_16_bytes"}, {range_tiles_ptx, "range_runs_f32_single"}},
    {{range_tiles_ptx, "range_runs_f64_16_bytes"}, {range_tiles_ptx, "range_runs_f64_single"}},
    {{range_tiles_ptx, "range_runs_f16_16_bytes"}, {range_tiles_ptx, "range_runs_f16_single"}},
    {{range_tiles_ptx, "range_runs_bf16_16_bytes"}, {range_tiles_ptx, "range_runs_bf16_single"}}};
constexpr KernelsOf columns[4] = {{{range_tiles_ptx, "range_columns_f32_16_bytes"},
                                   {range_tiles_ptx, "range_columns_f32_single"}},
                                  {{range_tiles_ptx, "range_columns_f64_16_bytes"},
                                   {range_tiles_ptx, "range_columns_f64_single"}},
                                  {{range_tiles_ptx, "range_columns_f16_16_bytes"},
                                   {range_tiles_ptx, "range_columns_f16_single"}},
                                  {{range_tiles_ptx, "range_columns_bf16_16_bytes"},
                                   {range_tiles_ptx, "range_columns_bf16_single"}}};
constexpr Kernel parameters[4] = {{range_tiles_ptx, "range_parameters_f32"},
                                  {range_tiles_ptx, "range_parameters_f64"},
                                  {range_tiles_ptx, "range_parameters_f16"},
                                  {range_tiles_ptx, "range_parameters_bf16"}};

// Threads that take a tile of a run: not as many as it has pieces, for each should have several to
// wait for at once.
constexpr std::int64_t pieces_per_tile = 8 * std::int64_t{cuda::range_threads};
// Blocks that are enough for every GPU.
constexpr std::int64_t enough_blocks = 2048;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Elements of 16 bytes.
std::int64_t piece_of(const Arranged& a) { return a.vector ? 128 / bits(a.element) : 1; }

// Whether pieces of 16 bytes, and what is written of them, lie at addresses that are multiples of
// their sizes, in every row.
bool is_aligned(const Arranged& a, int width) {
  const std::int64_t piece = 128 / bits(a.element);
  const auto& args = a.args;
  const auto is = [&](const void* data, std::int64_t bits_of_piece, std::int64_t bits_of_element,
                      std::int64_t cuda::Strides::*stride) {
    if (args.step.*stride != 1 && args.length > 1) return false;
    if (reinterpret_cast<std::uintptr_t>(data) * 8 % static_cast<std::uintptr_t>(bits_of_piece) !=
        0)
      return false;
    for (int i = 0; i < args.rows.rank; ++i)
      if (args.rows.stride[i].*stride * bits_of_element % bits_of_piece != 0) return false;
    return true;
  };
  if (a.columns && args.length % piece != 0) return false;
  return is(args.input, 128, bits(a.element), &cuda::Strides::input) &&
         (width == 0 || is(args.output, piece * width, width, &cuda::Strides::output));
}

}  // namespace

Arranged arrange(const Iteration& it, DType element, const void* input, void* output, int width) {
  Arranged arranged;
  arranged.element = element;
  cuda::RangeArgs& a = arranged.args;
  a.input = input;
  a.output = output;
  const auto strides_of = [](const Iteration::Dim& dim) {
    return cuda::Strides{dim.stride[op_input], dim.stride[op_output], dim.stride[op_params]};
  };
  // (A last dimension of one element is there for kernels that write consecutive ones. Those here
  // need not.)
  int rank = it.rank;
  if (rank > 1 && it.dims[static_cast<std::size_t>(rank - 1)].size == 1) --rank;
  for (int i = 0; i + 1 < rank; ++i) {
    const Iteration::Dim& dim = it.dims[static_cast<std::size_t>(i)];
    a.rows.size[i] = dim.size;
    a.rows.stride[i] = strides_of(dim);
    a.rows.count *= dim.size;
    a.same_params = a.same_params && dim.stride[op_params] == 0;
  }
  a.rows.rank = rank - 1;
  const Iteration::Dim& inner = it.dims[static_cast<std::size_t>(rank - 1)];
  a.length = inner.size;
  a.step = strides_of(inner);
  a.math.width = width;
  a.math.pairs = width == 4 && a.step.output == 1;
  arranged.columns = a.step.params != 0;
  arranged.vector = is_aligned(arranged, width);
  return arranged;
}

int row_of(DType element) {
  switch (element) {
    case DType::f64:
      return 1;
    case DType::f16:
      return 2;
    case DType::bf16:
      return 3;
    default:
      return 0;
  }
}

const Kernel& kernel_of(const KernelsOf (&kernels)[4], const Arranged& arranged) {
  const KernelsOf& of = kernels[row_of(arranged.element)];
  return arranged.vector ? of.vector : of.single;
}

namespace {

// Tiles of runs, or of columns, for blocks; how many those are.
cuda::Size share_out(Arranged& arranged) {
  cuda::RangeArgs& a = arranged.args;
  const std::int64_t piece = piece_of(arranged);
  const std::int64_t units = ceil_div(a.length, piece);
  const auto lanes_for = [&](std::int64_t n) {
    return std::max(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1))),
                    a.math.pairs ? 1 : 0);
  };
  const auto blocks = [](std::int64_t wanted) {
    return cuda::Size{static_cast<unsigned>(std::min(wanted, cuda::max_range_blocks))};
  };
  if (arranged.columns) {
    constexpr int most = 5;
    a.lanes = static_cast<int>(std::min<std::int64_t>(lanes_for(units), most));
    const std::int64_t across = ceil_div(units, std::int64_t{1} << a.lanes);
    const std::int64_t teams = cuda::range_threads >> a.lanes;
    const std::int64_t tiles = std::clamp<std::int64_t>(
        ceil_div(a.rows.count, 16 * teams), 1, std::max<std::int64_t>(1, enough_blocks / across));
    a.tile = ceil_div(a.rows.count, tiles);
    a.tiles = ceil_div(a.rows.count, a.tile);
    return blocks(across * a.tiles);
  }
  a.lanes = units <= 32 ? lanes_for(units) : units <= 256 ? 5 : 8;
  a.tile = a.lanes == 8 ? std::min(a.length, pieces_per_tile * piece) : a.length;
  a.tiles = ceil_div(a.length, a.tile);
  return blocks(ceil_div(a.rows.count * a.tiles, cuda::range_threads >> a.lanes));
}

}  // namespace

std::size_t range_bytes(std::int64_t slices, DType element) {
  return static_cast<std::size_t>(slices) * (element == DType::f64 ? 16 : 8);
}

Status find_ranges(cuda::CudaStream& stream, const Arranged& arranged) {
  const std::int64_t slices = arranged.args.slices;
  const auto to = reinterpret_cast<cuda::DevicePointer>(arranged.args.ranges);
  if (Status s = cuda::check(
          stream.driver(), "cuMemsetD8Async",
          stream.driver().set_bytes(to, 0, range_bytes(slices, arranged.element), stream.handle()));
      !s)
    return s;
  Arranged own = arranged;
  const cuda::Size blocks = share_out(own);
  return cuda::launch(stream, kernel_of(own.columns ? columns : runs, own), blocks,
                      {cuda::range_threads}, 0, own.args);
}

Status find_parameters(cuda::CudaStream& stream, const cuda::RangeArgs& args, DType element) {
  const std::int64_t blocks =
      std::min(ceil_div(args.slices, cuda::range_threads), cuda::max_range_blocks);
  return cuda::launch(stream, parameters[row_of(element)], {static_cast<unsigned>(blocks)},
                      {cuda::range_threads}, 0, args);
}

}  // namespace octavo::detail
