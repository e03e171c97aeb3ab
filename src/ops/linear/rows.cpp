// The activations of a call: quantized row by row, or brought into the form the dot product wants,
// in the workspace; or read where they are, if that is their form.
#include "ops/linear/rows.hpp"

#include <algorithm>
#include <cstring>

#include "numerics/half.hpp"
#include "numerics/linear.hpp"
#include "ops/dynamic_range/kernels.hpp"
#include "ops/linear/pack.hpp"

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

// s8 to u8 and back. Word by word, for the compiler cannot know that bytes overlap at most exactly.
void flip_bytes(const unsigned char* from, std::int64_t n, unsigned char* to) {
  constexpr std::int64_t block = 64;
  constexpr std::uint64_t flip = 0x8080808080808080U;
  std::uint64_t words[block / 8];
  std::int64_t i = 0;
  for (; i + block <= n; i += block) {
    std::memcpy(words, from + i, block);
    for (std::uint64_t& word : words) word ^= flip;
    std::memcpy(to + i, words, block);
  }
  for (; i < n; ++i) to[i] = from[i] ^ 0x80U;
}

template <class T>
std::int64_t sum_of(const T* values, std::int64_t n) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += values[i];
  return sum;
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
    if (!p.symmetric) zero_points = take(p.m * 4);
  }
  if (adds_rows) row_sums = take(p.m * 8);
  if (p.packed_weight) return;
  ones = take(row_stride);
  pack_bytes = group_panels * panel_bytes_of(p.k) + group_columns * 8;
  packs = take(threads * pack_bytes);
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
}

bool Rows::prepares() const {
  return layout_.copies_rows || layout_.adds_rows || !p_.packed_weight;
}

void Rows::prepare(std::int64_t first, std::int64_t last) const {
  if (first == 0 && !p_.packed_weight) fill_ones();
  for (std::int64_t row = first; row < last; ++row) {
    if (layout_.copies_rows) prepare_row(row);
    if (layout_.adds_rows) add_row(row);
  }
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

// A row in the kernel's form, padded with values that meet weights of 0.
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
  const unsigned char flip = shift_ == 0 ? 0 : 0x80;
  if (form_ == Form::s16) {
    widen_row(from, flip, to);
    return;
  }
  if (flip != 0) {
    flip_bytes(from, p_.k, to);
  } else if (from != to && p_.k > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(p_.k));
  }
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
  call.symmetric = p_.symmetric;
  call.scale_found =
      workspace_ + layout_.scales + row * (bits(octavo::compute_type(p_.activation)) / 8);
  if (!p_.symmetric) call.zero_point_found = zero_points() + row;
  fused_(call);
}

// `from` may lie in the upper half of `to`.
void Rows::widen_row(const unsigned char* from, unsigned char flip, unsigned char* to) const {
  const std::int64_t padded = round_up(p_.k, padded_k);
  for (std::int64_t i = 0; i < padded; i += padded_k) {
    unsigned char bytes[padded_k] = {};
    std::int16_t values[padded_k];
    const std::int64_t n = std::clamp<std::int64_t>(p_.k - i, 0, padded_k);
    std::memcpy(bytes, from + i, static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < padded_k; ++j)
      values[j] = static_cast<std::int16_t>((bytes[j] ^ flip ^ 0x80) - 0x80);  // as s8
    std::memcpy(to + 2 * i, values, sizeof values);
  }
}

void Rows::add_row(std::int64_t row) const {
  const unsigned char* a = activations_ + row * stride_;
  std::int64_t sum = 0;
  if (form_ == Form::u8) sum = sum_of(a, p_.k);
  if (form_ == Form::s8) sum = sum_of(reinterpret_cast<const std::int8_t*>(a), p_.k);
  if (form_ == Form::s16) sum = sum_of(reinterpret_cast<const std::int16_t*>(a), p_.k);
  row_sums()[row] = sum;
}

std::int64_t Rows::zero(std::int64_t row) const {
  if (!p_.activation_zero_points) return shift_;
  if (fused_ != nullptr) return zero_points()[row] + shift_;
  if (p_.op == Op::smoothquant_linear) return p_.act_zero_point + shift_;
  const TensorRef& given = *o_.activation_zero_points;
  return static_cast<const std::int32_t*>(given.data)[is_single(given) ? 0 : row] + shift_;
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
