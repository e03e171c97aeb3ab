// The elementwise plans on a CUDA device: tensors become rows, and one kernel does them all.
#include "ops/elementwise/cuda/found.hpp"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <string>

#include "core/fp_environment.hpp"
#include "core/parts.hpp"
#include "cuda/launch.hpp"
#include "numerics/affine.hpp"
#include "numerics/types.hpp"
#include "ops/elementwise/cuda/elementwise_args.hpp"
#include "ops/runs/cuda/scales.hpp"
#include "ops/runs/iteration.hpp"

namespace octavo::cuda {
extern const Ptx elementwise_f32_ptx;
extern const Ptx elementwise_f64_ptx;
extern const Ptx elementwise_f16_ptx;
extern const Ptx elementwise_bf16_ptx;
}  // namespace octavo::cuda

namespace octavo::detail {
namespace {

using cuda::elementwise_threads;
using cuda::elementwise_units;

// That one may have at a time, of every device.
constexpr std::int64_t threads_of_multiprocessor = 1536;

const cuda::Ptx& ptx_of(DType element) {
  switch (element) {
    case DType::f64:
      return cuda::elementwise_f64_ptx;
    case DType::f16:
      return cuda::elementwise_f16_ptx;
    case DType::bf16:
      return cuda::elementwise_bf16_ptx;
    default:
      return cuda::elementwise_f32_ptx;
  }
}

class CudaElementwise final : public ElementwiseImpl {
 public:
  explicit CudaElementwise(const SlicedProblem& p) : ElementwiseImpl(p) {
    if (p.scales != p.compute())
      workspace_bytes = static_cast<std::size_t>(bytes_for(p.compute(), p.slices));
    const bool formats = p.op == Op::quantize || p.op == Op::dequantize;
    for (const bool vectors : {false, true})
      for (const bool per_lane : {false, true})
        entry(vectors, per_lane) =
            fmt::format("{}_{}{}_{}_{}", name(p.op), name(p.element),
                        formats ? fmt::format("_{}", bits(p.integer)) : "",
                        vectors ? "vectors" : "singles", per_lane ? "lane" : "uniform");
    if (p.numel > 0) plain_ = plain_iteration(p);
  }

  [[nodiscard]] Status check_values(const ElementwiseArgs& /*args*/) const override {
    return {};  // (what is queued may yet write them)
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace, const ElementwiseArgs& args,
                           bool plain) const override {
    cuda::CudaStream& on = cuda::cuda_of(stream);
    const cuda::Enqueue together(on);
    if (!together.status()) return together.status();
    return problem.compute() == DType::f64 ? run_as<double>(on, workspace, args, plain)
                                           : run_as<float>(on, workspace, args, plain);
  }

  /// With scales that are right.
  template <class C>
  [[nodiscard]] Status run_found(cuda::CudaStream& stream, const ElementwiseArgs& args,
                                 bool plain) const {
    cuda::ElementwiseKernelArgs<C> kernel;
    kernel.scales = args.scales->data;
    if (has_zero_points(args))
      kernel.zero_points = static_cast<const std::int32_t*>(args.zero_points->data);
    return launch_tensors(stream, kernel, args, plain);
  }

 private:
  template <class C>
  [[nodiscard]] Status run_as(cuda::CudaStream& stream, void* workspace,
                              const ElementwiseArgs& args, bool plain) const {
    cuda::ElementwiseKernelArgs<C> kernel;
    const ScaleRule rule{problem.compute(), problem.has_range};
    if (args.scales == nullptr) {
      const FpEnvironment environment;
      kernel.scale = static_cast<C>(args.scale);
      kernel.zero_point = args.zero_point;
      const bool good =
          rule.divides ? numerics::is_divisor(kernel.scale) : numerics::is_finite(kernel.scale);
      if (!good) return stream.refuse(cuda::refused_scale(rule, args.scale));
    } else if (problem.slices > 0) {
      cuda::Check check =
          cuda::check_of_scales(rule, problem.scales, args.scales->data, problem.slices);
      kernel.scales = args.scales->data;
      if (workspace != nullptr) kernel.scales = check.converted = workspace;
      if (has_zero_points(args))
        kernel.zero_points = static_cast<const std::int32_t*>(args.zero_points->data);
      if (Status s = stream.check_values({check}); !s) return s;
      kernel.refusal = stream.latest();
    }
    return launch_tensors(stream, kernel, args, plain);
  }

  template <class C>
  [[nodiscard]] Status launch_tensors(cuda::CudaStream& stream,
                                      cuda::ElementwiseKernelArgs<C>& kernel,
                                      const ElementwiseArgs& args, bool plain) const {
    if (problem.numel == 0) return {};
    set_tensors(kernel, args);
    Iteration iteration = plain ? plain_ : iterate(problem, args);
    if (iteration.odd_nibbles) iteration = rows_of_groups(kernel, args);
    return launch_rows(stream, kernel, iteration);
  }

  template <class C>
  void set_tensors(cuda::ElementwiseKernelArgs<C>& kernel, const ElementwiseArgs& args) const {
    kernel.input = args.input == nullptr ? nullptr : args.input->data;
    kernel.grad = args.grad == nullptr ? nullptr : args.grad->data;
    kernel.output = args.output->data;
    kernel.range = problem.range;
    kernel.profile = problem.profile;
    const bool is_signed = problem.integer != DType::u8 && problem.integer != DType::u4;
    kernel.sign = is_signed ? 1 << (bits(problem.integer) - 1) : 0;
  }

  // Whole rows, in which a kernel finds the groups.
  template <class C>
  Iteration rows_of_groups(cuda::ElementwiseKernelArgs<C>& kernel,
                           const ElementwiseArgs& args) const {
    kernel.group_size = problem.group_size;
    kernel.groups = problem.shape[1] / problem.group_size;
    ElementwiseProblem rows = problem;
    rows.layout = Layout::per_token;
    Iteration iteration = iterate(rows, args);
    iteration.per_lane = iteration.odd_nibbles = true;
    return iteration;
  }

  // Lanes of a unit of vectors: 16 bytes of floats.
  [[nodiscard]] std::int64_t vector_lanes() const { return 128 / bits(problem.element); }

  // Whether all units lie where a vector may: elements of rows are consecutive, and rows begin at
  // multiples of a unit.
  template <class C>
  [[nodiscard]] bool has_vectors(const cuda::ElementwiseKernelArgs<C>& kernel,
                                 const Iteration& it) const {
    const std::int64_t lanes = vector_lanes();
    if (it.odd_nibbles || it.length() < lanes) return false;
    const auto fits = [&](const void* data, DType type, Operand o) {
      if (data == nullptr) return true;
      const auto unit = static_cast<std::uintptr_t>(bytes_for(type, lanes));
      if (it.inner().stride[o] != 1 || reinterpret_cast<std::uintptr_t>(data) % unit != 0)
        return false;
      for (int d = 0; d + 1 < it.rank; ++d)
        if (it.dims[static_cast<std::size_t>(d)].stride[o] % lanes != 0) return false;
      return true;
    };
    return fits(kernel.input, problem.input_type(), op_input) &&
           fits(kernel.grad, problem.element, op_grad) &&
           fits(kernel.output, problem.output_type(), op_output);
  }

  template <class C>
  [[nodiscard]] bool has_aligned_parameters(const cuda::ElementwiseKernelArgs<C>& kernel,
                                            const Iteration& it) const {
    for (int d = 0; d + 1 < it.rank; ++d)
      if (it.dims[static_cast<std::size_t>(d)].stride[op_params] % vector_lanes() != 0)
        return false;
    return reinterpret_cast<std::uintptr_t>(kernel.scales) % 16 == 0 &&
           reinterpret_cast<std::uintptr_t>(kernel.zero_points) % 16 == 0;
  }

  template <class C>
  [[nodiscard]] Status launch_rows(cuda::CudaStream& stream, cuda::ElementwiseKernelArgs<C>& kernel,
                                   const Iteration& it) const {
    kernel.rows = it.rows;
    kernel.length = it.length();
    kernel.input_step = it.inner().stride[op_input];
    kernel.grad_step = it.inner().stride[op_grad];
    kernel.outer = it.rank - 1;
    for (int d = 0; d < kernel.outer; ++d) {
      const Iteration::Dim& dim = it.dims[static_cast<std::size_t>(d)];
      kernel.dims[d].size = dim.size;
      for (std::size_t o = 0; o < operand_count; ++o) kernel.dims[d].stride[o] = dim.stride[o];
    }

    const bool vectors = has_vectors(kernel, it);
    const bool packed = is_packed(problem.input_type()) || is_packed(problem.output_type());
    const std::int64_t lanes = vectors ? vector_lanes() : packed ? 2 : 1;
    const std::int64_t units = (kernel.length + lanes - 1) / lanes;
    // A thread does several units, if there are enough for all that the device runs at a time; a
    // warp's are neighbours.
    const std::int64_t at_a_time =
        std::int64_t{stream.context().limits.multiprocessors} * threads_of_multiprocessor;
    kernel.units = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(amount(units, kernel.rows) / at_a_time * 2, 1, elementwise_units));
    const std::int64_t of_row = std::max((units + kernel.units - 1) / kernel.units,
                                         std::min<std::int64_t>(units, cuda::warp_threads));
    const auto wide = static_cast<unsigned>(std::bit_ceil(
        static_cast<std::uint64_t>(std::min<std::int64_t>(of_row, elementwise_threads))));
    const std::int64_t per_chunk = std::int64_t{wide} * kernel.units;
    const std::int64_t chunks = (units + per_chunk - 1) / per_chunk;
    const unsigned high = elementwise_threads / wide;
    const std::int64_t row_blocks = (kernel.rows + high - 1) / high;
    const std::int64_t blocks = amount(row_blocks, chunks);
    if (blocks > INT32_MAX)
      return unsupported("numel", fmt::format("expected at most {} blocks of {} threads, got {}",
                                              INT32_MAX, elementwise_threads, blocks));
    kernel.aligned_parameters = vectors && it.per_lane && has_aligned_parameters(kernel, it);
    kernel.chunks = static_cast<std::uint32_t>(chunks);
    const cuda::Kernel which(ptx_of(problem.element), entry(vectors, it.per_lane).c_str());
    return cuda::launch(stream, which, {static_cast<unsigned>(blocks)}, {wide, high}, 0, kernel);
  }

  [[nodiscard]] const std::string& entry(bool vectors, bool per_lane) const {
    return entries_[(vectors ? 2U : 0U) + (per_lane ? 1U : 0U)];
  }
  std::string& entry(bool vectors, bool per_lane) {
    return entries_[(vectors ? 2U : 0U) + (per_lane ? 1U : 0U)];
  }

  std::array<std::string, 4> entries_;
  Iteration plain_;  // of plain arguments
};

Found<std::shared_ptr<ElementwiseImpl>> find(const SlicedProblem& p, const Allowed& /*allowed*/) {
  return {std::make_shared<CudaElementwise>(p)};
}

constexpr ElementwiseEntry entries[] = {{{Backend::cuda, Target::sm80}, find}};

}  // namespace

std::span<const ElementwiseEntry> cuda_elementwise() { return entries; }

std::shared_ptr<const ElementwiseImpl> found_quantize(const SlicedProblem& problem) {
  return std::make_shared<CudaElementwise>(problem);
}
Status enqueue_found(const ElementwiseImpl& quantize, cuda::CudaStream& stream,
                     const ElementwiseArgs& args, bool plain) {
  const auto& own = static_cast<const CudaElementwise&>(quantize);
  return own.problem.compute() == DType::f64 ? own.run_found<double>(stream, args, plain)
                                             : own.run_found<float>(stream, args, plain);
}

}  // namespace octavo::detail
