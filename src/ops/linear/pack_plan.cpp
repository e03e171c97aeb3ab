// The plan that packs weights. Neutral: no weight is read here.
#include "core/check.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/problem.hpp"

namespace octavo {

Result<PackWeightPlan> PackWeightPlan::select(const Stream& stream, const Descriptor& descriptor,
                                              const PlanPreference& preference) {
  if (Status s = detail::check_type<detail::LinearBytes>("weight", descriptor.weight); !s)
    return s.error();
  if (Status s = detail::check_weight_sizes(descriptor.n, descriptor.k); !s) return s.error();
  const auto allowed = detail::allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen = detail::choose(*allowed, descriptor, {detail::cpu_pack(), detail::test_pack});
  if (!chosen) return chosen.error();
  KernelSku& sku = chosen->impl->sku;
  sku.category = Category::linear;
  sku.op = Op::pack_weight;
  sku.element = sku.aux_element = descriptor.weight;
  sku.target = chosen->at.target;
  sku.backend = chosen->at.backend;
  sku.guarantee.math = DType::s32;
  return PackWeightPlan(std::move(chosen->impl));
}

const KernelSku& PackWeightPlan::sku() const noexcept { return impl_->sku; }

Result<PackedWeight> PackWeightPlan::make_packed() const { return impl_->make(true); }

Status PackWeightPlan::can_implement(const Args& args) const {
  const Descriptor& d = impl_->problem;
  if (Status s = detail::check_weight(args.weight, d.weight, d.n, d.k); !s) return s;
  if (args.packed == nullptr || args.packed->empty())
    return detail::invalid("packed", "expected one of make_packed, got none");
  if (args.packed->n() != d.n || args.packed->k() != d.k || args.packed->dtype() != d.weight)
    return detail::invalid("packed", fmt::format("expected [{}, {}] of {}, got [{}, {}] of {}", d.n,
                                                 d.k, name(d.weight), args.packed->n(),
                                                 args.packed->k(), name(args.packed->dtype())));
  if (args.packed->format() != impl_->format)
    return detail::unsupported("packed", fmt::format("expected one of make_packed ({}), got {}",
                                                     detail::to_string(impl_->format),
                                                     detail::to_string(args.packed->format())));
  if (PackedWeightAccess::is_shared(*args.packed))
    return detail::invalid("packed",
                           "expected one without copies (they share its memory, and may be in "
                           "use), got one that has some; make another");
  return {};
}

Status PackWeightPlan::run(const Stream& stream, Workspace /*workspace*/, const Args& args) const {
  if (Status s = detail::check_stream(stream, impl_->sku.backend); !s) return s;
  if (Status s = can_implement(args); !s) return s;
  return impl_->run(stream, args.weight, *args.packed);
}

Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight) {
  if (weight.shape.rank() != 2)
    return detail::invalid(
        "weight", fmt::format("expected a shape [n, k], got {}", detail::to_string(weight.shape)));
  const auto plan = PackWeightPlan::select(
      stream, {.n = weight.shape[0], .k = weight.shape[1], .weight = weight.dtype});
  if (!plan) return plan.error();
  Result<PackedWeight> packed = PackedWeightAccess::impl(*plan).make(false);
  if (!packed) return packed;
  if (Status s = plan->run(stream, {}, {.weight = weight, .packed = &*packed}); !s)
    return s.error();
  return packed;
}

}  // namespace octavo
