#include "octavo/smooth.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "numerics/smooth.hpp"
#include "octavo/observer.hpp"
#include "offline/convert.hpp"
#include "offline/files.hpp"
#include "offline/slab.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo {

using detail::invalid;
using detail::unsupported;
using namespace offline;

namespace {

Status check_weights(std::span<const TensorRef> weights, std::int64_t channels) {
  for (const TensorRef& w : weights) {
    if (!is_float(w.dtype))
      return unsupported("weights",
                         fmt::format("expected f32, f64, f16 or bf16, got {}", name(w.dtype)));
    if (w.shape.rank() != 2 || w.shape[1] != channels)
      return invalid("weights", fmt::format("expected [rows, {}], as many channels as the norm and "
                                            "the statistics, got {}",
                                            channels, detail::to_string(w.shape)));
    if (const auto checked = detail::check_input("weights", w, w.dtype); !checked)
      return checked.error();
  }
  return {};
}

Status check_vector(const char* argument, const TensorMut& t, std::int64_t channels) {
  if (!is_float(t.dtype))
    return unsupported(argument,
                       fmt::format("expected f32, f64, f16 or bf16, got {}", name(t.dtype)));
  if (t.shape.rank() != 1 || t.shape[0] != channels)
    return invalid(argument, fmt::format("expected [{}], one per channel, got {}", channels,
                                         detail::to_string(t.shape)));
  if (const auto checked = detail::check_output(argument, t, t.dtype); !checked)
    return checked.error();
  return {};
}

Error overflow(const char* argument, DType type, std::int64_t channel, float scale) {
  return invalid(argument,
                 fmt::format("channel {} would overflow {} when it is smoothed by {}; take another "
                             "alpha, or a wider type",
                             channel, name(type), scale));
}

template <class T>
bool overflows(Compute<T> before, Compute<T> after) {
  return std::isfinite(before) && !std::isfinite(widen(narrow<T>(after)));
}

// The norm's tensor divided by the scales; with `write` unset it is only tried.
Status divide(const char* argument, const TensorMut& t, std::span<const float> scales, bool write) {
  return with_float_type(t.dtype, [&]<class T>() -> Status {
    T* at = static_cast<T*>(t.data);
    for (std::size_t j = 0; j < scales.size(); ++j) {
      T& x = at[static_cast<std::int64_t>(j) * t.strides[0]];
      const Compute<T> before = widen(x);
      const Compute<T> after = before / Compute<T>{scales[j]};
      if (overflows<T>(before, after))
        return overflow(argument, t.dtype, static_cast<std::int64_t>(j), scales[j]);
      if (write) x = narrow<T>(after);
    }
    return {};
  });
}

template <class T>
void multiply_part(const TensorMut& w, std::span<const float> scales, int part, int parts) {
  T* data = static_cast<T*>(w.data);
  const auto scaled = [&](std::int64_t row, std::int64_t column) {
    T& x = data[row * w.strides[0] + column * w.strides[1]];
    x = narrow<T>(widen(x) * Compute<T>{scales[static_cast<std::size_t>(column)]});
  };
  if (w.strides[0] < w.strides[1]) {  // as stored [in, out]: parts share out columns
    for (std::int64_t column = part; column < w.shape[1]; column += parts)
      for (std::int64_t row = 0; row < w.shape[0]; ++row) scaled(row, column);
  } else {
    for (std::int64_t row = part; row < w.shape[0]; row += parts)
      for (std::int64_t column = 0; column < w.shape[1]; ++column) scaled(row, column);
  }
}

Status check_smooth(const SmoothArgs& args, std::vector<TensorRef>& weights) {
  const auto channels = static_cast<std::int64_t>(args.scales.size());
  if (Status s = check_vector("norm_weight", args.norm_weight, channels); !s) return s;
  const bool has_bias = args.norm_bias.data != nullptr || args.norm_bias.shape.rank() != 0;
  if (has_bias)
    if (Status s = check_vector("norm_bias", args.norm_bias, channels); !s) return s;
  weights.assign(args.weights.begin(), args.weights.end());
  if (Status s = check_weights(weights, channels); !s) return s;
  for (std::size_t j = 0; j < args.scales.size(); ++j)
    if (!std::isfinite(args.scales[j]) || args.scales[j] <= 0)
      return invalid(
          "scales", fmt::format("expected finite scales above 0, got {} at {}", args.scales[j], j));
  // What is scaled twice would be wrong.
  std::vector<detail::Extent> extents;
  const auto add = [&](const TensorRef& t) {
    const detail::Extent extent = detail::check_input("", t, t.dtype)->extent;
    const bool fresh = std::none_of(extents.begin(), extents.end(),
                                    [&](const detail::Extent& e) { return e.overlaps(extent); });
    extents.push_back(extent);
    return fresh;
  };
  bool fresh = add(args.norm_weight);
  if (has_bias) fresh = add(args.norm_bias) && fresh;
  for (const TensorRef& w : weights) fresh = add(w) && fresh;
  if (!fresh) return invalid("weights", "expected tensors that share no memory, got some that do");
  return {};
}

}  // namespace

namespace offline {

Result<std::vector<double>> column_absmax(const Stream& stream, std::span<const TensorRef> weights,
                                          std::int64_t channels) {
  std::vector<double> most(static_cast<std::size_t>(channels), 0.0);
  const auto observe = [&](const TensorRef& w) -> Status {
    const auto observer = MinMaxObserver::select(
        stream, {.input = w.dtype, .scope = Layout::per_channel, .axis = 1, .channels = channels});
    if (!observer) return observer.error();
    MinMaxState state = observer->make_state();
    const WorkspaceBuffer workspace(observer->workspace_size());
    if (Status s = observer->run(stream, workspace, {.input = w, .state = &state}); !s) return s;
    for (std::size_t j = 0; j < most.size(); ++j)
      most[j] = std::max(most[j], std::max(-state.low()[j], state.high()[j]));
    return {};
  };
  std::vector<std::byte> rows;
  for (const TensorRef& w : weights) {
    if (is_aligned(w)) {
      if (Status s = observe(w); !s) return s.error();
      continue;
    }
    const std::int64_t step = rows_per_slab(channels);
    for (std::int64_t at = 0; at < w.shape[0]; at += step) {
      const std::int64_t count = std::min(step, w.shape[0] - at);
      gather_rows(w, at, count, rows);
      if (Status s = observe(TensorRef(rows.data(), w.dtype, {count, channels})); !s)
        return s.error();
    }
  }
  return most;
}

std::vector<float> scales_from(std::span<const double> weight_absmax, std::span<const float> absmax,
                               double alpha) {
  const detail::FpEnvironment environment;
  std::vector<float> scales(absmax.size());
  for (std::size_t j = 0; j < scales.size(); ++j)
    scales[j] = numerics::smoothing_scale(absmax[j], weight_absmax[j], alpha);
  return scales;
}

Status check_smoothing(std::span<const TensorRef> weights, std::span<const float> absmax,
                       double alpha) {
  if (!(alpha >= 0.0 && alpha <= 1.0))
    return invalid("alpha", fmt::format("expected 0 to 1, got {}", alpha));
  if (weights.empty()) return invalid("weights", "expected at least one, got none");
  for (std::size_t j = 0; j < absmax.size(); ++j)
    if (!std::isfinite(absmax[j]) || absmax[j] < 0)
      return invalid(
          "absmax", fmt::format("expected finite values of 0 or more, got {} at {}", absmax[j], j));
  return check_weights(weights, static_cast<std::int64_t>(absmax.size()));
}

}  // namespace offline

Result<std::vector<float>> smoothing_scales(const Stream& stream,
                                            std::span<const TensorRef> weights,
                                            std::span<const float> absmax, double alpha) {
  if (Status s = check_smoothing(weights, absmax, alpha); !s) return s.error();
  return guarded("weights", [&]() -> Result<std::vector<float>> {
    const auto most = column_absmax(stream, weights, static_cast<std::int64_t>(absmax.size()));
    if (!most) return most.error();
    return scales_from(*most, absmax, alpha);
  });
}

float static_scale(std::span<const float> absmax) {
  const detail::FpEnvironment environment;
  return numerics::static_scale(absmax, {});
}

Result<float> static_scale(std::span<const float> absmax, std::span<const float> smoothing) {
  if (smoothing.size() != absmax.size())
    return invalid("smoothing",
                   fmt::format("expected {} numbers, got {}", absmax.size(), smoothing.size()));
  const detail::FpEnvironment environment;
  return numerics::static_scale(absmax, smoothing);
}

Status smooth(const Stream& stream, const SmoothArgs& args) {
  return guarded("weights", [&]() -> Status {
    std::vector<TensorRef> weights;
    if (Status s = check_smooth(args, weights); !s) return s;
    const detail::FpEnvironment environment;
    const bool has_bias = args.norm_bias.data != nullptr;
    if (Status s = divide("norm_weight", args.norm_weight, args.scales, false); !s) return s;
    if (has_bias)
      if (Status s = divide("norm_bias", args.norm_bias, args.scales, false); !s) return s;
    const auto channels = static_cast<std::int64_t>(args.scales.size());
    for (const TensorRef& w : weights) {
      const auto most = column_absmax(stream, {&w, 1}, channels);
      if (!most) return most.error();
      for (std::size_t j = 0; j < most->size(); ++j)
        if (column_overflows(w.dtype, (*most)[j], args.scales[j]))
          return overflow("weights", w.dtype, static_cast<std::int64_t>(j), args.scales[j]);
    }
    if (Status s = divide("norm_weight", args.norm_weight, args.scales, true); !s) return s;
    if (has_bias)
      if (Status s = divide("norm_bias", args.norm_bias, args.scales, true); !s) return s;
    for (const TensorMut& w : args.weights) {
      const std::int64_t elements = w.shape[0] * w.shape[1];
      const int parts = detail::parts_of(elements, 65536, stream.threads());
      detail::parallel(stream, parts, [&](int part) {
        with_float_type(w.dtype, [&]<class T>() { multiply_part<T>(w, args.scales, part, parts); });
      });
    }
    return {};
  });
}

namespace offline {

bool column_overflows(DType type, double absmax, float scale) {
  return with_float_type(type, [&]<class T>() {
    const auto before = static_cast<Compute<T>>(absmax);
    return overflows<T>(before, before * Compute<T>{scale});
  });
}

Status divide_vector(const std::string& path, const std::string& tensor, const TensorMut& t,
                     std::span<const float> scales) {
  const detail::FpEnvironment environment;
  const Status s = divide("norm", t, scales, true);
  return s ? s : Status(bad_tensor(path, tensor, s.error().message()));
}

}  // namespace offline
}  // namespace octavo
