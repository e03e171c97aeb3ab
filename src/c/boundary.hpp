// The way out to C: refusals become codes, and no exception passes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "c/reader.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/embedding.hpp"
#include "octavo/linear.hpp"
#include "octavo/observer.hpp"
#include "octavo/packed_weight.hpp"

// The copies of the library are used: one made here would be hidden, and hide the exported one.
extern template class octavo::Observer<octavo::MinMaxState>;
extern template class octavo::Observer<octavo::HistogramState>;

/// Any plan; there is one class for each family.
struct octavo_plan {
  using Any =
      std::variant<octavo::detail::AnyElementwisePlan, octavo::DynamicRangeQuantizePlan,
                   octavo::MinMaxObserver, octavo::HistogramObserver, octavo::PackWeightPlan,
                   octavo::detail::AnyLinearPlan, octavo::EmbeddingPlan>;
  Any plan;
  std::string sku;
};

struct octavo_packed_weight {
  octavo::PackedWeight packed;
};

struct octavo_observer_state {
  std::variant<octavo::MinMaxState, octavo::HistogramState> state;
};

namespace octavo::c {

/// Keeps the error for octavo_last_error and returns its code.
octavo_status report(const Error& error) noexcept;
/// The same for the exception that is being handled.
octavo_status report_exception() noexcept;

/// Calls `body`, which returns a Status.
template <class Body>
octavo_status guarded(Body body) noexcept {
  try {
    const Status status = body();
    return status ? OCTAVO_OK : report(status.error());
  } catch (...) {
    return report_exception();
  }
}

/// Hands a new object to C.
template <class Handle>
Status give(Handle handle, Handle** out) {
  *out = std::make_unique<Handle>(std::move(handle)).release();
  return {};
}

/// All of a `_select`: `to_descriptor(reader)` reads the struct, and a Plan is made from it.
template <class Plan, class ToDescriptor>
Status select(const octavo_stream* stream, const octavo_preference* preference, octavo_plan** out,
              ToDescriptor to_descriptor) {
  Reader reader;
  const Stream* on = reader.stream(stream);
  const auto descriptor = to_descriptor(reader);
  const PlanPreference wanted = reader.preference(preference);
  reader.not_null("out", out);
  if (!reader.ok()) return reader.error();
  const Result<Plan> plan = Plan::select(*on, descriptor, wanted);
  if (!plan) return plan.error();
  return give(octavo_plan{*plan, to_string(plan->sku())}, out);
}

/// The plan of one family; `select` names the function that makes those.
template <class Plan>
const Plan* plan_of(Reader& reader, const octavo_plan* given, const char* select) {
  if (!reader.not_null("plan", given)) return nullptr;
  const Plan* plan = std::get_if<Plan>(&given->plan);
  if (plan == nullptr)
    reader.refuse(
        detail::invalid("plan", fmt::format("expected one of {}, got {}", select, given->sku)));
  return plan;
}

/// All of a `_can_implement` and of a `_run`. `Arguments` is made from (reader, plan, given), knows
/// its Plan and the name of its `_select`, and `get()` is what the plan takes.
template <class Arguments, class Given>
Status can_implement(const octavo_plan* plan, const Given* given) {
  Reader reader;
  const auto* p = plan_of<typename Arguments::Plan>(reader, plan, Arguments::select);
  if (!reader.ok()) return reader.error();
  const Arguments arguments(reader, *p, given);
  if (!reader.ok()) return reader.error();
  return p->can_implement(arguments.get());
}
template <class Arguments, class Given>
Status run(const octavo_plan* plan, const octavo_stream* stream, const Workspace& workspace,
           const Given* given) {
  Reader reader;
  const auto* p = plan_of<typename Arguments::Plan>(reader, plan, Arguments::select);
  const Stream* on = reader.stream(stream);
  if (!reader.ok()) return reader.error();
  const Arguments arguments(reader, *p, given);
  if (!reader.ok()) return reader.error();
  return p->run(*on, workspace, arguments.get());
}

}  // namespace octavo::c
