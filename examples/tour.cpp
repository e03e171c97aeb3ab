// octavo_tour: what the library does, on small embedded data. Ends with 1 if any two results that
// must have the same bits do not.
#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tour_data.hpp"

namespace {

using namespace tour;
using namespace octavo;

// ---- To integers and back ----------------------------------------------------------------------

struct RoundTrip {
  std::string title;
  DType type;
  std::int64_t length;  // consecutive elements that share a scale
  std::vector<float> errors;
};

void print_heading() {
  std::printf("   %-30s %6s  %11s  %9s  %9s  %7s\n", "", "scales", "bits/number", "max error",
              "RMS error", "SNR");
}

void print_line(const Matrix& m, const Parameters& p, const RoundTrip& trip) {
  double most = 0;
  double noise = 0;
  double signal = 0;
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    const double e = trip.errors[i];
    most = std::max(most, std::abs(e));
    noise += e * e;
    signal += double{m.values[i]} * m.values[i];
  }
  const auto n = static_cast<double>(m.numel());
  const bool shifted = std::any_of(p.zero_points.begin(), p.zero_points.end(),
                                   [](std::int32_t zero_point) { return zero_point != 0; });
  const auto parameters = static_cast<double>(shifted ? 2 * p.scales.size() : p.scales.size());
  const double number_bits = bits(trip.type) + 32 * parameters / n;
  std::printf("   %-3s %-26s %6zu  %11.2f  %9.5f  %9.5f  %4.1f dB\n",
              std::string(name(trip.type)).c_str(), trip.title.c_str(), p.scales.size(),
              number_bits, most, std::sqrt(noise / n), 10 * std::log10(signal / noise));
}

// x to integers of trip.type and back, with one scale for the whole, for each row or each group.
struct Buffers {
  TensorRef x;
  TensorMut q;
  TensorMut back;
};
void per_tensor(const Stream& stream, const Buffers& b, const Parameters& p,
                const RoundTrip& trip) {
  const std::int64_t n = trip.length;
  const double scale = p.scales[0];
  const std::int32_t zero = p.zero_points[0];
  run<QuantizePerTensorPlan>(stream, {.numel = n, .output = trip.type},
                             {.input = b.x, .scale = scale, .zero_point = zero, .output = b.q});
  run<DequantizePerTensorPlan>(
      stream, {.numel = n, .input = trip.type},
      {.input = b.q, .scale = scale, .zero_point = zero, .output = b.back});
}
void per_row(const Stream& stream, const Buffers& b, const Parameters& p, const RoundTrip& trip) {
  const Shape& shape = b.x.shape;
  run<QuantizePerChannelPlan>(
      stream, {.shape = shape, .axis = 0, .output = trip.type},
      {.input = b.x, .scales = p.scales, .zero_points = p.zero_points, .output = b.q});
  run<DequantizePerChannelPlan>(
      stream, {.shape = shape, .axis = 0, .input = trip.type},
      {.input = b.q, .scales = p.scales, .zero_points = p.zero_points, .output = b.back});
}
void per_group(const Stream& stream, const Buffers& b, const Parameters& p, const RoundTrip& trip) {
  const auto [rows, cols] = std::pair(b.x.shape[0], b.x.shape[1]);
  run<QuantizePerGroupPlan>(
      stream, {.rows = rows, .cols = cols, .group_size = trip.length, .output = trip.type},
      {.input = b.x, .scales = p.scales, .zero_points = p.zero_points, .output = b.q});
  run<DequantizePerGroupPlan>(
      stream, {.rows = rows, .cols = cols, .group_size = trip.length, .input = trip.type},
      {.input = b.q, .scales = p.scales, .zero_points = p.zero_points, .output = b.back});
}

void measure(const Stream& stream, const Matrix& m, const Parameters& p, RoundTrip& trip) {
  std::vector<std::byte> q(static_cast<std::size_t>(bytes_for(trip.type, m.numel())));
  std::vector<float> back(m.values.size());
  const Buffers buffers{{m.values, m.shape()}, {q.data(), trip.type, m.shape()}, {back, m.shape()}};
  if (trip.length == m.numel()) {
    per_tensor(stream, buffers, p, trip);
  } else if (trip.length == m.cols) {
    per_row(stream, buffers, p, trip);
  } else {
    per_group(stream, buffers, p, trip);
  }
  for (std::size_t i = 0; i < back.size(); ++i) trip.errors.push_back(back[i] - m.values[i]);
  print_line(m, p, trip);
}

// How often each size of error occurs, two round trips side by side.
void print_histogram(const RoundTrip& left, const RoundTrip& right) {
  constexpr int bins = 11;
  constexpr int width = 30;
  float reach = 0;
  for (const float e : left.errors) reach = std::max(reach, std::abs(e));
  const auto count = [&](const RoundTrip& trip) {
    std::array<int, bins> counts{};
    for (const float e : trip.errors) {
      const int bin = static_cast<int>((e / reach + 1) / 2 * bins);
      ++counts[static_cast<std::size_t>(std::clamp(bin, 0, bins - 1))];
    }
    return counts;
  };
  const auto bars = std::array{count(left), count(right)};
  const int most = std::max(*std::max_element(bars[0].begin(), bars[0].end()),
                            *std::max_element(bars[1].begin(), bars[1].end()));
  const auto bar = [&](int n) {
    return std::string(static_cast<std::size_t>((n * width + most - 1) / most), '#');
  };
  std::printf("\n   %9s  %-*s  %s\n", "error", width, ("s4 " + left.title).c_str(),
              ("s4 " + right.title).c_str());
  for (std::size_t i = 0; i < bins; ++i) {
    const float centre = reach * (2 * (static_cast<float>(i) + 0.5F) / bins - 1);
    std::printf("   %+9.4f |%-*s |%s\n", double{centre}, width, bar(bars[0][i]).c_str(),
                bar(bars[1][i]).c_str());
  }
}

void show_round_trips(const Stream& stream) {
  const Matrix weights = make_weights(64, 256);
  std::puts("1. Weights [64, 256], f32, to integers and back: finer scales, smaller errors\n");
  print_heading();
  std::vector<RoundTrip> s4;
  for (const DType type : {DType::s8, DType::s4}) {
    const int q_max = storage_range(type).max;
    for (RoundTrip trip : {RoundTrip{"per tensor", type, weights.numel(), {}},
                           RoundTrip{"per channel (row)", type, weights.cols, {}},
                           RoundTrip{"per group of 32", type, 32, {}}}) {
      const Parameters p = symmetric(weights.values, trip.length, q_max);
      measure(stream, weights, p, trip);
      if (type == DType::s4) s4.push_back(trip);
    }
  }
  print_histogram(s4.front(), s4.back());

  const Matrix activations = make_activations(96, 256);
  std::puts("\n2. Activations [96, 256], mostly positive: a zero point uses the whole range\n");
  print_heading();
  RoundTrip plain{"per token", DType::s8, activations.cols, {}};
  measure(stream, activations, symmetric(activations.values, activations.cols, 127), plain);
  RoundTrip shifted{"per token, zero points", DType::u8, activations.cols, {}};
  measure(stream, activations, asymmetric_u8(activations.values, activations.cols), shifted);
}

// ---- Training ----------------------------------------------------------------------------------

void show_training(const Stream& stream) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{-9.0F, -2.2F, -1.1F, 0.25F, 0.26F, 0.75F, 1.7F, 1.8F, nan};
  const std::vector<float> dy(x.size(), 1.0F);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  const FakeQuantizeDescriptor what{
      .numel = static_cast<std::int64_t>(x.size()), .q_min = -4, .q_max = 3};
  run<FakeQuantizePlan>(stream, what, {.input = x, .scale = 0.5, .output = y});
  run<FakeQuantizeBackwardPlan>(stream, what,
                                {.input = x, .grad_output = dy, .scale = 0.5, .grad_input = dx});
  std::puts(
      "\n3. Fake-quantize, for training: scale 0.5, integers -4 to 3. The gradient passes where"
      "\n   nothing was cut off; halves round to even; a NaN stays visible\n");
  const auto row = [](const char* title, const std::vector<float>& values) {
    std::printf("   %-14s", title);
    for (const float value : values) std::printf(" %6.2f", double{value});
    std::puts("");
  };
  row("x", x);
  row("fake-quantized", y);
  row("dy", dy);
  row("dx", dx);
}

// ---- The same bits -----------------------------------------------------------------------------

// Of all results below, on every CPU there is.
constexpr std::uint64_t recorded = 0xB3AEE999290097DD;

// Four operations, four granularities, both profiles: one digest.
std::uint64_t digest_of(const Stream& stream, const Matrix& m) {
  constexpr std::int64_t group = 24;
  const std::vector<float> row_scales(static_cast<std::size_t>(m.rows), 0.05F);
  const std::vector<float> column_scales(static_cast<std::size_t>(m.cols), 0.03F);
  const std::vector<float> group_scales(static_cast<std::size_t>(m.numel() / group), 0.3F);
  const std::vector<std::int32_t> zero_points(row_scales.size(), 7);
  const TensorRef x(m.values, m.shape());
  std::vector<std::int8_t> q(m.values.size());
  std::vector<s4x2> packed(m.values.size() / 2);
  std::vector<float> y(m.values.size());
  std::vector<float> dx(m.values.size());

  run<QuantizePerTensorPlan>(stream, {.numel = m.numel()},
                             {.input = x, .scale = 0.05, .zero_point = 3, .output = {q, x.shape}});
  run<QuantizePerGroupPlan>(
      stream,
      {.rows = m.rows,
       .cols = m.cols,
       .group_size = group,
       .output = DType::s4,
       .profile = Profile::onnx},
      {.input = x, .scales = group_scales, .zero_points = {}, .output = {packed, x.shape}});
  run<FakeQuantizePerChannelPlan>(
      stream, {.shape = x.shape, .axis = 1},
      {.input = x, .scales = column_scales, .zero_points = {}, .output = {y, x.shape}});
  run<QuantizePerTokenBackwardPlan>(stream,
                                    {.tokens = m.rows, .hidden = m.cols, .profile = Profile::onnx},
                                    {.input = x,
                                     .grad_output = x,
                                     .scales = row_scales,
                                     .zero_points = zero_points,
                                     .grad_input = {dx, x.shape}});

  Digest digest;
  digest.add(std::as_bytes(std::span(q)));
  digest.add(std::as_bytes(std::span(packed)));
  digest.add(std::as_bytes(std::span(y)));
  digest.add(std::as_bytes(std::span(dx)));
  return digest.value();
}

bool show_same_bits() {
  constexpr std::array thread_counts{1, 2, 3, 7};
  const Matrix m = make_hard(1740, 264);  // enough for seven threads
  std::printf(
      "\n4. The same bits from every kernel and any number of threads: %" PRId64
      " numbers, with NaN,\n   infinities, subnormals and ties, through four operations\n\n",
      m.numel());
  std::printf("   %-13s  %-10s", "targets up to", "code ran");
  for (const int threads : thread_counts)
    std::printf("  %16s",
                (std::to_string(threads) + (threads == 1 ? " thread" : " threads")).c_str());
  std::puts("");
  bool same = true;
  for (const Target target : available_targets()) {
    std::atomic<std::uint32_t> trace{0};
    std::string digests;
    for (const int threads : thread_counts) {
      const std::uint64_t digest =
          digest_of(Stream::cpu({.threads = threads, .cap = target, .trace = &trace}), m);
      same = same && digest == recorded;
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "  %016" PRIx64, digest);
      digests += text.data();
    }
    std::string ran;
    for (int i = 0; i < target_count; ++i)
      if ((trace.load() >> i & 1U) != 0)
        ran += (ran.empty() ? "" : " ") + std::string(name(static_cast<Target>(i)));
    std::printf("   %-13s  %-10s%s\n", std::string(name(target)).c_str(), ran.c_str(),
                digests.c_str());
  }
  std::printf("   %s\n", same ? "All equal, and equal to the digest on record for every CPU."
                              : "DIFFERENT: please report this, with the table above.");
  return same;
}

// ---- What a plan tells -------------------------------------------------------------------------

void show_answers(const Stream& stream) {
  std::puts("\n5. A plan names the kernel it chose, and a refusal says what to do\n");
  const auto plan = QuantizePerChannelPlan::select(stream, {.shape = {4, 3}, .axis = 0});
  must(plan);
  std::printf("   kernel   %s\n", to_string(plan->sku()).c_str());

  const std::vector<float> x(12);
  const std::vector<float> scales{0.1F, 0.2F, 0.0F, 0.4F};
  std::vector<std::int8_t> q(12);
  const Status status =
      plan->run(stream, {},
                {.input = {x, {4, 3}}, .scales = scales, .zero_points = {}, .output = {q, {4, 3}}});
  if (!status) std::printf("   refused  %s\n", status.error().message().c_str());
  const auto other =
      QuantizePerGroupPlan::select(stream, {.rows = 8, .cols = 100, .group_size = 32});
  if (!other) std::printf("   refused  %s\n", other.error().message().c_str());
}

}  // namespace

int main() {
  const Stream stream = Stream::cpu();
  std::printf("Octavo on this CPU: %d threads; targets", stream.threads());
  for (const Target target : available_targets())
    std::printf(" %s", std::string(name(target)).c_str());
  std::puts("\n");
  show_round_trips(stream);
  show_training(stream);
  const bool same = show_same_bits();
  show_answers(stream);
  return same ? 0 : 1;
}
