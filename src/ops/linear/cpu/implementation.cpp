// The linear plans on the CPU: one entry for each instruction set with a dot product of its own.
#include "ops/linear/cpu/implementation.hpp"

#include "ops/linear/packed_weight.hpp"

namespace octavo::detail {
namespace {

// A linear whose activations are quantized by another step: what it multiplies is the same.
LinearProblem product_of(LinearProblem p) {
  if (is_dynamic(p)) p.op = Op::quantized_matmul;
  p.activation = p.quantized;
  p.output = DType::s32;
  p.epilogue = Epilogue::none;
  return p;
}

template <const DotKernel* dot>
Found<std::shared_ptr<LinearImpl>> find(const LinearProblem& p, const Allowed& allowed) {
  const Found<LinearKernels> kernels = choose_kernels(p, allowed);
  if (!kernels.impl) return {nullptr, kernels.why_not};
  return {std::make_shared<CpuLinear>(p, *dot, kernels.impl, allowed.threads)};
}

// Best first. (sve has none of its own: its vectors have no fixed length, and panels do.)
constexpr LinearEntry entries[] = {
#if defined(__x86_64__)
    {{Backend::cpu, Target::amx}, find<&dot_amx>},
    {{Backend::cpu, Target::avx512vnni}, find<&dot_avx512vnni>},
    {{Backend::cpu, Target::avx512}, find<&dot_avx512>},
    {{Backend::cpu, Target::avxvnni}, find<&dot_avxvnni>},
    {{Backend::cpu, Target::avx2}, find<&dot_avx2>},
#else
    {{Backend::cpu, Target::i8mm}, find<&dot_i8mm>},
    {{Backend::cpu, Target::dotprod}, find<&dot_dotprod>},
    {{Backend::cpu, Target::neon}, find<&dot_neon>},
#endif
    {{Backend::cpu, Target::scalar}, find<&dot_scalar>},
};

}  // namespace

std::span<const LinearEntry> cpu_linear() { return entries; }

CpuLinear::CpuLinear(const LinearProblem& p, const DotKernel& dot, const LinearKernels& kernels,
                     int threads)
    : LinearImpl(p, panels_format(p.weight)),
      dot_(dot),
      kernels_(kernels),
      threads_(LinearLayout::fits(p, threads) ? threads : 1),
      layout_(p, dot, threads_),
      product_(product_of(p)),
      product_layout_(product_, dot, threads_) {
  workspace_bytes = threads_ < threads ? SIZE_MAX : static_cast<std::size_t>(layout_.total);
}

}  // namespace octavo::detail
