// The linear plans: select, check, run. Neutral: no tensor is read here.
#include "core/check.hpp"
#include "core/stream.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::detail {
namespace {

KernelSku sku_of(const LinearProblem& p, const Place& at) {
  KernelSku sku;
  sku.category = Category::linear;
  sku.op = is_dynamic(p) && !is_symmetric(p) ? Op::quantized_linear_asymmetric : p.op;
  sku.element = p.activation;
  sku.aux_element = p.weight;
  sku.output = p.output;
  if (is_dynamic(p)) sku.quantized = p.quantized;
  sku.packed_weight = p.packed_weight;
  sku.weight_group = p.group;
  sku.layout = p.op == Op::smoothquant_linear ? Layout::per_tensor : Layout::per_token;
  sku.epilogue = p.epilogue;
  sku.profile = p.profile;
  sku.target = at.target;
  sku.backend = at.backend;
  sku.guarantee.math = p.output == DType::s32 ? DType::s32 : compute_type(p);
  if (!is_float_linear(p)) sku.guarantee.accumulator = DType::s32;
  return sku;
}

}  // namespace

Result<AnyLinearPlan> AnyLinearPlan::select(const Stream& stream, const LinearProblem& problem,
                                            const PlanPreference& preference) {
  if (Status s = check_linear_problem(problem); !s) return s.error();
  const Result<Allowed> allowed = allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen = choose(*allowed, problem, {cpu_linear(), cuda_linear(), test_linear});
  if (!chosen) return chosen.error();

  LinearImpl& impl = *chosen->impl;
  impl.sku = sku_of(problem, chosen->at);
  if (impl.workspace_bytes == SIZE_MAX)
    return invalid("k", fmt::format("expected a workspace within the address space, got k = {} and "
                                    "{} threads that pack weights; pack them beforehand",
                                    problem.k, allowed->threads));
  if (Status s = check_max_workspace(preference, impl.workspace_bytes,
                                     problem.packed_weight
                                         ? "rows of activations"
                                         : "rows of activations, and weights packed run by run");
      !s)
    return s.error();
  return AnyLinearPlan(std::move(chosen->impl));
}

const KernelSku& AnyLinearPlan::sku() const noexcept { return impl_->sku; }

std::size_t AnyLinearPlan::workspace_size() const noexcept { return impl_->workspace_bytes; }

Status AnyLinearPlan::can_implement(const LinearOperands& operands) const {
  Lent none;
  if (Status s = check_linear(impl_->problem, impl_->format, operands, none); !s) return s;
  if (Status s = check_linear_memory(impl_->problem, operands, impl_->sku.backend, -1, nullptr); !s)
    return s;
  return impl_->check_values(operands);
}

Status AnyLinearPlan::run(const Stream& stream, Workspace workspace,
                          const LinearOperands& operands) const {
  const LinearImpl& impl = *impl_;
  if (Status s = check_stream(stream, impl.sku.backend); !s) return s;
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
  Lent lent{{begin, begin + impl.workspace_bytes}};
  if (Status s = check_linear(impl.problem, impl.format, operands, lent); !s) return s;
  if (Status s = check_workspace(workspace, impl.workspace_bytes); !s) return s;
  if (impl.workspace_bytes > 0 && lent.overlaps)
    return invalid("workspace", "expected memory apart from every argument, got an overlap");
  if (Status s = check_linear_memory(impl.problem, operands, impl.sku.backend, stream.impl().device,
                                     impl.workspace_bytes > 0 ? workspace.data : nullptr);
      !s)
    return s;
  return impl.run(stream, workspace.data, operands);
}

}  // namespace octavo::detail
