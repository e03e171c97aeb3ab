// Embeddings on the CPU: rows are copied, converted, or dequantized by the kernels of dequantize.
#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "numerics/affine.hpp"
#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/embedding/implementation.hpp"
#include "ops/runs/cpu/convert.hpp"

namespace octavo::detail {
namespace {

// Below so many elements per thread, waking another one costs more than it saves.
constexpr std::int64_t elements_per_part = std::int64_t{1} << 16;
// Groups of a row that are dequantized in one call.
constexpr std::int64_t groups_at_once = 256;

std::int64_t size_of(DType type) { return bits(type) / 8; }

void load_scales(const TensorRef& scales, std::int64_t first, std::int64_t n, float* to) {
  numerics::with_type(numerics::FloatTypes(), scales.dtype, [&]<DType type>() {
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = static_cast<float>(numerics::Type<type>::read(scales.data, first + i));
  });
}

class CpuEmbedding final : public EmbeddingImpl {
 public:
  CpuEmbedding(const EmbeddingDescriptor& d, KernelFunction dequantize, ConvertFunction convert)
      : EmbeddingImpl(d),
        dequantize_(dequantize),
        convert_(convert) {}

  [[nodiscard]] Status check_values(const EmbeddingArgs& args) const override {
    const FpEnvironment environment;  // (f64 may be rounded)
    const auto* indices = static_cast<const std::int32_t*>(args.indices.data);
    for (std::int64_t i = 0; i < args.output.shape[0]; ++i) {
      if (indices[i] < 0 || indices[i] >= problem.rows)
        return wrong_index(problem.rows, indices[i], i);
      if (is_float(problem.table)) continue;
      if (Status s = check_row(args, indices[i]); !s) return s;
    }
    return {};
  }

  [[nodiscard]] Status run(const Stream& stream, const EmbeddingArgs& args) const override {
    if (Status s = check_values(args); !s) return s;
    const std::int64_t count = args.output.shape[0];
    if (count == 0 || problem.columns == 0) return {};
    const auto* indices = static_cast<const std::int32_t*>(args.indices.data);
    const int parts = parts_of(amount(count, problem.columns), elements_per_part,
                               std::min<std::int64_t>(count, stream.threads()));
    parallel(stream, parts, [&](int part) {
      std::uint32_t ran = 0;
      for (std::int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i)
        ran |= is_float(problem.table) ? convert(args, indices[i], i)
                                       : dequantize(args, indices[i], i);
      if (stream.options().trace != nullptr)
        stream.options().trace->fetch_or(ran, std::memory_order_relaxed);
    });
    return {};
  }

 private:
  [[nodiscard]] Status check_row(const EmbeddingArgs& args, std::int64_t row) const {
    const IntRange range = storage_range(problem.table);
    for (std::int64_t at = row * groups(); at < (row + 1) * groups(); ++at) {
      float scale = 0;
      load_scales(args.scales, at, 1, &scale);
      if (!numerics::is_finite(scale)) return wrong_scale(scale, at);
      if (!problem.zero_points) continue;
      const std::int32_t zero = static_cast<const std::int32_t*>(args.zero_points.data)[at];
      if (zero < range.min || zero > range.max) return wrong_zero_point(problem.table, zero, at);
    }
    return {};
  }

  std::uint32_t convert(const EmbeddingArgs& args, std::int64_t row, std::int64_t to) const {
    const std::int64_t from = row * args.table.strides[0];
    const std::int64_t at = to * args.output.strides[0];
    const auto* input =
        static_cast<const std::byte*>(args.table.data) + from * size_of(problem.table);
    auto* output = static_cast<std::byte*>(args.output.data) + at * size_of(problem.output);
    if (problem.table == problem.output) {
      std::memcpy(output, input,
                  static_cast<std::size_t>(problem.columns * size_of(problem.table)));
    } else {
      convert_(input, problem.columns, output);
    }
    return target_bit();
  }

  std::uint32_t dequantize(const EmbeddingArgs& args, std::int64_t row, std::int64_t to) const {
    std::uint32_t ran = 0;
    const std::int64_t length = problem.group_size == 0 ? problem.columns : problem.group_size;
    for (std::int64_t g = 0; g < groups(); g += groups_at_once) {
      const std::int64_t n = std::min(groups_at_once, groups() - g);
      float scales[groups_at_once];
      load_scales(args.scales, row * groups() + g, n, scales);
      KernelCall call;
      call.input = args.table.data;
      call.input_at = row * args.table.strides[0] + g * length;
      call.output = args.output.data;
      call.output_at = to * args.output.strides[0] + g * length;
      call.input_step = call.output_step = length;
      call.count = n;
      call.length = length;
      call.scale = scales;
      call.param_step = 1;
      if (problem.zero_points) {
        call.zero_point =
            static_cast<const std::int32_t*>(args.zero_points.data) + row * groups() + g;
        call.same_zero_points = false;
      }
      ran |= 1U << static_cast<unsigned>(dequantize_(call));
    }
    return ran;
  }

  [[nodiscard]] std::uint32_t target_bit() const { return 1U << static_cast<unsigned>(sku.target); }

  const KernelFunction dequantize_;  // of quantized tables
  const ConvertFunction convert_;    // of floats of another type
};

template <Target target>
struct Find {
  static Found<std::shared_ptr<EmbeddingImpl>> find(const EmbeddingDescriptor& d,
                                                    const Allowed& /*allowed*/) {
    KernelFunction kernel = nullptr;
    ConvertFunction convert = nullptr;
    if (is_float(d.table)) {
      convert = find_convert<target>(d.table, d.output);
    } else {
      kernel = find_kernel<target>({Op::dequantize, d.output, d.table, false});
      if (kernel == nullptr) return {nullptr, "no kernel for these types"};
    }
    return {std::make_shared<CpuEmbedding>(d, kernel, convert)};
  }
};

constexpr auto entries =
    entries_of<EmbeddingDescriptor, std::shared_ptr<EmbeddingImpl>, Find>(VectorTargets());

}  // namespace

std::span<const EmbeddingEntry> cpu_embedding() { return entries; }

}  // namespace octavo::detail
