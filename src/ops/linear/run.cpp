// Two steps, each shared out among the threads: rows of activations are quantized, or brought into
// the form the dot product wants; then each thread multiplies all rows by panels of its own (or, if
// there are few panels, rows of its own by all panels).
//
// With a the activations in the kernel's form, w the packed weights, both as they are stored,
//
//     sum (a - za) (w - zw) = sum a w - za * sum w - zw * (sum a - k * za)
//
// where the sums over w belong to the pack and those over a are needed only if zw is not 0.
#include "ops/linear/run.hpp"

#include <algorithm>
#include <cstring>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "numerics/linear.hpp"
#include "ops/dynamic_range/kernels.hpp"
#include "ops/elementwise/parameters.hpp"
#include "ops/linear/epilogue.hpp"
#include "ops/linear/pack.hpp"
#include "simd/on_target.hpp"

namespace octavo::detail {
namespace {

// Beyond 32 bits, k is cut in pieces whose sums fit.
constexpr std::int64_t wide_piece = std::int64_t{1} << 15;
// Below this many products per thread, waking another one costs more than it saves.
constexpr std::int64_t products_per_thread = std::int64_t{1} << 20;
// So many bytes apart, rows of a power of two would share one set of the first cache.
constexpr std::int64_t row_padding = 64;
constexpr std::int64_t unit = static_cast<std::int64_t>(workspace_alignment);

std::int64_t bytes_of(Form form) { return form == Form::s16 ? 2 : 1; }

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

namespace {

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

namespace {

class Run {
 public:
  Run(const LinearProblem& p, const LinearOperands& o, const LinearLayout& layout,
      Target vector_target, void* workspace)
      : p_(p),
        o_(o),
        layout_(layout),
        dot_(*layout.dot),
        vector_target_(vector_target),
        workspace_(static_cast<unsigned char*>(workspace)),
        shift_(shift_of(dot_.form, p.quantized)),
        wide_(is_wide(p)) {
    activations_ =
        layout_.copies_rows ? workspace_ : static_cast<const unsigned char*>(o_.input->data);
    input_stride_ = p.k == 0 ? 0 : o_.input->strides[0];  // (of no bytes, it may lie at null)
    stride_ = layout_.copies_rows ? layout_.row_stride : input_stride_;
    if (is_float(p.activation))
      fused_ = dynamic_range_kernels_of(vector_target)
                   .find_fused({Op::quantize, p.activation, p.quantized, false});
  }

  [[nodiscard]] bool prepares_rows() const {
    return layout_.copies_rows || layout_.adds_rows || !p_.packed_weight;
  }

  void prepare_rows(std::int64_t first, std::int64_t last) const {
    if (first == 0 && !p_.packed_weight) fill_ones();
    for (std::int64_t row = first; row < last; ++row) {
      if (layout_.copies_rows) prepare_row(row);
      if (layout_.adds_rows) add_row(row);
    }
  }

  // Returns the bits of the targets that ran.
  std::uint32_t multiply(int part, std::int64_t first_panel, std::int64_t last_panel,
                         std::int64_t first_row, std::int64_t last_row) const {
    std::uint32_t ran = 0;
    for (std::int64_t panel = first_panel; panel < last_panel; panel += group_panels) {
      const auto panels =
          static_cast<int>(std::min<std::int64_t>(group_panels, last_panel - panel));
      Group group = prepare_group(part, panel, panels);
      if (p_.packed_weight && panel + panels < last_panel)
        group.ahead = group.weights + panels * panel_bytes_of(p_.k);
      for (std::int64_t row = first_row; row < last_row; row += dot_.rows) {
        const std::int64_t rows = std::min(dot_.rows, last_row - row);
        if (octavo::detail::compute_type(p_) == DType::f64) {
          ran |= block<double>(group, row, rows);
        } else {
          ran |= block<float>(group, row, rows);
        }
      }
    }
    if (dot_.end != nullptr) dot_.end();
    return ran;
  }

 private:
  // Panels that are multiplied together.
  struct Group {
    std::int64_t column = 0;
    std::int64_t columns = 0;
    int panels = 0;
    const std::int8_t* weights = nullptr;
    const std::int64_t* sums = nullptr;
    const std::int8_t* ahead = nullptr;  // weights of the next group
  };

  void fill_ones() const {
    unsigned char* ones = workspace_ + layout_.ones;
    const std::int64_t padded = round_up(p_.k, padded_k);
    if (dot_.form == Form::s16) {
      std::fill_n(reinterpret_cast<std::int16_t*>(ones), padded, std::int16_t{1});
    } else {
      std::fill_n(ones, padded, static_cast<unsigned char>(1));
    }
  }

  [[nodiscard]] const unsigned char* source_row(std::int64_t row) const {
    const std::int64_t bytes = bits(p_.activation) / 8;
    return static_cast<const unsigned char*>(o_.input->data) + row * input_stride_ * bytes;
  }

  // A row in the kernel's form, padded with values that meet weights of 0.
  void prepare_row(std::int64_t row) const {
    unsigned char* to = workspace_ + row * layout_.row_stride;
    const unsigned char* from = source_row(row);
    const std::int64_t padded = round_up(p_.k, padded_k);
    if (fused_ != nullptr) {
      // s16 rows are first quantized to their own upper half.
      unsigned char* bytes = dot_.form == Form::s16 ? to + padded : to;
      quantize_row(row, from, bytes);
      from = bytes;
    }
    const unsigned char flip = shift_ == 0 ? 0 : 0x80;
    if (dot_.form == Form::s16) {
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

  void quantize_row(std::int64_t row, const unsigned char* from, unsigned char* to) const {
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
  void widen_row(const unsigned char* from, unsigned char flip, unsigned char* to) const {
    const std::int64_t padded = round_up(p_.k, padded_k);
    for (std::int64_t i = 0; i < padded; i += padded_k) {
      unsigned char bytes[padded_k] = {};
      std::int16_t values[padded_k];
      const std::int64_t n = std::clamp<std::int64_t>(p_.k - i, 0, padded_k);
      std::memcpy(bytes, from + i, static_cast<std::size_t>(n));
      for (std::int64_t j = 0; j < padded_k; ++j)
        values[j] = static_cast<std::int8_t>(bytes[j] ^ flip);
      std::memcpy(to + 2 * i, values, sizeof values);
    }
  }

  void add_row(std::int64_t row) const {
    const unsigned char* a = activations_ + row * stride_;
    std::int64_t sum = 0;
    if (dot_.form == Form::u8) sum = sum_of(a, p_.k);
    if (dot_.form == Form::s8) sum = sum_of(reinterpret_cast<const std::int8_t*>(a), p_.k);
    if (dot_.form == Form::s16) sum = sum_of(reinterpret_cast<const std::int16_t*>(a), p_.k);
    row_sums()[row] = sum;
  }

  [[nodiscard]] std::int32_t* zero_points() const {
    return reinterpret_cast<std::int32_t*>(workspace_ + layout_.zero_points);
  }
  [[nodiscard]] std::int64_t* row_sums() const {
    return reinterpret_cast<std::int64_t*>(workspace_ + layout_.row_sums);
  }

  Group prepare_group(int part, std::int64_t panel, int panels) const {
    Group group;
    group.column = panel * panel_columns;
    group.columns = std::min(p_.n - group.column, panels * panel_columns);
    group.panels = panels;
    if (p_.packed_weight) {
      const PackedWeight::Impl& packed = *o_.weight->packed->impl();
      group.weights = packed.data.get() + panel * panel_bytes_of(p_.k);
      group.sums = packed.sums.data() + group.column;
      return group;
    }
    unsigned char* own = workspace_ + layout_.packs + part * layout_.pack_bytes;
    auto* weights = reinterpret_cast<std::int8_t*>(own);
    auto* sums = reinterpret_cast<std::int64_t*>(own + group_panels * panel_bytes_of(p_.k));
    const TensorRef& w = o_.weight->tensor;
    pack_panels({w.data, w.strides[0], p_.n, p_.k, p_.weight == DType::u8}, panel, panel + panels,
                weights);
    group.weights = weights;
    group.sums = sums;
    add_columns(group, sums);
    return group;
  }

  // The sums of columns that are packed run by run: a product by ones.
  void add_columns(const Group& group, std::int64_t* sums) const {
    alignas(64) std::int32_t found[group_columns];
    std::fill_n(sums, group_columns, 0);
    DotCall call = dot_call(group, 0, 1, found);
    call.activations = workspace_ + layout_.ones;
    for_each_piece(call, [&] {
      for (std::int64_t c = 0; c < group.columns; ++c) sums[c] += found[c];
    });
  }

  // Runs the dot product piece by piece of k, each so short that its sums are exact in 32 bits.
  template <class F>
  std::uint32_t for_each_piece(DotCall call, F&& add) const {
    std::uint32_t ran = 0;
    const std::int64_t steps = call.steps;
    for (std::int64_t done = 0; done < steps; done += wide_piece / step_k) {
      call.steps = std::min(steps - done, wide_piece / step_k);
      ran |= bit(dot_.run(call));
      call.activations =
          static_cast<const unsigned char*>(call.activations) + wide_piece * bytes_of(dot_.form);
      call.weights += wide_piece * panel_columns;
      add();
    }
    return ran;
  }

  // What an epilogue needs to know of a block, gathered in arrays.
  template <class C>
  struct Terms {
    C row_scale[block_rows];
    C column_scale[group_columns];
    C bias[group_columns];
    std::int64_t row_zero[block_rows];
    std::int64_t row_term[block_rows];  // sum a - k * za
    std::int64_t weight_zero[group_columns];
    bool same_row_zero = true;
  };

  template <class C>
  void gather(const Group& group, std::int64_t row, std::int64_t rows, Terms<C>& t) const {
    const bool raw = p_.output == DType::s32;
    std::fill_n(t.row_scale, rows, C(1));
    std::fill_n(t.column_scale, group_columns, C(0));
    std::fill_n(t.bias, group_columns, C(0));
    std::fill_n(t.weight_zero, group_columns, 0);
    if (!raw) {
      const auto single = [](const TensorRef& tensor, std::int64_t count) {
        // (One element, where there may be more or fewer than one.)
        return count != 1 && is_single(tensor);
      };
      if (fused_ != nullptr) {
        const TensorRef found(workspace_ + layout_.scales, octavo::compute_type(p_.activation),
                              {p_.m});
        load_floats(found, false, row, rows, t.row_scale);
      } else if (o_.activation_scales != nullptr) {
        load_floats(*o_.activation_scales, single(*o_.activation_scales, o_.input->shape[0]), row,
                    rows, t.row_scale);
      } else {
        std::fill_n(t.row_scale, rows, static_cast<C>(p_.act_scale));
      }
      load_floats(*o_.weight_scales, single(*o_.weight_scales, p_.n), group.column, group.columns,
                  t.column_scale);
      if (contains(p_.epilogue, Epilogue::bias))
        load_floats(*o_.bias, false, group.column, group.columns, t.bias);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      t.row_zero[i] = zero_of_row(row + i) + shift_;
      t.same_row_zero = t.same_row_zero && t.row_zero[i] == t.row_zero[0];
      t.row_term[i] = layout_.adds_rows ? row_sums()[row + i] - p_.k * t.row_zero[i] : 0;
    }
    if (!layout_.adds_rows) return;
    const std::int64_t shift = p_.weight == DType::u8 ? -128 : 0;  // packed as s8
    for (std::int64_t i = 0; i < group.columns; ++i) {
      std::int64_t zero = 0;
      if (p_.weight_zero_points) {
        const auto* values = static_cast<const std::int32_t*>(o_.weight_zero_points->data);
        zero = values[is_single(*o_.weight_zero_points) ? 0 : group.column + i];
      }
      t.weight_zero[i] = zero + shift;
    }
  }

  static bool is_single(const TensorRef& t) {
    for (int i = 0; i < t.shape.rank(); ++i)
      if (t.shape[i] != 1) return false;
    return true;
  }

  [[nodiscard]] std::int64_t zero_of_row(std::int64_t row) const {
    if (!p_.activation_zero_points) return 0;
    if (fused_ != nullptr) return zero_points()[row];
    if (p_.op == Op::smoothquant_linear) return p_.act_zero_point;
    const TensorRef& given = *o_.activation_zero_points;
    return static_cast<const std::int32_t*>(given.data)[is_single(given) ? 0 : row];
  }

  [[nodiscard]] DotCall dot_call(const Group& group, std::int64_t row, std::int64_t rows,
                                 std::int32_t* sums) const {
    DotCall call;
    call.activations = activations_ + row * stride_;
    call.activation_stride = stride_;
    call.rows = rows;
    call.weights = group.weights;
    call.panel_bytes = panel_bytes_of(p_.k);
    call.panels = group.panels;
    call.steps = round_up(p_.k, dot_.k_grain) / step_k;
    call.sums = sums;
    call.ahead = group.ahead;
    call.ahead_bytes = group.ahead == nullptr ? 0 : panel_bytes_of(p_.k) * group.panels;
    return call;
  }

  static std::uint32_t bit(Target target) { return 1U << static_cast<unsigned>(target); }

  template <class C>
  std::uint32_t block(const Group& group, std::int64_t row, std::int64_t rows) const {
    alignas(64) Terms<C> terms;
    gather(group, row, rows, terms);
    if (wide_) return wide_block(group, row, rows, terms);
    alignas(64) std::int32_t sums[block_rows * group_columns];
    const std::uint32_t ran = bit(dot_.run(dot_call(group, row, rows, sums)));
    narrow_block(group, row, rows, terms, sums);
    return ran;
  }

  // Sums modulo 2^32, which is what the true ones fit.
  template <class C>
  void narrow_block(const Group& group, std::int64_t row, std::int64_t rows, const Terms<C>& terms,
                    const std::int32_t* sums) const {
    alignas(64) std::int32_t columns[group_columns] = {};
    alignas(64) std::int32_t weight_zero[group_columns];
    std::int32_t row_zero[block_rows];
    std::int32_t row_term[block_rows];
    const auto low = [](std::int64_t value) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
    };
    EpilogueCall<C> call;
    call.rows = rows;
    call.columns = group.columns;
    call.sums = sums;
    if (terms.same_row_zero) {
      for (std::int64_t i = 0; i < group.columns; ++i)
        columns[i] = low(group.sums[i] * terms.row_zero[0]);
      if (terms.row_zero[0] != 0) call.column_term = columns;
    } else {
      for (std::int64_t i = 0; i < group.columns; ++i) columns[i] = low(group.sums[i]);
      for (std::int64_t i = 0; i < rows; ++i) row_zero[i] = low(terms.row_zero[i]);
      call.column_sum = columns;
      call.row_zero = row_zero;
    }
    if (layout_.adds_rows) {
      for (std::int64_t i = 0; i < group_columns; ++i) weight_zero[i] = low(terms.weight_zero[i]);
      for (std::int64_t i = 0; i < rows; ++i) row_term[i] = low(terms.row_term[i]);
      call.weight_zero = weight_zero;
      call.row_term = row_term;
    }
    call.row_scale = terms.row_scale;
    call.column_scale = terms.column_scale;
    call.bias = contains(p_.epilogue, Epilogue::bias) ? terms.bias : nullptr;
    call.relu = contains(p_.epilogue, Epilogue::relu);
    const std::int64_t element = bits(p_.output) / 8;
    if (writes<C>(p_.output)) {
      call.output = output_at(row, group.column);
      call.output_stride = o_.output->strides[0];
      if (contains(p_.epilogue, Epilogue::residual)) {
        call.residual_stride = o_.residual->strides[0];
        call.residual = static_cast<const unsigned char*>(o_.residual->data) +
                        (row * call.residual_stride + group.column) * element;
      }
      return epilogue<C>(p_.output)(call);
    }
    // Through C: what is left is to round it to the output type, or to quantize it.
    alignas(64) C values[block_rows * group_columns];
    alignas(64) C residual[block_rows * group_columns];
    if (contains(p_.epilogue, Epilogue::residual)) {
      load_residual(row, rows, group, residual);
      call.residual = residual;
      call.residual_stride = group_columns;
    }
    call.output = values;
    call.output_stride = group_columns;
    epilogue<C>(dtype_of<C>)(call);
    store(values, row, rows, group);
  }

  // The same in 64 bits, piece by piece of k and element by element.
  template <class C>
  std::uint32_t wide_block(const Group& group, std::int64_t row, std::int64_t rows,
                           const Terms<C>& terms) const {
    alignas(64) std::int32_t sums[block_rows * group_columns];
    std::int64_t total[block_rows * group_columns] = {};
    const std::uint32_t ran = for_each_piece(dot_call(group, row, rows, sums), [&] {
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < group.columns; ++c)
          total[r * group_columns + c] += sums[r * group_columns + c];
    });
    alignas(64) C values[block_rows * group_columns];
    alignas(64) C residual[block_rows * group_columns] = {};
    const bool has_residual = contains(p_.epilogue, Epilogue::residual);
    if (has_residual) load_residual(row, rows, group, residual);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < group.columns; ++c) {
        const std::int64_t at = r * group_columns + c;
        const std::int64_t sum = total[at] - terms.row_zero[r] * group.sums[c] -
                                 terms.weight_zero[c] * terms.row_term[r];
        C y =
            numerics::scaled_sum(sum, terms.row_scale[r], terms.column_scale[c],
                                 contains(p_.epilogue, Epilogue::bias) ? terms.bias + c : nullptr);
        if (has_residual) y += residual[at];
        values[at] = contains(p_.epilogue, Epilogue::relu) ? numerics::relu(y) : y;
      }
    store(values, row, rows, group);
    return ran;
  }

  [[nodiscard]] unsigned char* output_at(std::int64_t row, std::int64_t column) const {
    return static_cast<unsigned char*>(o_.output->data) +
           (row * o_.output->strides[0] + column) * (bits(p_.output) / 8);
  }

  template <class C>
  void load_residual(std::int64_t row, std::int64_t rows, const Group& group, C* to) const {
    for (std::int64_t r = 0; r < rows; ++r)
      load_floats(*o_.residual, false, (row + r) * o_.residual->strides[0] + group.column,
                  group.columns, to + r * group_columns);
  }

  template <class C>
  void store(const C* values, std::int64_t row, std::int64_t rows, const Group& group) const {
    if (is_quantized(p_.output)) return store_quantized(values, row, rows, group);
    switch (p_.output) {
      case DType::f64:
        return store_as<double>(values, row, rows, group);
      case DType::f16:
        return store_as<f16>(values, row, rows, group);
      case DType::bf16:
        return store_as<bf16>(values, row, rows, group);
      default:
        return store_as<float>(values, row, rows, group);
    }
  }
  template <class T, class C>
  void store_as(const C* values, std::int64_t row, std::int64_t rows, const Group& group) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      auto* to = reinterpret_cast<T*>(output_at(row + r, group.column));
      for (std::int64_t c = 0; c < group.columns; ++c)
        to[c] = numerics::stored<T>(values[r * group_columns + c]);
    }
  }
  template <class C>
  void store_quantized(const C* values, std::int64_t row, std::int64_t rows,
                       const Group& group) const {
    Parameters parameters;
    parameters.compute = parameters.scale_type = dtype_of<C>;
    parameters.range = storage_range(p_.output);
    parameters.scalar_scale = o_.output_scale;
    parameters.scalar_zero_point = o_.output_zero_point;
    (void)prepare_here(parameters, nullptr);  // (checked before)
    KernelCall call;
    call.input = values;
    call.input_step = group_columns;
    call.output = output_at(row, group.column);
    call.output_step = o_.output->strides[0];
    call.count = rows;
    call.length = group.columns;
    call.range = parameters.range;
    call.profile = p_.profile;
    set_parameters(call, parameters);
    const Target target = parameters.beyond_simd ? Target::scalar : vector_target_;
    kernels_of(target).find({Op::quantize, dtype_of<C>, p_.output, false})(call);
  }

  template <class C>
  [[nodiscard]] EpilogueFunction<C> epilogue(DType output) const {
    return on_target(vector_target_, [&]<Target t>() { return find_epilogue<t, C>(output); });
  }

  const LinearProblem& p_;
  const LinearOperands& o_;
  const LinearLayout& layout_;
  const DotKernel& dot_;
  Target vector_target_;
  unsigned char* workspace_;
  std::int32_t shift_;
  bool wide_;
  const unsigned char* activations_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t input_stride_ = 0;  // in elements
  KernelFunction fused_ = nullptr;
};

}  // namespace

void run_linear(const Stream& stream, const LinearProblem& p, const LinearOperands& o,
                Target dot_target, Target vector_target, int threads, void* workspace) {
  const std::int64_t rows = o.input->shape[0];
  if (rows == 0 || p.n == 0) return;
  const FpEnvironment environment;
  const LinearLayout layout(p, dot_target, threads);
  const Run run(p, o, layout, vector_target, workspace);
  const auto parts_for = [&](std::int64_t most, double products) {
    const double wanted = products / static_cast<double>(products_per_thread);
    return static_cast<int>(
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(wanted, 1e6)), 1,
                                 std::min<std::int64_t>({most, threads, stream.threads()})));
  };
  const double products =
      static_cast<double>(rows) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (run.prepares_rows()) {
    const int parts = parts_for(rows, 8.0 * static_cast<double>(rows) * static_cast<double>(p.k));
    parallel(stream, parts,
             [&](int part) { run.prepare_rows(rows * part / parts, rows * (part + 1) / parts); });
  }
  const std::int64_t panels = panels_of(p.n);
  const bool by_rows = panels < 2 * std::int64_t{stream.threads()} && rows > panels;
  const int parts = parts_for(by_rows ? rows : panels, products);
  parallel(stream, parts, [&](int part) {
    const auto share = [&](std::int64_t all, int i) { return all * i / parts; };
    const std::uint32_t ran =
        by_rows ? run.multiply(part, 0, panels, share(rows, part), share(rows, part + 1))
                : run.multiply(part, share(panels, part), share(panels, part + 1), 0, rows);
    if (stream.options().trace != nullptr)
      stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
  });
}

}  // namespace octavo::detail
