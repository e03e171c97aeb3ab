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
#include "ops/elementwise/parameters.hpp"
#include "ops/linear/epilogue.hpp"
#include "ops/linear/pack.hpp"
#include "ops/linear/rows.hpp"
#include "simd/on_target.hpp"

namespace octavo::detail {
namespace {

// Beyond 32 bits, k is cut in pieces whose sums fit.
constexpr std::int64_t wide_piece = std::int64_t{1} << 15;
// Below this many products per thread, waking another one costs more than it saves.
constexpr std::int64_t products_per_thread = std::int64_t{1} << 20;

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
        wide_(is_wide(p)) {}

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
      activations_.load_scales(row, rows, t.row_scale);
      load_floats(*o_.weight_scales, is_single(*o_.weight_scales), group.column, group.columns,
                  t.column_scale);
      if (contains(p_.epilogue, Epilogue::bias))
        load_floats(*o_.bias, false, group.column, group.columns, t.bias);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      t.row_zero[i] = activations_.zero(row + i);
      t.same_row_zero = t.same_row_zero && t.row_zero[i] == t.row_zero[0];
      t.row_term[i] = layout_.adds_rows ? activations_.sum(row + i) - p_.k * t.row_zero[i] : 0;
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
  const Rows& activations_;
  Target vector_target_;
  unsigned char* workspace_;
  bool wide_;
};

}  // namespace

void run_linear(const Stream& stream, const LinearProblem& p, const LinearOperands& o,
                Target dot_target, Target vector_target, int threads, void* workspace) {
  const std::int64_t rows = o.input->shape[0];
  if (rows == 0 || p.n == 0) return;
  const FpEnvironment environment;
  const LinearLayout layout(p, dot_target, threads);
  const Rows activations(p, o, layout, vector_target, workspace);
  const Run run(p, o, layout, activations, vector_target, workspace);
  const auto parts_for = [&](std::int64_t most, double products) {
    const double wanted = products / static_cast<double>(products_per_thread);
    return static_cast<int>(
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(wanted, 1e6)), 1,
                                 std::min<std::int64_t>({most, threads, stream.threads()})));
  };
  const double products =
      static_cast<double>(rows) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (activations.prepares()) {
    const int parts = parts_for(rows, 8.0 * static_cast<double>(rows) * static_cast<double>(p.k));
    parallel(stream, parts, [&](int part) {
      activations.prepare(rows * part / parts, rows * (part + 1) / parts);
    });
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
