#include "octavo/observer.hpp"

#include <algorithm>

#include "c/boundary.hpp"

namespace octavo::c {
namespace {

constexpr const char* select_name = "octavo_observer_select";

ObserverDescriptor descriptor_of(Reader& reader, const octavo_observer_desc& given) {
  ObserverDescriptor d;
  d.input = reader.dtype("input", given.input);
  d.scope = reader.layout("scope", given.scope);
  d.axis = to_optional(given.axis).value_or(d.axis);
  d.channels = given.channels;
  d.histogram_bits = to_optional(given.histogram_bits).value_or(d.histogram_bits);
  return d;
}

template <class State>
class Arguments {
 public:
  using Plan = Observer<State>;
  static constexpr const char* select = select_name;

  Arguments(Reader& reader, const Plan& /*plan*/, const octavo_observer_args* given) {
    const octavo_observer_args a = reader.need("args", given);
    if (!reader.ok()) return;
    args_.input = reader.tensor("input", a.input);
    if (!reader.not_null("state", a.state)) return;
    args_.state = std::get_if<State>(&a.state->state);
    if (args_.state == nullptr)
      reader.refuse(detail::invalid("state", "expected one that this plan made, got another kind"));
  }
  [[nodiscard]] const typename Plan::Args& get() const { return args_; }

 private:
  typename Plan::Args args_;
};

bool is_min_max(const octavo_plan* plan) {
  return plan != nullptr && std::holds_alternative<MinMaxObserver>(plan->plan);
}

const MinMaxState& extremes_of(const octavo_observer_state& state) {
  if (const auto* histogram = std::get_if<HistogramState>(&state.state))
    return histogram->extremes();
  return std::get<MinMaxState>(state.state);
}

// Whether `slices` is what the state has; if not, the caller's arrays are of another size.
void check_slices(Reader& reader, const octavo_observer_state* state, std::int64_t slices) {
  if (!reader.not_null("state", state)) return;
  const auto expected = static_cast<std::int64_t>(extremes_of(*state).low().size());
  if (slices != expected)
    reader.refuse(detail::invalid(
        "slices", fmt::format("expected {}, as the state has, got {}", expected, slices)));
}

CalibrationOptions options_of(Reader& reader, const octavo_calibration_options* options) {
  const octavo_calibration_options given = reader.need("options", options);
  CalibrationOptions o;
  o.method = reader.enumerator<Calibration>("method", given.method, 4);
  o.mode = reader.enumerator<RangeMode>("mode", given.mode, 2);
  o.output = reader.dtype("output", given.output);
  o.q_min = to_optional(given.q_min);
  o.q_max = to_optional(given.q_max);
  if (given.percentile != 0) o.percentile = given.percentile;
  return o;
}

template <class T>
void copy(const std::vector<T>& from, T* to) {
  if (to != nullptr) std::copy(from.begin(), from.end(), to);
}

}  // namespace
}  // namespace octavo::c

namespace c = octavo::c;
using octavo::HistogramState;
using octavo::MinMaxState;
using octavo::Status;

octavo_status octavo_observer_select(const octavo_stream* stream, const octavo_observer_desc* desc,
                                     const octavo_preference* preference, octavo_plan** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    const octavo_observer_desc given = reader.need("desc", desc);
    if (given.op != OCTAVO_OBSERVE_MIN_MAX && given.op != OCTAVO_OBSERVE_HISTOGRAM)
      reader.refuse(octavo::detail::unsupported(
          "op",
          fmt::format("expected OCTAVO_OBSERVE_MIN_MAX ({}) or OCTAVO_OBSERVE_HISTOGRAM ({}), "
                      "got {}",
                      OCTAVO_OBSERVE_MIN_MAX, OCTAVO_OBSERVE_HISTOGRAM, given.op)));
    if (!reader.ok()) return reader.error();
    const auto descriptor = [&](c::Reader& r) { return c::descriptor_of(r, given); };
    if (given.op == OCTAVO_OBSERVE_MIN_MAX)
      return c::select<octavo::MinMaxObserver>(stream, preference, out, descriptor);
    return c::select<octavo::HistogramObserver>(stream, preference, out, descriptor);
  });
}

octavo_status octavo_observer_make_state(const octavo_plan* plan, octavo_observer_state** out) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("out", out);
    if (c::is_min_max(plan)) {
      if (!reader.ok()) return reader.error();
      return c::give(
          octavo_observer_state{std::get<octavo::MinMaxObserver>(plan->plan).make_state()}, out);
    }
    const auto* histogram = c::plan_of<octavo::HistogramObserver>(reader, plan, c::select_name);
    if (!reader.ok()) return reader.error();
    return c::give(octavo_observer_state{histogram->make_state()}, out);
  });
}

octavo_status octavo_observer_can_implement(const octavo_plan* plan,
                                            const octavo_observer_args* args) {
  return c::guarded([&] {
    return c::is_min_max(plan) ? c::can_implement<c::Arguments<MinMaxState>>(plan, args)
                               : c::can_implement<c::Arguments<HistogramState>>(plan, args);
  });
}
octavo_status octavo_observer_run(const octavo_plan* plan, const octavo_stream* stream,
                                  void* workspace, size_t workspace_bytes,
                                  const octavo_observer_args* args) {
  return c::guarded([&] {
    const octavo::Workspace lent{workspace, workspace_bytes};
    return c::is_min_max(plan) ? c::run<c::Arguments<MinMaxState>>(plan, stream, lent, args)
                               : c::run<c::Arguments<HistogramState>>(plan, stream, lent, args);
  });
}

void octavo_observer_state_destroy(octavo_observer_state* state) { delete state; }

octavo_status octavo_observer_state_merge(octavo_observer_state* state,
                                          const octavo_observer_state* other) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    reader.not_null("state", state);
    reader.not_null("other", other);
    if (!reader.ok()) return reader.error();
    return std::visit(
        [](auto& to, const auto& from) -> Status {
          if constexpr (std::is_same_v<std::decay_t<decltype(to)>, std::decay_t<decltype(from)>>) {
            return to.merge(from);
          } else {
            return octavo::detail::invalid("other",
                                           "expected a state of the same kind of observer, got "
                                           "another");
          }
        },
        state->state, other->state);
  });
}

int64_t octavo_observer_state_slices(const octavo_observer_state* state) {
  return state == nullptr ? 0 : static_cast<int64_t>(c::extremes_of(*state).low().size());
}
int64_t octavo_observer_state_bins(const octavo_observer_state* state) {
  const auto* histogram = state == nullptr ? nullptr : std::get_if<HistogramState>(&state->state);
  return histogram == nullptr ? 0 : histogram->bins();
}

octavo_status octavo_observer_state_extremes(const octavo_observer_state* state, double* low,
                                             double* high, int64_t slices) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    c::check_slices(reader, state, slices);
    if (!reader.ok()) return reader.error();
    c::copy(c::extremes_of(*state).low(), low);
    c::copy(c::extremes_of(*state).high(), high);
    return {};
  });
}

octavo_status octavo_observer_state_counts(const octavo_observer_state* state, int64_t* counts,
                                           int64_t slices, int64_t bins) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    c::check_slices(reader, state, slices);
    reader.not_null("counts", counts);
    const int64_t expected = octavo_observer_state_bins(state);
    if (bins != expected || expected == 0)
      reader.refuse(octavo::detail::invalid(
          "bins", fmt::format("expected {}, as the state has, got {}{}", expected, bins,
                              expected == 0 ? "; only histograms count" : "")));
    if (!reader.ok()) return reader.error();
    c::copy(std::get<HistogramState>(state->state).counts(), counts);
    return {};
  });
}

octavo_status octavo_observer_state_calibrate(const octavo_observer_state* state,
                                              const octavo_calibration_options* options,
                                              double* scales, int32_t* zero_points,
                                              int64_t slices) {
  return c::guarded([&]() -> Status {
    c::Reader reader;
    c::check_slices(reader, state, slices);
    const octavo::CalibrationOptions wanted = c::options_of(reader, options);
    reader.not_null("scales", scales);
    if (!reader.ok()) return reader.error();
    const auto found =
        std::visit([&](const auto& s) { return s.parameters(wanted); }, state->state);
    if (!found) return found.error();
    c::copy(found->scales, scales);
    c::copy(found->zero_points, zero_points);
    return {};
  });
}
