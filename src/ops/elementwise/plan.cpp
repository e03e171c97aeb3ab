// The plan behind the elementwise family: select, check, run. Neutral: it reads no tensor.
#include "ops/elementwise/implementation.hpp"

namespace octavo::detail {

Result<AnyElementwisePlan> AnyElementwisePlan::select(const Stream& stream,
                                                      const ElementwiseProblem& problem,
                                                      const PlanPreference& preference) {
  const Result<SlicedProblem> checked = check_problem(problem);
  if (!checked) return checked.error();
  const Result<Allowed> allowed = allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen =
      choose(*allowed, *checked, {cpu_elementwise(), cuda_elementwise(), test_elementwise});
  if (!chosen) return chosen.error();

  ElementwiseImpl& impl = *chosen->impl;
  impl.sku.op = problem.op;
  impl.sku.element = problem.element;
  impl.sku.aux_element = problem.has_integer ? problem.integer : problem.element;
  impl.sku.layout = problem.layout;
  impl.sku.profile = problem.profile;
  impl.sku.target = chosen->at.target;
  impl.sku.backend = chosen->at.backend;
  impl.sku.guarantee.math = checked->compute();
  if (Status s = check_max_workspace(preference, impl.workspace_bytes,
                                     "to hold the scales in the compute type");
      !s)
    return s.error();
  return AnyElementwisePlan(std::move(chosen->impl));
}

const KernelSku& AnyElementwisePlan::sku() const noexcept { return impl_->sku; }

std::int64_t AnyElementwisePlan::slices() const noexcept { return impl_->problem.slices; }

std::size_t AnyElementwisePlan::workspace_size() const noexcept { return impl_->workspace_bytes; }

Status AnyElementwisePlan::can_implement(const ElementwiseArgs& args) const {
  if (Status s = check_tensors(impl_->problem, args); !s) return s;
  if (Status s = check_memory(impl_->problem, args, impl_->sku.backend, -1, nullptr); !s) return s;
  return impl_->check_values(args);
}

Status AnyElementwisePlan::run(const Stream& stream, Workspace workspace,
                               const ElementwiseArgs& args) const {
  const ElementwiseImpl& impl = *impl_;
  if (Status s = check_stream(stream, impl.sku.backend); !s) return s;
  const bool plain = are_plain(impl.problem, args);
  if (!plain)
    if (Status s = check_tensors(impl.problem, args); !s) return s;
  const int device = stream.impl().device;
  if (impl.workspace_bytes == 0) {
    if (Status s = check_memory(impl.problem, args, impl.sku.backend, device, nullptr); !s)
      return s;
    return impl.run(stream, nullptr, args, plain);
  }
  const TensorRef output = *args.output;
  if (Status s = check_workspace(workspace, impl.workspace_bytes,
                                 {args.input, args.grad, &output, args.scales, args.zero_points});
      !s)
    return s;
  if (Status s = check_memory(impl.problem, args, impl.sku.backend, device, workspace.data); !s)
    return s;
  return impl.run(stream, workspace.data, args, plain);
}

}  // namespace octavo::detail
