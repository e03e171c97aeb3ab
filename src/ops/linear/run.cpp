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

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "numerics/linear.hpp"
#include "ops/linear/epilogue.hpp"
#include "ops/linear/grid.hpp"
#include "ops/linear/pack.hpp"
#include "ops/linear/rows.hpp"
#include "ops/linear/store.hpp"
#include "simd/on_target.hpp"

namespace octavo::detail {
namespace {

// Beyond 32 bits, k is cut in pieces whose sums fit.
constexpr std::int64_t wide_piece = std::int64_t{1} << 15;
// Rows at a time where sums take 64 bits, so that the stack holds them.
constexpr std::int64_t wide_rows = 16;

template <class C>  // what is computed in
class Run {
 public:
  Run(const LinearProblem& p, const LinearOperands& o, const LinearLayout& layout,
      const Rows& activations, Target vector_target, void* workspace)
      : p_(p),
        o_(o),
        layout_(layout),
        dot_(*layout.dot),
        activations_(activations),
        vector_target_(vector_target),
        workspace_(static_cast<unsigned char*>(workspace)),
        wide_(is_wide(p)),
        raw_(p.output == DType::s32),
        has_bias_(contains(p.epilogue, Epilogue::bias)),
        has_residual_(contains(p.epilogue, Epilogue::residual)),
        has_relu_(contains(p.epilogue, Epilogue::relu)),
        store_(p, o, vector_target) {}

  // Returns the bits of the targets that ran.
  std::uint32_t multiply(int part, std::int64_t first_panel, std::int64_t last_panel,
                         std::int64_t first_row, std::int64_t last_row) const {
    std::uint32_t ran = 0;
    const std::int64_t rows = p_.packed_weight ? std::min(dot_.resident_rows, last_row - first_row)
                                               : last_row - first_row;
    for (std::int64_t row = first_row; row < last_row; row += rows)
      ran |= multiply_resident(part, first_panel, last_panel, row, std::min(row + rows, last_row));
    if (dot_.end != nullptr) dot_.end();
    return ran;
  }

 private:
  std::uint32_t multiply_resident(int part, std::int64_t first_panel, std::int64_t last_panel,
                                  std::int64_t first_row, std::int64_t last_row) const {
    std::uint32_t ran = 0;
    const std::int64_t step = wide_ ? std::min(dot_.rows, wide_rows) : dot_.rows;
    alignas(64) Columns columns;
    for (std::int64_t panel = first_panel; panel < last_panel; panel += group_panels) {
      const auto panels =
          static_cast<int>(std::min<std::int64_t>(group_panels, last_panel - panel));
      Group group = prepare_group(part, panel, panels);
      if (p_.packed_weight && panel + panels < last_panel)
        group.ahead = group.weights + panels * panel_bytes_of(p_.k);
      gather(group, columns);
      for (std::int64_t row = first_row; row < last_row; row += step) {
        const std::int64_t rows = std::min(step, last_row - row);
        ran |=
            wide_ ? wide_block(group, columns, row, rows) : narrow_block(group, columns, row, rows);
      }
    }
    return ran;
  }

  // Panels that are multiplied together.
  struct Group {
    std::int64_t column = 0;
    std::int64_t columns = 0;
    int panels = 0;
    const std::int8_t* weights = nullptr;
    const std::int64_t* sums = nullptr;  // of columns, if the layout has them
    const std::int8_t* ahead = nullptr;  // weights of the next group
  };

  Group prepare_group(int part, std::int64_t panel, int panels) const {
    Group group;
    group.column = panel * panel_columns;
    group.columns = std::min(p_.n - group.column, panels * panel_columns);
    group.panels = panels;
    if (p_.packed_weight) {
      const PackedWeight::Impl& packed = *o_.weight->packed.impl();
      group.weights = packed.data.get() + panel * panel_bytes_of(p_.k);
      group.sums = packed.sums.data() + group.column;
      return group;
    }
    unsigned char* own = workspace_ + layout_.packs + part * layout_.pack_bytes;
    auto* weights = reinterpret_cast<std::int8_t*>(own);
    const TensorRef& w = o_.weight->tensor;
    pack_panels({w.data, w.strides[0], p_.n, p_.k, p_.weight == DType::u8}, panel, panel + panels,
                weights);
    group.weights = weights;
    if (layout_.adds_columns) {
      auto* sums = reinterpret_cast<std::int64_t*>(own + layout_.pack_sums);
      add_columns(group, sums);
      group.sums = sums;
    }
    return group;
  }

  // The sums of columns that are packed run by run: a product by ones.
  void add_columns(const Group& group, std::int64_t* sums) const {
    alignas(64) std::int32_t found[group_columns];
    std::fill_n(sums, group.panels * panel_columns, 0);
    DotCall call = dot_call(group, 0, 1, found);
    call.activations = activations_.ones();
    for_each_piece(call, [&] {
      for (std::int64_t c = 0; c < group.columns; ++c) sums[c] += found[c];
    });
  }

  // Runs the dot product piece by piece of k, each so short that its sums are exact in 32 bits.
  template <class F>
  std::uint32_t for_each_piece(DotCall call, F&& add) const {
    std::uint32_t ran = 0;
    const DotCall all = call;
    for (std::int64_t done = 0; done < all.steps; done += wide_piece / step_k) {
      call.steps = std::min(all.steps - done, wide_piece / step_k);
      call.activations =
          static_cast<const unsigned char*>(all.activations) + done * step_k * bytes_of(dot_.form);
      call.weights = all.weights + done * step_k * panel_columns;
      ran |= bit(dot_.run(call));
      add();
    }
    return ran;
  }

  static std::int32_t low(std::int64_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
  }

  // What an epilogue needs to know of the columns of a group; past the last one it reads zeros.
  struct Columns {
    C scale[group_columns];
    C bias[group_columns];
    std::int32_t sum[group_columns];  // of weights, modulo 2^32
    std::int32_t
        term[group_columns];  // what zero points take off, if they are the same in all rows
    std::int32_t zero[group_columns];
  };

  void gather(const Group& group, Columns& c) const {
    const std::int64_t n = group.columns;
    c = {};
    if (!raw_)
      load_floats(*o_.weight_scales, is_single(*o_.weight_scales), group.column, n, c.scale);
    if (has_bias_) load_floats(*o_.bias, false, group.column, n, c.bias);
    const std::int64_t row_zero = activations_.one_zero() ? activations_.zero(0) : 0;
    for (std::int64_t i = 0; layout_.adds_columns && i < n; ++i) {
      c.sum[i] = low(group.sums[i]);
      c.term[i] = low(group.sums[i] * row_zero);
    }
    if (!layout_.adds_rows) return;
    const std::int32_t shift = p_.weight == DType::u8 ? -128 : 0;  // packed as s8
    for (std::int64_t i = 0; i < n; ++i) {
      c.zero[i] = shift;
      if (!p_.weight_zero_points) continue;
      const auto* values = static_cast<const std::int32_t*>(o_.weight_zero_points->data);
      c.zero[i] += values[is_single(*o_.weight_zero_points) ? 0 : group.column + i];
    }
  }

  // sum a - k * za
  [[nodiscard]] std::int64_t row_term(std::int64_t row) const {
    return layout_.adds_rows ? activations_.sum(row) - p_.k * activations_.zero(row) : 0;
  }

  [[nodiscard]] DotCall dot_call(const Group& group, std::int64_t row, std::int64_t rows,
                                 std::int32_t* sums) const {
    DotCall call;
    call.activations = activations_.at(row);
    call.activation_stride = activations_.stride();
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

  // Sums modulo 2^32, which is what the true ones fit.
  std::uint32_t narrow_block(const Group& group, const Columns& columns, std::int64_t row,
                             std::int64_t rows) const {
    alignas(64) std::int32_t sums[block_rows * group_columns];
    C row_scale[block_rows];
    std::int32_t row_zero[block_rows];
    std::int32_t row_terms[block_rows];
    std::uint32_t ran = 0;
    if (p_.k == 0) {  // (of no bytes, pointers may be null)
      std::fill_n(sums, rows * group_columns, 0);
    } else {
      ran = bit(dot_.run(dot_call(group, row, rows, sums)));
    }
    EpilogueCall<C> call;
    call.rows = rows;
    call.columns = group.columns;
    call.sums = sums;
    if (!activations_.one_zero()) {
      for (std::int64_t i = 0; i < rows; ++i) row_zero[i] = low(activations_.zero(row + i));
      call.column_sum = columns.sum;
      call.row_zero = row_zero;
    } else if (activations_.zero(0) != 0) {
      call.column_term = columns.term;
    }
    if (layout_.adds_rows) {
      for (std::int64_t i = 0; i < rows; ++i) row_terms[i] = low(row_term(row + i));
      call.weight_zero = columns.zero;
      call.row_term = row_terms;
    }
    if (!raw_) activations_.load_scales(row, rows, row_scale);
    call.row_scale = row_scale;
    call.column_scale = columns.scale;
    call.bias = has_bias_ ? columns.bias : nullptr;
    call.relu = has_relu_;
    if (writes<C>(p_.output)) {
      call.output = store_.at(row, group.column);
      call.output_stride = o_.output->strides[0];
      if (has_residual_) {
        call.residual_stride = o_.residual->strides[0];
        call.residual = static_cast<const unsigned char*>(o_.residual->data) +
                        (row * call.residual_stride + group.column) * (bits(p_.output) / 8);
      }
      epilogue(p_.output)(call);
      return ran;
    }
    // Through C: what is left is to round it to the output type, or to quantize it.
    alignas(64) C values[block_rows * group_columns];
    if (has_residual_) {
      load_residual(row, rows, group, values);
      call.residual = values;
      call.residual_stride = group_columns;
    }
    call.output = values;
    call.output_stride = group_columns;
    epilogue(dtype_of<C>)(call);
    store_(values, row, rows, group.column, group.columns);
    return ran;
  }

  // The same in 64 bits, piece by piece of k and element by element.
  std::uint32_t wide_block(const Group& group, const Columns& columns, std::int64_t row,
                           std::int64_t rows) const {
    alignas(64) std::int32_t sums[wide_rows * group_columns];
    std::int64_t total[wide_rows * group_columns] = {};
    const std::uint32_t ran = for_each_piece(dot_call(group, row, rows, sums), [&] {
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < group.columns; ++c)
          total[r * group_columns + c] += sums[r * group_columns + c];
    });
    C row_scale[wide_rows];
    alignas(64) C values[wide_rows * group_columns];
    alignas(64) C residual[wide_rows * group_columns] = {};
    activations_.load_scales(row, rows, row_scale);
    if (has_residual_) load_residual(row, rows, group, residual);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t zero = activations_.zero(row + r);
      const std::int64_t term = row_term(row + r);
      for (std::int64_t c = 0; c < group.columns; ++c) {
        const std::int64_t at = r * group_columns + c;
        const std::int64_t sum =
            total[at] - (layout_.adds_columns ? zero * group.sums[c] : 0) - columns.zero[c] * term;
        C y = numerics::scaled_sum(sum, row_scale[r], columns.scale[c],
                                   has_bias_ ? columns.bias + c : nullptr);
        if (has_residual_) y += residual[at];
        values[at] = has_relu_ ? numerics::relu(y) : y;
      }
    }
    store_(values, row, rows, group.column, group.columns);
    return ran;
  }

  void load_residual(std::int64_t row, std::int64_t rows, const Group& group, C* to) const {
    for (std::int64_t r = 0; r < rows; ++r)
      load_floats(*o_.residual, false, (row + r) * o_.residual->strides[0] + group.column,
                  group.columns, to + r * group_columns);
  }

  [[nodiscard]] EpilogueFunction<C> epilogue(DType output) const {
    return on_target(vector_target_, [&]<Target t>() { return find_epilogue<t, C>(output); });
  }

  const LinearProblem& p_;
  const LinearOperands& o_;
  const LinearLayout& layout_;
  const DotKernel& dot_;
  const Rows& activations_;
  Target vector_target_;
  unsigned char* workspace_;
  bool wide_;
  bool raw_;
  bool has_bias_;
  bool has_residual_;
  bool has_relu_;
  Store<C> store_;
};

}  // namespace

void run_linear(const Stream& stream, const LinearProblem& p, const LinearOperands& o,
                Target dot_target, Target vector_target, int threads, void* workspace) {
  const std::int64_t rows = o.input->shape[0];
  if (rows == 0 || p.n == 0) return;
  const FpEnvironment environment;
  const LinearLayout layout(p, dot_target, threads);
  const Rows activations(p, o, layout, vector_target, workspace);
  // (Only where weights are packed run by run has each thread a place in the workspace.)
  const int usable = p.packed_weight ? stream.threads() : std::min(threads, stream.threads());
  const auto parts_for = [&](double products) {
    const double wanted = products / static_cast<double>(layout.dot->products_per_thread);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(wanted, 1e6)), 1, usable);
  };
  const double elements = static_cast<double>(rows) * static_cast<double>(p.k);
  if (activations.prepares()) {
    const auto parts = static_cast<int>(std::min(rows, parts_for(16.0 * elements)));
    parallel(stream, parts, [&](int part) {
      activations.prepare(rows * part / parts, rows * (part + 1) / parts);
    });
  }
  const std::int64_t panels = panels_of(p.n);
  const Grid grid =
      share_out(rows, panels, parts_for(elements * static_cast<double>(p.n)), p.packed_weight);
  const auto multiply = [&](const auto& run) {
    parallel(stream, static_cast<int>(grid.rows * grid.panels), [&](int part) {
      const std::int64_t i = part / grid.panels;
      const std::int64_t j = part % grid.panels;
      const std::uint32_t ran =
          run.multiply(part, panels * j / grid.panels, panels * (j + 1) / grid.panels,
                       rows * i / grid.rows, rows * (i + 1) / grid.rows);
      if (stream.options().trace != nullptr)
        stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
    });
  };
  if (compute_type(p) == DType::f64) {
    multiply(Run<double>(p, o, layout, activations, vector_target, workspace));
  } else {
    multiply(Run<float>(p, o, layout, activations, vector_target, workspace));
  }
}

}  // namespace octavo::detail
