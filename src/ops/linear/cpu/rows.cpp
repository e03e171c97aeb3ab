// The activations of a call: quantized row by row, or brought into the form the dot product wants,
// in the workspace; or read where they are, if that is their form.
#include "ops/linear/cpu/rows.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "numerics/linear.hpp"

namespace octavo::detail {
namespace {

// So many bytes apart, rows of a power of two would share one set of the first cache.
constexpr std::int64_t row_padding = 64;
constexpr std::int64_t unit = static_cast<std::int64_t>(workspace_alignment);

// What the form adds to stored values, and so to zero points. (Halves of s16 are s8.)
std::int32_t shift_of(Form form, DType stored) {
  if (form == Form::u8) return stored == DType::u8 ? 0 : 128;
  return stored == DType::u8 ? -128 : 0;
}

}  // namespace

bool LinearLayout::fits(const LinearProblem& p, int threads) {
  // (Each thread packs a group of panels, with their sums. All else was counted with the sizes.)
  return p.m == 0 || p.n == 0 || (p.packed_weight && parts_per_row(p) == 1) ||
         count_elements("k", {threads, group_columns, p.k + 2 * padded_k}).has_value();
}

LinearLayout::LinearLayout(const LinearProblem& p, const DotKernel& dot, int threads)
    : form(dot.form) {
  halves = parts_per_row(p);
  copies_rows = is_dynamic(p) || halves == 2 || form == Form::s16 ||
                shift_of(form, p.activation) != 0 || p.k % dot.k_grain != 0;
  adds_rows = p.weight_zero_points || p.weight == DType::u8;
  adds_columns = p.activation_zero_points || shift_of(form, p.quantized) != 0;
  const auto take = [this](std::int64_t bytes) {
    const std::int64_t at = total;
    total += round_up(bytes, unit);
    return at;
  };
  if (p.m == 0 || p.n == 0) return;
  row_stride = round_up(p.k, padded_k) * bytes_of(form) + row_padding;
  if (copies_rows) take(p.m * halves * row_stride);
  if (is_dynamic(p)) {
    scales = take(p.m * (bits(octavo::compute_type(p.activation)) / 8));
    if (!is_symmetric(p)) zero_points = take(p.m * 4);
  }
  if (adds_rows) row_sums = take(p.m * halves * 8);
  if (halves == 2) {
    line_bytes = round_up(p.k * 4, unit);  // as it is quantized, and its halves
    lines = take(threads * line_bytes);
  }
  if (p.packed_weight) return;
  if (adds_columns) ones = take(row_stride);
  const std::int64_t panels = panels_of(p.n);
  const std::int64_t group = std::min<std::int64_t>(group_panels, panels);
  const std::int64_t parts =
      p.m >= threads || panels >= threads ? threads : std::min<std::int64_t>(threads, p.m * panels);
  pack_sums = group * panel_bytes_of(p.k);
  pack_bytes = pack_sums + (adds_columns ? group * panel_columns * 8 : 0);
  packs = take(parts * pack_bytes);
}

Rows::Rows(const LinearProblem& p, const LinearOperands& o, const LinearLayout& layout,
           const LinearKernels& kernels, void* workspace)
    : p_(p),
      o_(o),
      layout_(layout),
      kernels_(kernels),
      dynamic_(is_dynamic(p)),
      workspace_(static_cast<unsigned char*>(workspace)),
      shift_(shift_of(layout.form, p.quantized)) {
  activations_ =
      layout_.copies_rows ? workspace_ : static_cast<const unsigned char*>(o_.input->data);
  input_stride_ = p.k == 0 ? 0 : o_.input->strides[0];  // (of no bytes, it may lie at null)
  stride_ = layout_.copies_rows ? layout_.row_stride : input_stride_;
}

bool Rows::prepares() const { return layout_.copies_rows || layout_.adds_rows || needs_ones(); }

void Rows::prepare(std::int64_t first, std::int64_t last, int part) const {
  if (first == 0 && needs_ones()) fill_ones();
  if (!layout_.copies_rows && !layout_.adds_rows) return;
  unsigned char* line = workspace_ + layout_.lines + part * layout_.line_bytes;
  for (std::int64_t row = first; row < last; ++row) prepare_row(row, line);
}

void Rows::fill_ones() const {
  unsigned char* ones = workspace_ + layout_.ones;
  const std::int64_t padded = round_up(p_.k, padded_k);
  if (layout_.form == Form::s16) {
    std::fill_n(reinterpret_cast<std::int16_t*>(ones), padded, std::int16_t{1});
  } else {
    std::fill_n(ones, padded, static_cast<unsigned char>(1));
  }
}

void Rows::prepare_row(std::int64_t row, unsigned char* line) const {
  const auto* from = static_cast<const unsigned char*>(o_.input->data) +
                     row * input_stride_ * (bits(p_.activation) / 8);
  if (layout_.halves == 1) {
    if (dynamic_) {
      // s16 rows are first quantized to their own upper half.
      unsigned char* to = workspace_ + row * layout_.row_stride;
      unsigned char* bytes = layout_.form == Form::s16 ? to + round_up(p_.k, padded_k) : to;
      quantize_row(row, from, bytes);
      from = bytes;
    }
    return bring(row, from, p_.quantized == DType::s8);
  }
  if (dynamic_) {
    quantize_row(row, from, line);
    from = line;
  }
  const auto* wide = reinterpret_cast<const std::int16_t*>(from);
  unsigned char* high = line + 2 * p_.k;
  unsigned char* low = high + p_.k;
  for (std::int64_t k = 0; k < p_.k; ++k) {
    const numerics::Halves h = numerics::halves_of(wide[k]);
    high[k] = static_cast<unsigned char>(h.high);
    low[k] = static_cast<unsigned char>(h.low);
  }
  bring(2 * row, high, true);
  bring(2 * row + 1, low, true);
}

// A row in the kernel's form, padded with values that meet weights of 0; and its sum.
void Rows::bring(std::int64_t row, const unsigned char* from, bool is_signed) const {
  if (layout_.adds_rows)
    row_sums()[row] = kernels_.rows.sum(from, p_.k, is_signed ? sign_flip : 0) +
                      p_.k * (shift_ - (is_signed ? 128 : 0));
  if (!layout_.copies_rows) return;
  unsigned char* to = workspace_ + row * layout_.row_stride;
  const unsigned char flip = shift_ == 0 ? 0 : sign_flip;
  if (layout_.form == Form::s16) {
    kernels_.rows.widen(from, p_.k, flip, reinterpret_cast<std::int16_t*>(to));
    return;
  }
  if (from != to || flip != 0) kernels_.rows.flip(from, p_.k, flip, to);
  std::memset(to + p_.k, 0, static_cast<std::size_t>(round_up(p_.k, padded_k) - p_.k));
}

void Rows::quantize_row(std::int64_t row, const unsigned char* from, unsigned char* to) const {
  KernelCall call;
  call.input = from;
  call.output = to;
  call.count = 1;
  call.length = p_.k;
  call.range = code_range(p_);
  call.profile = p_.profile;
  call.symmetric = is_symmetric(p_);
  call.scale_found =
      workspace_ + layout_.scales + row * (bits(octavo::compute_type(p_.activation)) / 8);
  if (!is_symmetric(p_)) call.zero_point_found = zero_points() + row;
  kernels_.fused(call);
}

std::int64_t Rows::zero(std::int64_t row) const {
  if (!p_.activation_zero_points) return shift_;
  if (dynamic_) return zero_points()[row] + shift_;
  if (p_.op == Op::smoothquant_linear) return p_.act_zero_point + shift_;
  const TensorRef& given = *o_.activation_zero_points;
  return static_cast<const std::int32_t*>(given.data)[is_single(given) ? 0 : row] + shift_;
}

bool Rows::one_zero() const {
  if (!p_.activation_zero_points || p_.op == Op::smoothquant_linear) return true;
  return !dynamic_ && is_single(*o_.activation_zero_points);
}

template <class C>
void Rows::load_scales(std::int64_t row, std::int64_t rows, C* to) const {
  if (!dynamic_) return load_row_scales(p_, o_, row, rows, to);
  load_floats(workspace_ + layout_.scales, octavo::compute_type(p_.activation), false, row, rows,
              to);
}
template void Rows::load_scales(std::int64_t, std::int64_t, float*) const;
template void Rows::load_scales(std::int64_t, std::int64_t, double*) const;

}  // namespace octavo::detail
