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

// Products of an instruction set.
struct LinearProducts {
  const DotKernel* dot;
  const GroupKernel* group;
};
template <const DotKernel* dot, const GroupKernel* group>
LinearProducts any_cpu() {
  return {dot, group};
}

template <LinearProducts (*products)()>
Found<std::shared_ptr<LinearImpl>> find(const LinearProblem& p, const Allowed& allowed) {
  const auto [dot, group] = products();
  if (is_float_linear(p)) return {nullptr, "not of floats"};
  const bool groups = p.group != 0 || is_packed(p.weight);
  // (Emulated tiles may be on a CPU that lacks what tiles come with.)
  if (groups && !allowed.has(Backend::cpu, group->beside))
    return {nullptr, "products by weights in groups need " + std::string(name(group->beside))};
  const Found<LinearKernels> kernels = choose_kernels(p, allowed);
  if (!kernels.impl) return {nullptr, kernels.why_not};
  if (groups) return {std::make_shared<CpuGroupLinear>(p, *group, kernels.impl, allowed.threads)};
  return {std::make_shared<CpuLinear>(p, *dot, kernels.impl, allowed.threads)};
}

#if defined(__x86_64__)
LinearProducts avx512vnni() {
  if (has_logic_beside_products()) return {&dot_avx512vnni_idle, &group_avx512vnni_idle};
  return {&dot_avx512vnni, &group_avx512vnni};
}
#endif

// Best first. (sve has none of its own: its vectors have no fixed length, and panels do.)
constexpr LinearEntry entries[] = {
#if defined(__x86_64__)
    {{Backend::cpu, Target::amx}, find<any_cpu<&dot_amx, &group_amx>>},
    {{Backend::cpu, Target::avx512vnni}, find<avx512vnni>},
    {{Backend::cpu, Target::avx512}, find_floats<Target::avx512>},
    {{Backend::cpu, Target::avx512}, find<any_cpu<&dot_avx512, &group_avx512>>},
    {{Backend::cpu, Target::avxvnni}, find<any_cpu<&dot_avxvnni, &group_avxvnni>>},
    {{Backend::cpu, Target::avx2}, find_floats<Target::avx2>},
    {{Backend::cpu, Target::avx2}, find<any_cpu<&dot_avx2, &group_avx2>>},
#else
    {{Backend::cpu, Target::i8mm}, find<any_cpu<&dot_i8mm, &group_i8mm>>},
    {{Backend::cpu, Target::dotprod}, find<any_cpu<&dot_dotprod, &group_dotprod>>},
    {{Backend::cpu, Target::neon}, find_floats<Target::neon>},
    {{Backend::cpu, Target::neon}, find<any_cpu<&dot_neon, &group_neon>>},
#endif
    {{Backend::cpu, Target::scalar}, find_floats<Target::scalar>},
    {{Backend::cpu, Target::scalar}, find<any_cpu<&dot_scalar, &group_scalar>>},
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
