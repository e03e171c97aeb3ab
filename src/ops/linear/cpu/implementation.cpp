// The linear plans on the CPU: one entry for each instruction set with a dot product of its own.
#include "ops/linear/cpu/implementation.hpp"

#include "ops/linear/cpu/float_linear.hpp"
#include "ops/linear/cpu/group_linear.hpp"
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

// Of floats: the vector kernels of a target.
template <Target target>
Found<std::shared_ptr<LinearImpl>> find_floats(const LinearProblem& p, const Allowed& allowed) {
  if (!is_float_linear(p)) return {nullptr, "of floats only"};
  Allowed only = allowed;
  only.targets = 1U << static_cast<unsigned>(target);
  const Found<LinearKernels> kernels = choose_kernels(p, only);
  if (!kernels.impl) return {nullptr, kernels.why_not};
  return {std::make_shared<CpuFloatLinear>(p, kernels.impl, target, allowed.threads)};
}

// `idle`: for CPUs that have logic beside products, if there is another one for them.
template <const DotKernel* dot, const GroupKernel* group, const GroupKernel* idle = group>
Found<std::shared_ptr<LinearImpl>> find(const LinearProblem& p, const Allowed& allowed) {
  if (is_float_linear(p)) return {nullptr, "not of floats"};
  const bool groups = p.group != 0 || is_packed(p.weight);
  // (Emulated tiles may be on a CPU that lacks what tiles come with.)
  if (groups && !allowed.has(Backend::cpu, group->beside))
    return {nullptr, "products by weights in groups need " + std::string(name(group->beside))};
  const Found<LinearKernels> kernels = choose_kernels(p, allowed);
  if (!kernels.impl) return {nullptr, kernels.why_not};
  const GroupKernel& products = has_logic_beside_products() ? *idle : *group;
  if (groups) return {std::make_shared<CpuGroupLinear>(p, products, kernels.impl, allowed.threads)};
  return {std::make_shared<CpuLinear>(p, *dot, kernels.impl, allowed.threads)};
}

// Best first. (sve has none of its own: its vectors have no fixed length, and panels do.)
constexpr LinearEntry entries[] = {
#if defined(__x86_64__)
    {{Backend::cpu, Target::amx}, find<&dot_amx, &group_amx>},
    {{Backend::cpu, Target::avx512vnni},
     find<&dot_avx512vnni, &group_avx512vnni, &group_avx512vnni_idle>},
    {{Backend::cpu, Target::avx512}, find_floats<Target::avx512>},
    {{Backend::cpu, Target::avx512}, find<&dot_avx512, &group_avx512>},
    {{Backend::cpu, Target::avxvnni}, find<&dot_avxvnni, &group_avxvnni>},
    {{Backend::cpu, Target::avx2}, find_floats<Target::avx2>},
    {{Backend::cpu, Target::avx2}, find<&dot_avx2, &group_avx2>},
#else
    {{Backend::cpu, Target::i8mm}, find<&dot_i8mm, &group_i8mm>},
    {{Backend::cpu, Target::dotprod}, find<&dot_dotprod, &group_dotprod>},
    {{Backend::cpu, Target::neon}, find_floats<Target::neon>},
    {{Backend::cpu, Target::neon}, find<&dot_neon, &group_neon>},
#endif
    {{Backend::cpu, Target::scalar}, find_floats<Target::scalar>},
    {{Backend::cpu, Target::scalar}, find<&dot_scalar, &group_scalar>},
};

}  // namespace

std::span<const LinearEntry> cpu_linear() { return entries; }

CpuLinear::CpuLinear(const LinearProblem& p, const DotKernel& dot, const LinearKernels& kernels,
                     int threads)
    : LinearImpl(p, host_format(p.weight, 0, false, DType::f32)),
      dot_(dot),
      kernels_(kernels),
      threads_(LinearLayout::fits(p, threads) ? threads : 1),
      layout_(p, dot, threads_),
      product_(product_of(p)),
      product_layout_(product_, dot, threads_) {
  workspace_bytes = threads_ < threads ? SIZE_MAX : static_cast<std::size_t>(layout_.total);
}

}  // namespace octavo::detail
