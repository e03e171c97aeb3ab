// Embeddings on a GPU: the values are checked in front of the run, on the stream.
#include "ops/embedding/implementation.hpp"

#include <algorithm>
#include <bit>

#include "core/check.hpp"
#include "cuda/launch.hpp"
#include "ops/embedding/cuda/embedding_args.hpp"

namespace octavo::cuda {
extern const Ptx checks_ptx;
extern const Ptx embedding_kernels_ptx;
}  // namespace octavo::cuda

namespace octavo::detail {
namespace {

using cuda::embedding_kernels_ptx;
using cuda::Kernel;
using cuda::Refusal;

// Of a table's and an output's type: four columns at once, and one.
struct Gather {
  DType table;
  DType output;
  Kernel quads;
  Kernel single;
};
#define OCTAVO_GATHER(table, output)                                             \
  Gather {                                                                       \
    DType::table, DType::output,                                                 \
        Kernel(embedding_kernels_ptx, "embedding_" #table "_" #output "_quads"), \
        Kernel(embedding_kernels_ptx, "embedding_" #table "_" #output "_single") \
  }
#define OCTAVO_GATHER_FROM(table) \
  OCTAVO_GATHER(table, f32), OCTAVO_GATHER(table, f16), OCTAVO_GATHER(table, bf16)
constexpr Gather gathers[] = {OCTAVO_GATHER_FROM(s8),   OCTAVO_GATHER_FROM(u8),
                              OCTAVO_GATHER_FROM(s4),   OCTAVO_GATHER_FROM(u4),
                              OCTAVO_GATHER(f32, f16),  OCTAVO_GATHER(f32, bf16),
                              OCTAVO_GATHER(f16, f32),  OCTAVO_GATHER(f16, bf16),
                              OCTAVO_GATHER(bf16, f32), OCTAVO_GATHER(bf16, f16)};
#undef OCTAVO_GATHER_FROM
#undef OCTAVO_GATHER
constexpr Kernel copy_16{embedding_kernels_ptx, "embedding_copy_16"};
constexpr Kernel copy_4{embedding_kernels_ptx, "embedding_copy_4"};
constexpr Kernel copy_2{embedding_kernels_ptx, "embedding_copy_2"};
constexpr Kernel fold_kernel{cuda::checks_ptx, "fold_refusals"};
constexpr Kernel check_kernel{embedding_kernels_ptx, "embedding_check"};

constexpr std::int64_t max_blocks = 65536;
// Up to so many values one block checks, which needs no launch before it.
constexpr std::int64_t one_block = 16384;

cuda::Size blocks_for(std::int64_t items) {
  constexpr std::int64_t threads = cuda::embedding_threads;
  return {static_cast<unsigned>(std::min((items + threads - 1) / threads, max_blocks))};
}

Error word_index(const Refusal& r) {
  return wrong_index(static_cast<std::int64_t>(r.detail), static_cast<std::int32_t>(r.bits),
                     r.index());
}
Error word_scale(const Refusal& r) {
  return wrong_scale(std::bit_cast<float>(static_cast<std::uint32_t>(r.bits)), r.index());
}
Error word_zero_point(const Refusal& r) {
  return wrong_zero_point(static_cast<DType>(r.detail), static_cast<std::int32_t>(r.bits),
                          r.index());
}

class CudaEmbedding final : public EmbeddingImpl {
 public:
  explicit CudaEmbedding(const EmbeddingDescriptor& d) : EmbeddingImpl(d) {}

  [[nodiscard]] Status check_values(const EmbeddingArgs& /*args*/) const override { return {}; }

  [[nodiscard]] Status run(const Stream& stream, const EmbeddingArgs& args) const override {
    cuda::CudaStream& on = cuda::cuda_of(stream);
    const cuda::Enqueue enqueue(on);
    if (!enqueue.status()) return enqueue.status();
    cuda::EmbeddingKernelArgs a;
    a.indices = static_cast<const std::int32_t*>(args.indices.data);
    a.table = args.table.data;
    a.scales = args.scales.data;
    if (problem.zero_points)
      a.zero_points = static_cast<const std::int32_t*>(args.zero_points.data);
    a.output = args.output.data;
    a.count = args.output.shape[0];
    a.rows = problem.rows;
    a.columns = problem.columns;
    a.groups = groups();
    a.group_size = problem.group_size;
    a.table_step = args.table.strides[0];
    a.output_step = args.output.strides[0];
    a.element_bytes = bits(problem.table) / 8;
    a.quantized = !is_float(problem.table);
    a.scale_type = args.scales.dtype;
    if (a.count == 0) return {};
    if (Status s = enqueue_check(on, a); !s || a.columns == 0) return s;
    a.latest = on.latest();
    const auto [kernel, units] = gather(a);
    return cuda::launch(on, *kernel, blocks_for(a.count * units), {cuda::embedding_threads}, 0, a);
  }

 private:
  [[nodiscard]] Status enqueue_check(cuda::CudaStream& on,
                                     const cuda::EmbeddingKernelArgs& run) const {
    cuda::EmbeddingCheckArgs a;
    a.run = run;
    a.table_type = static_cast<std::uint64_t>(problem.table);
    const IntRange range = is_float(problem.table) ? IntRange() : storage_range(problem.table);
    a.low = range.min;
    a.high = range.max;
    a.word_index = cuda::word_by(word_index);
    a.word_scale = cuda::word_by(word_scale);
    a.word_zero_point = cuda::word_by(word_zero_point);
    a.state = on.state();
    const std::int64_t values = run.count * groups();
    cuda::Size blocks;
    if (values > one_block) {
      if (Status s = cuda::launch(on, fold_kernel, {}, {}, 0, cuda::FoldArgs{on.state()}); !s)
        return s;
      blocks = blocks_for(values);
    }
    return cuda::launch(on, check_kernel, blocks, {cuda::embedding_threads}, 0, a);
  }

  struct Chosen {
    const Kernel* kernel;
    std::int64_t units;  // of a row, each a thread's
  };
  [[nodiscard]] Chosen gather(const cuda::EmbeddingKernelArgs& a) const {
    // Whether all rows consist of units of so many bytes of the table and of the output.
    const auto of_units = [&](std::int64_t table_bytes, std::int64_t output_bytes) {
      const auto is = [&](const void* data, std::int64_t rows, std::int64_t step, DType type,
                          std::int64_t unit) {
        return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(unit) == 0 &&
               (rows == 1 || step * bits(type) % (8 * unit) == 0) &&
               a.columns * bits(type) % (8 * unit) == 0;
      };
      return is(a.table, a.rows, a.table_step, problem.table, table_bytes) &&
             is(a.output, a.count, a.output_step, problem.output, output_bytes);
    };
    if (problem.table == problem.output) {
      const std::int64_t row = a.columns * bits(problem.table) / 8;
      if (of_units(16, 16)) return {&copy_16, row / 16};
      if (of_units(4, 4)) return {&copy_4, row / 4};
      return {&copy_2, row / 2};
    }
    const auto* found = std::find_if(std::begin(gathers), std::end(gathers), [&](const Gather& g) {
      return g.table == problem.table && g.output == problem.output;
    });
    if (of_units(bits(problem.table) / 2, bits(problem.output) / 2))
      return {&found->quads, a.columns / 4};
    return {&found->single, a.columns};
  }
};

Found<std::shared_ptr<EmbeddingImpl>> find(const EmbeddingDescriptor& d,
                                           const Allowed& /*allowed*/) {
  return {std::make_shared<CudaEmbedding>(d)};
}

constexpr EmbeddingEntry entries[] = {{{Backend::cuda, Target::sm80}, find}};

}  // namespace

std::span<const EmbeddingEntry> cuda_embedding() { return entries; }

}  // namespace octavo::detail
