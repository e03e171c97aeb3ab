// The activations of a call: quantized row by row, or brought into the form the dot product wants,
// in the workspace; or read where they are, if that is their form.
#include "ops/linear/rows.hpp"

#include <algorithm>
#include <cstring>

#include "numerics/half.hpp"
#include "numerics/linear.hpp"
#include "ops/dynamic_range/kernels.hpp"
#include "ops/linear/pack.hpp"
#include "simd/on_target.hpp"

namespace octavo::detail {
namespace {

// So many bytes apart, rows of a power of two would share one set of the first cache.
constexpr std::int64_t row_padding = 64;
constexpr std::int64_t unit = static_cast<std::int64_t>(workspace_alignment);

// What the form adds to stored values, and so to zero points.
std::int32_t shift_of(Form form, DType stored) {
  if (form == Form::u8) return stored == DType::s8 ? 128 : 0;
  return stored == DType::u8 ? -128 : 0;
}

template <class C, class T>
void load_as(const void* from, bool single, std::int64_t first, std::int64_t n, C* to) {
  const auto* values = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = values[single ? 0 : first + i];
    if constexpr (sizeof(T) == 2) {
      to[i] = numerics::widen(value);
    } else {
      to[i] = static_cast<C>(value);
    }
  }
}

}  // namespace

template <class C>
void load_floats(const TensorRef& from, bool single, std::int64_t first, std::int64_t n, C* to) {
  switch (from.dtype) {
    case DType::f64:
      return load_as<C, double>(from.data, single, first, n, to);
    case DType::f16:
      return load_as<C, f16>(from.data, single, first, n, to);
    case DType::bf16:
      return load_as<C, bf16>(from.data, single, first, n, to);
    default:
      return load_as<C, float>(from.data, single, first, n, to);
  }
}
template void load_floats(const TensorRef&, bool, std::int64_t, std::int64_t, float*);
template void load_floats(const TensorRef&, bool, std::int64_t, std::int64_t, double*);

bool is_wide(const LinearProblem& p) {
  return p.k > numerics::max_exact_k(p.activation_zero_points || p.quantized == DType::u8,
                                     p.weight_zero_points || p.weight == DType::u8);
}

LinearLayout::LinearLayout(const LinearProblem& p, Target target, int threads)
    : dot(dot_kernel_of(target)) {
  const bool dynamic = is_float(p.activation);
  copies_rows = dynamic || dot->form == Form::s16 || shift_of(dot->form, p.activation) != 0 ||
                p.k % dot->k_grain != 0;
  adds_rows = p.weight_zero_points || p.weight == DType::u8;
  adds_columns = p.activation_zero_points || shift_of(dot->form, p.quantized) != 0;
  const auto take = [this](std::int64_t bytes) {
    const std::int64_t at = total;
    total += round_up(bytes, unit);
    return at;
  };
  if (p.m == 0 || p.n == 0) return;
  row_stride = round_up(p.k, padded_k) * bytes_of(dot->form) + row_padding;
  if (copies_rows) take(p.m * row_stride);
  if (dynamic) {
    scales = take(p.m * (bits(octavo::compute_type(p.activation)) / 8));
    if (!is_symmetric(p)) zero_points = take(p.m * 4);
  }
  if (adds_rows) row_sums = take(p.m * 8);
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
           Target vector_target, void* workspace)
    : p_(p),
      o_(o),
      layout_(layout),
      form_(layout.dot->form),
      workspace_(static_cast<unsigned char*>(workspace)),
      shift_(shift_of(form_, p.quantized)) {
  activations_ =
      layout_.copies_rows ? workspace_ : static_cast<const unsigned char*>(o_.input->data);
  input_stride_ = p.k == 0 ? 0 : o_.input->strides[0];  // (of no bytes, it may lie at null)
  stride_ = layout_.copies_rows ? layout_.row_stride : input_stride_;
  if (is_float(p.activation))
    fused_ = dynamic_range_kernels_of(vector_target)
                 .find_fused({Op::quantize, p.activation, p.quantized, false});
  kernels_ = on_target(vector_target, []<Target t>() { return row_kernels<t>(); });
}

bool Rows::prepares() const { return layout_.copies_rows || layout_.adds_rows || needs_ones(); }

void Rows::prepare(std::int64_t first, std::int64_t last) const {
  if (first == 0 && needs_ones()) fill_ones();
  if (!layout_.copies_rows && !layout_.adds_rows) return;
  for (std::int64_t row = first; row < last; ++row) prepare_row(row);
}

void Rows::fill_ones() const {
  unsigned char* ones = workspace_ + layout_.ones;
  const std::int64_t padded = round_up(p_.k, padded_k);
  if (form_ == Form::s16) {
    std::fill_n(reinterpret_cast<std::int16_t*>(ones), padded, std::int16_t{1});
  } else {
    std::fill_n(ones, padded, static_cast<unsigned char>(1));
  }
}

// A row in the kernel's form, padded with values that meet weights of 0; and its sum.
void Rows::prepare_row(std::int64_t row) const {
  unsigned char* to = workspace_ + row * layout_.row_stride;
  const auto* from = static_cast<const unsigned char*>(o_.input->data) +
                     row * input_stride_ * (bits(p_.activation) / 8);
  const std::int64_t padded = round_up(p_.k, padded_k);
  if (fused_ != nullptr) {
    // s16 rows are first quantized to their own upper half.
    unsigned char* bytes = form_ == Form::s16 ? to + padded : to;
    quantize_row(row, from, bytes);
    from = bytes;
  }
  if (layout_.adds_rows) {
    const bool is_signed = p_.quantized == DType::s8;
    row_sums()[row] = kernels_.sum(from, p_.k, is_signed ? sign_flip : 0) +
                      p_.k * (shift_ - (is_signed ? 128 : 0));
  }
  if (!layout_.copies_rows) return;
  const unsigned char flip = shift_ == 0 ? 0 : sign_flip;
  if (form_ == Form::s16) {
    kernels_.widen(from, p_.k, flip, reinterpret_cast<std::int16_t*>(to));
    return;
  }
  if (from != to || flip != 0) kernels_.flip(from, p_.k, flip, to);
  std::memset(to + p_.k, 0, static_cast<std::size_t>(padded - p_.k));
}

void Rows::quantize_row(std::int64_t row, const unsigned char* from, unsigned char* to) const {
  KernelCall call;
  call.input = from;
  call.output = to;
  call.count = 1;
  call.length = p_.k;
  call.range = storage_range(p_.quantized);
  call.profile = p_.profile;
  call.symmetric = is_symmetric(p_);
  call.scale_found =
      workspace_ + layout_.scales + row * (bits(octavo::compute_type(p_.activation)) / 8);
  if (!is_symmetric(p_)) call.zero_point_found = zero_points() + row;
  fused_(call);
}

std::int64_t Rows::zero(std::int64_t row) const {
  if (!p_.activation_zero_points) return shift_;
  if (fused_ != nullptr) return zero_points()[row] + shift_;
  if (p_.op == Op::smoothquant_linear) return p_.act_zero_point + shift_;
  const TensorRef& given = *o_.activation_zero_points;
  return static_cast<const std::int32_t*>(given.data)[is_single(given) ? 0 : row] + shift_;
}

bool Rows::one_zero() const {
  if (!p_.activation_zero_points || p_.op == Op::smoothquant_linear) return true;
  return fused_ == nullptr && is_single(*o_.activation_zero_points);
}

template <class C>
void Rows::load_scales(std::int64_t row, std::int64_t rows, C* to) const {
  if (fused_ != nullptr) {
    const TensorRef found(workspace_ + layout_.scales, octavo::compute_type(p_.activation), {p_.m});
    load_floats(found, false, row, rows, to);
  } else if (o_.activation_scales != nullptr) {
    load_floats(*o_.activation_scales, is_single(*o_.activation_scales), row, rows, to);
  } else {
    std::fill_n(to, rows, static_cast<C>(p_.act_scale));
  }
}
template void Rows::load_scales(std::int64_t, std::int64_t, float*) const;
template void Rows::load_scales(std::int64_t, std::int64_t, double*) const;

}  // namespace octavo::detail
