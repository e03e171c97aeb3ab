// A checked call: rows are brought into the form that is multiplied, weights too if they were not
// packed beforehand, and the products are finished in the same kernel, or in one of its own where
// parts of k were shared out.
#include "ops/linear/cuda/linear.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "numerics/narrow_f64.hpp"
#include "numerics/segments.hpp"
#include "ops/linear/cuda/values.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::cuda {

extern const Ptx linear_rows_ptx;
extern const Ptx linear_products_ptx;
extern const Ptx linear_tiles_ptx;
extern const Ptx linear_group_tiles_ptx;
extern const Ptx linear_groups_ptx;
extern const Ptx linear_floats_ptx;
extern const Ptx linear_finish_ptx;

namespace {

constexpr Kernel rows_f32(linear_rows_ptx, "linear_rows_f32");
constexpr Kernel rows_f64(linear_rows_ptx, "linear_rows_f64");
constexpr Kernel rows_f16(linear_rows_ptx, "linear_rows_f16");
constexpr Kernel rows_bf16(linear_rows_ptx, "linear_rows_bf16");
constexpr Kernel rows_bytes(linear_rows_ptx, "linear_rows_bytes");
constexpr Kernel products_bytes(linear_products_ptx, "linear_bytes");
constexpr Kernel products_nibbles(linear_products_ptx, "linear_nibbles");
constexpr Kernel bytes_by_one_row(linear_products_ptx, "linear_bytes_by_one_row");
constexpr Kernel nibbles_by_one_row(linear_products_ptx, "linear_nibbles_by_one_row");
constexpr Kernel tiles_32_bytes(linear_tiles_ptx, "linear_tiles_32_bytes");
constexpr Kernel tiles_64_bytes(linear_tiles_ptx, "linear_tiles_64_bytes");
constexpr Kernel tiles_128_bytes(linear_tiles_ptx, "linear_tiles_128_bytes");
constexpr Kernel tiles_64_nibbles(linear_tiles_ptx, "linear_tiles_64_nibbles");
constexpr Kernel tiles_128_nibbles(linear_tiles_ptx, "linear_tiles_128_nibbles");
constexpr Kernel products_byte_groups(linear_products_ptx, "linear_byte_groups");
constexpr Kernel products_nibble_groups(linear_products_ptx, "linear_nibble_groups");
constexpr Kernel any_byte_groups_f32(linear_groups_ptx, "linear_any_byte_groups_f32");
constexpr Kernel any_byte_groups_f64(linear_groups_ptx, "linear_any_byte_groups_f64");
constexpr Kernel any_nibble_groups_f32(linear_groups_ptx, "linear_any_nibble_groups_f32");
constexpr Kernel any_nibble_groups_f64(linear_groups_ptx, "linear_any_nibble_groups_f64");
constexpr Kernel tiles_byte_groups(linear_group_tiles_ptx, "linear_tiles_byte_groups");
constexpr Kernel tiles_nibble_groups(linear_group_tiles_ptx, "linear_tiles_nibble_groups");
constexpr Kernel floats(linear_floats_ptx, "linear_floats");
constexpr Kernel finish_sums_f32(linear_finish_ptx, "linear_finish_sums_f32");
constexpr Kernel finish_sums_f64(linear_finish_ptx, "linear_finish_sums_f64");
constexpr Kernel finish_values_f32(linear_finish_ptx, "linear_finish_values_f32");

const Kernel& rows_kernel(DType input) {
  switch (input) {
    case DType::f32:
      return rows_f32;
    case DType::f64:
      return rows_f64;
    case DType::f16:
      return rows_f16;
    case DType::bf16:
      return rows_bf16;
    default:
      return rows_bytes;
  }
}

// Whatever the values, sums of so many products as held fit 32 bits.
constexpr std::int64_t exact_k = std::int64_t{1} << 16;
constexpr std::int64_t row_alignment = 64;  // of rows that are brought
constexpr std::int64_t in_place = 16;       // of rows that are multiplied where they are
constexpr std::int64_t unit = 256;          // of parts of the workspace
// As many blocks of threads as are worth having.
constexpr std::int64_t enough_blocks = 128;
// The least k that is worth one, in blocks: of tiles, and of few rows, where eight warps share it.
constexpr std::int64_t least_tile_blocks = 16;
constexpr std::int64_t least_row_blocks = 64;

unsigned grid(std::int64_t blocks, std::int64_t most) {
  return static_cast<unsigned>(std::min(blocks, most));
}
constexpr std::int64_t most_x = 0x7FFFFFFF;
constexpr std::int64_t most_y = 0xFFFF;

Floats floats_of(const TensorRef* t) {
  if (!detail::is_given(t)) return {};
  return {t->data, t->dtype, detail::is_single(*t)};
}
Zeros zeros_of(const TensorRef* t, std::int32_t shift) {
  if (!detail::is_given(t)) return {nullptr, false, shift};
  return {static_cast<const std::int32_t*>(t->data), detail::is_single(*t), shift};
}

// The height of a tile, in 32 rows: the largest that leaves enough of them.
int row_tiles_for(std::int64_t rows, std::int64_t n, bool nibbles) {
  const std::int64_t columns = blocks_of(n, tile_columns);
  if (rows > 64 && blocks_of(rows, 128) * columns >= enough_blocks) return 4;
  return rows > 32 || nibbles ? 2 : 1;
}

// Into how many pieces k is cut so that there are enough blocks of threads, each with work enough.
std::int64_t pieces_for(std::int64_t blocks_of_threads, std::int64_t blocks, std::int64_t least) {
  std::int64_t pieces = 1;
  while (blocks_of_threads * pieces < enough_blocks && blocks >= 2 * pieces * least) pieces *= 2;
  return pieces;
}

// Format of weights that are packed run by run: with scales of whatever type are given then.
WeightFormat format_of(const detail::LinearProblem& p) {
  return device_format(p.weight, p.group, p.group != 0 && p.weight_zero_points,
                       p.packed_weight ? p.weight_scale : DType::f64);
}

// (By integer arithmetic: the caller's rounding mode and traps have no part in it.)
float rounded(double scale) { return numerics::narrow_f64(std::bit_cast<std::uint64_t>(scale)); }

}  // namespace

struct CudaLinear::Call {
  CudaStream& stream;
  const Refusal* slot;
  unsigned char* workspace;
  const detail::LinearOperands& o;
  std::int64_t rows;
};

CudaLinear::CudaLinear(const detail::LinearProblem& p)
    : LinearImpl(p, format_of(p)),
      wide_(!detail::is_float_linear(p) && p.group == 0 && detail::is_wide(p)),
      f64_(detail::compute_type(p) == DType::f64),
      halves_(detail::parts_per_row(p)),
      has_fast_groups_(p.group > 0 && p.group % block_k == 0 && !f64_ &&
                       !detail::has_wide_groups(p)),
      segments_(numerics::segments_of(p.k)) {
  bool counted = true;  // whether the total can be
  const auto take = [&](std::initializer_list<std::int64_t> sizes) {
    std::int64_t bytes = 1;
    for (const std::int64_t size : sizes)
      counted = !__builtin_mul_overflow(bytes, size, &bytes) && counted;
    const std::int64_t at = places_.total;
    counted = counted && bytes < INT64_MAX - unit &&
              !__builtin_add_overflow(at, blocks_of(bytes, unit) * unit, &places_.total);
    workspace_bytes = counted ? static_cast<std::size_t>(places_.total) : SIZE_MAX;
    return at;
  };
  if (p.m == 0 || p.n == 0) return;
  if (!p.packed_weight) places_.weights = take({WeightLayout(p.n, p.k, format).bytes});
  if (detail::is_float_linear(p)) {
    const std::int64_t tiles = blocks_of(p.m, float_tile) * blocks_of(p.n, float_tile);
    pieces_ = tiles < enough_blocks ? segments_ : 1;
    if (pieces_ > 1) places_.parts = take({pieces_, p.m, p.n, 4});
    return;
  }
  adds_rows_ = p.group == 0 && (p.weight_zero_points || shift_of(p.weight) != 0);
  adds_columns_ = p.activation_zero_points || p.quantized == DType::u8;
  const std::int64_t product_rows = product_rows_of(p.m);
  places_.row_stride = blocks_of(p.k, row_alignment) * row_alignment;
  places_.rows = take({product_rows, places_.row_stride});
  if (detail::is_dynamic(p)) {
    places_.scales = take({p.m, 8});
    if (!detail::is_symmetric(p)) places_.zero_points = take({p.m, 4});
  }
  if (adds_rows_) places_.row_sums = take({product_rows, 8});
  const std::int64_t blocks = blocks_of(p.k, block_k);
  if (p.group == 0) {
    const bool nibbles = is_packed(p.weight);
    const std::int64_t pieces =
        product_rows > octavo::cuda::product_rows
            ? pieces_for(blocks_of(product_rows,
                                   std::int64_t{32} * row_tiles_for(product_rows, p.n, nibbles)) *
                             blocks_of(p.n, tile_columns),
                         blocks, least_tile_blocks)
            : pieces_for(blocks_of(p.n, panel_columns), blocks, least_row_blocks);
    piece_blocks_ = std::max<std::int64_t>(1, blocks_of(blocks, pieces));
    if (wide_) piece_blocks_ = std::min(piece_blocks_, exact_k / block_k);
    pieces_ = static_cast<int>(std::max<std::int64_t>(1, blocks_of(blocks, piece_blocks_)));
    if (pieces_ > 1 || f64_) places_.parts = take({pieces_, product_rows, p.n, 4});
  } else if (has_fast_groups_ && product_rows > octavo::cuda::product_rows) {
    // (A block of threads takes two segments at most.)
    const std::int64_t tiles =
        blocks_of(product_rows, group_tile_rows) * blocks_of(p.n, tile_columns);
    pieces_ = tiles >= enough_blocks ? std::max(1, segments_ / 2) : segments_;
    if (pieces_ > 1) places_.parts = take({pieces_, p.m, p.n, 4});
  }
}

// Of rows that are multiplied, whole tiles.
std::int64_t CudaLinear::product_rows_of(std::int64_t rows) const {
  return blocks_of(rows * halves_, product_rows) * product_rows;
}

Status CudaLinear::run(const Stream& on, void* workspace, const detail::LinearOperands& o) const {
  CudaStream& stream = cuda_of(on);
  if (problem.packed_weight)
    if (Status s = check_device(device_weight(o.weight->packed), stream, "weight"); !s) return s;
  const Enqueue alone(stream);
  if (!alone.status()) return alone.status();
  const auto checked = check_linear_values(stream, problem, o);
  if (!checked) return checked.error();
  const Call call{stream, *checked, static_cast<unsigned char*>(workspace), o, o.input->shape[0]};
  if (call.rows == 0 || problem.n == 0) return {};
  WeightParts weights;
  WeightFormat held = format;
  if (Status s = bring_weights(call, weights, held); !s) return s;
  ProductArgs args;
  fill_finish(call, args.finish);
  if (detail::is_float_linear(problem)) return multiply_floats(call, args.finish, weights.codes);
  args.product_rows = halves_ == 1 ? call.rows : product_rows_of(call.rows);
  if (Status s = bring_rows(call, args); !s) return s;
  if (adds_columns_) args.finish.column_sums = weights.sums;
  args.codes = weights.codes;
  args.panels = blocks_of(problem.n, panel_columns);
  args.blocks = blocks_of(problem.k, block_k);
  args.shift = shift_of(problem.weight);
  args.group = problem.group;
  args.groups = detail::groups_of(problem.k, problem.group);
  args.scales = {weights.scales, held.scales, false};
  args.zeros = weights.zeros;
  args.segments = segments_;
  return problem.group == 0 ? multiply(call, args) : multiply_groups(call, args);
}

Status CudaLinear::bring_weights(const Call& call, WeightParts& weights, WeightFormat& held) const {
  if (problem.packed_weight) {
    const CudaWeight& packed = device_weight(call.o.weight->packed);
    weights = WeightParts(packed.at(0), packed.layout, format);
    return {};
  }
  if (problem.group != 0) held.scales = call.o.weight_scales->dtype;
  weights =
      WeightParts(call.workspace + places_.weights, WeightLayout(problem.n, problem.k, held), held);
  return enqueue_pack(call.stream, call.slot, call.o.weight->tensor, problem.n, problem.k, false,
                      held, call.o.weight_scales, call.o.weight_zero_points, weights);
}

Status CudaLinear::bring_rows(const Call& call, ProductArgs& args) const {
  const TensorRef& input = *call.o.input;
  const bool is_dynamic = detail::is_dynamic(problem);
  RowsArgs rows;
  rows.slot = call.slot;
  rows.input = input.data;
  rows.input_stride = problem.k == 0 ? 0 : input.strides[0];  // (of no bytes, it may lie at null)
  rows.rows = call.rows;
  rows.k = problem.k;
  rows.codes = reinterpret_cast<std::int8_t*>(call.workspace + places_.rows);
  rows.stride = places_.row_stride;
  rows.halves = halves_;
  rows.flip = problem.quantized == DType::u8 ? 0x80808080U : 0;
  if (adds_rows_) rows.sums = reinterpret_cast<std::int64_t*>(call.workspace + places_.row_sums);
  args.finish.row_sums = rows.sums;
  args.rows = rows.codes;
  args.row_stride = rows.stride;
  if (is_dynamic) {
    rows.scales = call.workspace + places_.scales;
    rows.range = detail::code_range(problem);
    rows.profile = problem.profile;
    rows.symmetric = detail::is_symmetric(problem);
    args.finish.row_scales = {rows.scales, octavo::compute_type(problem.activation), false};
    if (!rows.symmetric) {
      rows.zero_points = reinterpret_cast<std::int32_t*>(call.workspace + places_.zero_points);
      args.finish.row_zeros.data = rows.zero_points;
    }
  } else if (reinterpret_cast<std::uintptr_t>(input.data) % in_place == 0 &&
             rows.input_stride % in_place == 0 && problem.k % block_k == 0 &&
             (rows.flip == 0 || args.product_rows <= product_rows)) {
    args.rows = static_cast<const std::int8_t*>(input.data);
    args.row_stride = rows.input_stride;
    args.row_flip = rows.flip;
    if (rows.sums == nullptr) return {};
    rows.codes = nullptr;
  }
  unsigned kept = 0;
  if (is_dynamic) {
    const std::int64_t bytes = blocks_of(problem.k, 4) * 4 * (bits(problem.activation) / 8);
    rows.keeps_rows = bytes <= most_kept;
    if (rows.keeps_rows) kept = static_cast<unsigned>(bytes);
  }
  return launch(call.stream, rows_kernel(problem.activation), {grid(call.rows, most_x)},
                {rows_threads}, kept, rows);
}

void CudaLinear::fill_finish(const Call& call, FinishArgs& to) const {
  const detail::LinearOperands& o = call.o;
  to.slot = call.slot;
  to.rows = call.rows;
  to.n = problem.n;
  to.k = problem.k;
  to.halves = halves_;
  to.wide = wide_;
  const bool is_float = detail::is_float_linear(problem);
  if (!is_float) {
    const std::int32_t shift = problem.quantized == DType::u8 ? -128 : 0;
    to.row_zeros = zeros_of(o.activation_zero_points, shift);
    if (problem.op == Op::smoothquant_linear) to.row_zeros.shift += problem.act_zero_point;
    to.row_scales = floats_of(o.activation_scales);
    if (problem.op == Op::smoothquant_linear) to.row_scale = problem.act_scale;
    if (problem.group == 0) {
      to.column_zeros = zeros_of(o.weight_zero_points, shift_of(problem.weight));
      to.column_scales = floats_of(o.weight_scales);
    }
  }
  to.bias = floats_of(o.bias);
  to.bias.single = false;
  if (contains(problem.epilogue, Epilogue::residual)) {
    to.residual = o.residual->data;
    to.residual_type = o.residual->dtype;
    to.residual_stride = o.residual->strides[0];
  }
  to.relu = contains(problem.epilogue, Epilogue::relu);
  to.output = o.output->data;
  to.output_type = problem.output;
  to.output_stride = o.output->strides[0];
  to.output_scale = o.output_scale;
  to.output_zero_point = o.output_zero_point;
  to.profile = problem.profile;
  to.row_scale_f32 = rounded(to.row_scale);
  to.output_scale_f32 = rounded(to.output_scale);
}

Status CudaLinear::multiply(const Call& call, const ProductArgs& given) const {
  ProductArgs args = given;
  FinishArgs& f = args.finish;
  args.fused = pieces_ == 1 && !f64_;
  args.piece_blocks = piece_blocks_;
  if (!args.fused) {
    args.to = call.workspace + places_.parts;
    f.from = args.to;
    f.stride = problem.n;
    f.piece_stride = product_rows_of(call.rows) * problem.n;
    f.pieces = pieces_;
  }
  const Status s =
      args.product_rows > product_rows ? multiply_tiles(call, args) : multiply_few(call, args);
  return s && !args.fused ? finish(call, f, false) : s;
}

// Of at most 16 rows.
Status CudaLinear::multiply_few(const Call& call, ProductArgs& args) const {
  constexpr std::int64_t least_blocks = 4;  // of k, that a warp is worth
  args.parts = product_warps;
  while (args.parts > 1 && piece_blocks_ < least_blocks * args.parts) args.parts /= 2;
  const std::int64_t panels = static_cast<int>(product_warps) / args.parts;
  const Size blocks{grid(blocks_of(args.panels, panels), most_x), 1,
                    static_cast<unsigned>(pieces_)};
  const bool one = call.rows == 1 && halves_ == 1;
  const Kernel& kernel = is_packed(problem.weight) ? (one ? nibbles_by_one_row : products_nibbles)
                                                   : (one ? bytes_by_one_row : products_bytes);
  return launch(call.stream, kernel, blocks, {product_threads}, 0, args);
}

Status CudaLinear::multiply_tiles(const Call& call, const ProductArgs& args) const {
  const bool nibbles = is_packed(problem.weight);
  const int row_tiles = row_tiles_for(args.product_rows, problem.n, nibbles);
  const Kernel& kernel = row_tiles == 4   ? (nibbles ? tiles_128_nibbles : tiles_128_bytes)
                         : row_tiles == 2 ? (nibbles ? tiles_64_nibbles : tiles_64_bytes)
                                          : tiles_32_bytes;
  const Size blocks{grid(blocks_of(problem.n, tile_columns), most_x),
                    grid(blocks_of(args.product_rows, std::int64_t{32} * row_tiles), most_y),
                    static_cast<unsigned>(pieces_)};
  return launch(call.stream, kernel, blocks, {tile_threads}, tile_shared_bytes(row_tiles, nibbles),
                args);
}

Status CudaLinear::multiply_groups(const Call& call, const ProductArgs& args) const {
  const bool nibbles = is_packed(problem.weight);
  if (!has_fast_groups_) {
    const Size blocks{grid(blocks_of(problem.n, group_threads), most_x), grid(call.rows, most_y)};
    const Kernel& kernel = nibbles ? (f64_ ? any_nibble_groups_f64 : any_nibble_groups_f32)
                                   : (f64_ ? any_byte_groups_f64 : any_byte_groups_f32);
    return launch(call.stream, kernel, blocks, {group_threads}, 0, args);
  }
  ProductArgs own = args;
  own.parts = segments_;
  if (args.product_rows <= product_rows) {
    const std::int64_t panels = static_cast<int>(product_warps) / own.parts;
    return launch(call.stream, nibbles ? products_nibble_groups : products_byte_groups,
                  {grid(blocks_of(own.panels, panels), most_x)}, {product_threads}, 0, own);
  }
  FinishArgs& f = own.finish;
  own.parts = pieces_;
  own.fused = pieces_ == 1;
  if (!own.fused) {
    own.to = call.workspace + places_.parts;
    f.from = own.to;
    f.stride = problem.n;
    f.piece_stride = call.rows * problem.n;
    f.pieces = pieces_;
  }
  const Size blocks{grid(blocks_of(problem.n, tile_columns), most_x),
                    grid(blocks_of(own.product_rows, group_tile_rows), most_y),
                    static_cast<unsigned>(pieces_)};
  if (Status s = launch(call.stream, nibbles ? tiles_nibble_groups : tiles_byte_groups, blocks,
                        {tile_threads}, tile_shared_bytes(group_tile_rows / 32, nibbles), own);
      !s)
    return s;
  return own.fused ? Status() : finish(call, f, true);
}

Status CudaLinear::multiply_floats(const Call& call, const FinishArgs& finish_args,
                                   const void* weights) const {
  FloatProductArgs args;
  args.finish = finish_args;
  args.input = call.o.input->data;
  args.input_type = problem.activation;
  args.input_stride = problem.k == 0 ? 0 : call.o.input->strides[0];
  args.weights = weights;
  args.weight_type = problem.weight;
  args.segments = segments_;
  args.parts = pieces_;
  args.fused = pieces_ == 1;
  FinishArgs& f = args.finish;
  if (!args.fused) {
    args.to = reinterpret_cast<float*>(call.workspace + places_.parts);
    f.from = args.to;
    f.stride = problem.n;
    f.piece_stride = call.rows * problem.n;
    f.pieces = pieces_;
  }
  const Size blocks{grid(blocks_of(problem.n, float_tile), most_x),
                    grid(blocks_of(call.rows, float_tile), most_y), static_cast<unsigned>(pieces_)};
  if (Status s = launch(call.stream, floats, blocks, {float_threads}, 0, args); !s) return s;
  return args.fused ? Status() : finish(call, f, true);
}

Status CudaLinear::finish(const Call& call, const FinishArgs& args, bool values) const {
  const Size blocks{grid(blocks_of(args.n, finish_threads), most_x), grid(args.rows, most_y)};
  const Kernel& kernel = values ? finish_values_f32 : f64_ ? finish_sums_f64 : finish_sums_f32;
  return launch(call.stream, kernel, blocks, {finish_threads}, 0, args);
}

}  // namespace octavo::cuda
