// The plans of observers: select, check, run. Neutral: it reads no tensor.
#include "octavo/observer.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/memory_place.hpp"
#include "numerics/types.hpp"
#include "ops/observer/access.hpp"
#include "ops/observer/implementation.hpp"

namespace octavo {
namespace {

using detail::invalid;
using detail::ObserverProblem;
using detail::unsupported;

// The state is the host's, wherever the batch is.
Status check_memory(const detail::ObserverImpl& impl, const TensorRef& input, int device,
                    const void* workspace) {
  const bool empty = *detail::count_elements("input", input.shape) == 0;
  return detail::check_memory(impl.sku.backend, device,
                              {{"input", empty ? nullptr : input.data}, {"workspace", workspace}});
}

bool same(const ObserverDescriptor& a, const ObserverDescriptor& b) {
  return a.input == b.input && a.scope == b.scope &&
         ObserverProblem{a}.slices() == ObserverProblem{b}.slices() &&
         a.histogram_bits == b.histogram_bits;
}

Status check_problem(const ObserverProblem& p) {
  if (p.scope != Layout::per_tensor && p.scope != Layout::per_channel)
    return unsupported("scope",
                       fmt::format("expected per_tensor or per_channel, got {}", name(p.scope)));
  if (p.scope == Layout::per_channel && p.channels < 0)
    return invalid("channels", fmt::format("expected 0 or more, got {}", p.channels));
  if (p.histogram_bits < 0 || p.histogram_bits > 7)
    return invalid("histogram_bits", fmt::format("expected 0 to 7, got {}", p.histogram_bits));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(p.slices(), p.histogram ? p.bins() * 8 : 16, &bytes))
    return invalid("channels",
                   fmt::format("expected states of fewer than 2^63 bytes, got {}", p.channels));
  return detail::check_type<numerics::FloatTypes>("input", p.input);
}

}  // namespace

template <class State>
Result<Observer<State>> Observer<State>::select(const Stream& stream, const Descriptor& descriptor,
                                                const PlanPreference& preference) {
  constexpr bool histogram = std::is_same_v<State, HistogramState>;
  const ObserverProblem p{descriptor, histogram};
  if (Status s = check_problem(p); !s) return s.error();
  const auto allowed = detail::allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen = detail::choose(
      *allowed, p, {detail::cpu_observers(), detail::cuda_observers(), detail::test_observers});
  if (!chosen) return chosen.error();
  KernelSku& sku = chosen->impl->sku;
  sku.category = Category::observer;
  sku.op = histogram ? Op::observe_histogram : Op::observe_min_max;
  sku.element = sku.aux_element = p.input;
  sku.layout = p.scope;
  sku.target = chosen->at.target;
  sku.backend = chosen->at.backend;
  sku.guarantee.math = compute_type(p.input);
  if (Status s = detail::check_max_workspace(preference, chosen->impl->workspace_bytes,
                                             "for what each thread sees");
      !s)
    return s.error();
  return Observer(std::move(chosen->impl));
}

template <class State>
const KernelSku& Observer<State>::sku() const noexcept {
  return impl_->sku;
}

template <class State>
std::size_t Observer<State>::workspace_size() const noexcept {
  return impl_->workspace_bytes;
}

template <class State>
State Observer<State>::make_state() const {
  const ObserverProblem& p = impl_->problem;
  const auto slices = static_cast<std::size_t>(p.slices());
  State state;
  MinMaxState& extremes = ObserverAccess::extremes(state);
  ObserverAccess::descriptor(extremes) = p;
  ObserverAccess::low(extremes).assign(slices, 0.0);
  ObserverAccess::high(extremes).assign(slices, 0.0);
  if constexpr (std::is_same_v<State, HistogramState>)
    ObserverAccess::counts(state).assign(slices * static_cast<std::size_t>(p.bins()), 0);
  return state;
}

template <class State>
Status Observer<State>::can_implement(const Args& args) const {
  const ObserverProblem& p = impl_->problem;
  if (args.state == nullptr) return invalid("state", "expected a state of make_state, got null");
  if (!same(ObserverAccess::extremes(*args.state).descriptor(), p) ||
      static_cast<std::int64_t>(ObserverAccess::extremes(*args.state).low().size()) != p.slices())
    return invalid("state", "expected a state of this observer's make_state, got another");
  const Result<detail::Checked> input = detail::check_input("input", args.input, p.input);
  if (!input) return input.error();
  if (p.scope != Layout::per_channel) return check_memory(*impl_, args.input, -1, nullptr);
  const int rank = args.input.shape.rank();
  const int axis = p.axis < 0 ? p.axis + rank : p.axis;
  if (axis < 0 || axis >= rank || args.input.shape[axis] != p.channels)
    return invalid("input", fmt::format("expected {} channels along axis {}, got shape {}",
                                        p.channels, p.axis, detail::to_string(args.input.shape)));
  return check_memory(*impl_, args.input, -1, nullptr);
}

template <class State>
Status Observer<State>::run(const Stream& stream, Workspace workspace, const Args& args) const {
  if (Status s = detail::check_stream(stream, impl_->sku.backend); !s) return s;
  if (Status s = can_implement(args); !s) return s;
  if (Status s = detail::check_workspace(workspace, workspace_size(), {&args.input}); !s) return s;
  if (Status s = check_memory(*impl_, args.input, stream.impl().device, workspace.data); !s)
    return s;
  const std::int64_t numel = *detail::count_elements("input", args.input.shape);
  if (numel == 0) return {};
  MinMaxState& extremes = ObserverAccess::extremes(*args.state);
  detail::Seen seen{ObserverAccess::low(extremes).data(), ObserverAccess::high(extremes).data()};
  if constexpr (std::is_same_v<State, HistogramState>)
    seen.counts = ObserverAccess::counts(*args.state).data();
  return impl_->run(stream, workspace.data, args.input, numel, seen);
}

template class Observer<MinMaxState>;
template class Observer<HistogramState>;

Status MinMaxState::merge(const MinMaxState& other) {
  if (!same(descriptor_, other.descriptor_) || low_.size() != other.low_.size())
    return invalid("other", "expected a state of the same kind of observer, got another");
  for (std::size_t i = 0; i < low_.size(); ++i) {
    low_[i] = std::min(low_[i], other.low_[i]);
    high_[i] = std::max(high_[i], other.high_[i]);
  }
  return {};
}

Status HistogramState::merge(const HistogramState& other) {
  if (Status s = extremes_.merge(other.extremes_); !s) return s;
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  return {};
}

std::int64_t HistogramState::bins() const noexcept {
  return detail::ObserverProblem{extremes_.descriptor()}.bins();
}

}  // namespace octavo
