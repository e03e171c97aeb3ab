// Quantize, dequantize, fake-quantize and their backward passes: every type per tensor, and f32
// with s8 in every layout.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "measuring/limit.hpp"
#include "octavo/octavo.hpp"
#include "peers.hpp"

namespace octavo::bench {
namespace {

// A layout as benchmarked: the axis tells the two kinds of channels apart.
struct View {
  Layout layout;
  int axis;  // of [rows, cols]: which has its own scales; -1: none
  const char* name;
  std::int64_t cols = 4096;  // but no fewer than four rows
};
constexpr std::array<View, 6> views{{
    {Layout::per_tensor, -1, "per_tensor"},
    {Layout::per_channel, 0, "per_channel/first"},
    {Layout::per_channel, 1, "per_channel/last"},
    {Layout::per_channel, 1, "per_channel/last_of_64", 64},
    {Layout::per_token, 0, "per_token"},
    {Layout::per_group, 0, "per_group"},
}};

struct Size {
  std::int64_t elements;
  const char* name;
  double seconds;  // for each case
};
constexpr std::array<Size, 3> sizes{{
    {std::int64_t{4} << 10, "4K", 0.3},
    {std::int64_t{1} << 20, "1M", 0.5},
    {std::int64_t{64} << 20, "64M", 2.0},
}};

constexpr std::array ops{
    Op::quantize,          Op::dequantize,          Op::fake_quantize,
    Op::quantize_backward, Op::dequantize_backward, Op::fake_quantize_backward};
constexpr std::array reals{DType::f32, DType::f64, DType::f16, DType::bf16};
constexpr std::array integers{DType::s8, DType::u8, DType::s4, DType::u4, DType::s16};
constexpr std::array profiles{Profile::torch, Profile::onnx};

constexpr std::int64_t group_size = 128;  // of per_group

struct Case {
  Op op = Op::quantize;
  View view{};
  DType real = DType::f32;
  DType integer = DType::s8;
  Profile profile = Profile::torch;
  Size size{};
  std::int64_t rows = 0, cols = 0;
  int threads = 1;

  [[nodiscard]] bool stores_integers() const { return op == Op::quantize || op == Op::dequantize; }
  [[nodiscard]] bool has_profile() const { return op == Op::quantize || op == Op::fake_quantize; }
  [[nodiscard]] bool is_backward() const {
    return op != Op::quantize && op != Op::dequantize && op != Op::fake_quantize;
  }
  [[nodiscard]] bool reads_input() const { return op != Op::dequantize_backward; }
  [[nodiscard]] DType input() const { return op == Op::dequantize ? integer : real; }
  [[nodiscard]] DType output() const { return op == Op::quantize ? integer : real; }

  [[nodiscard]] std::int64_t elements() const { return rows * cols; }
  [[nodiscard]] std::int64_t scale_count() const {
    switch (view.layout) {
      case Layout::per_tensor:
        return 1;
      case Layout::per_group:
        return elements() / group_size;
      case Layout::per_channel:
      case Layout::per_token:
        break;
    }
    return view.axis == 0 ? rows : cols;
  }

  [[nodiscard]] std::string name() const {
    std::string text = "elementwise/" + std::string(octavo::name(op));
    const auto add = [&](std::string_view part) { text.append("/").append(part); };
    add(octavo::name(input()));
    if (stores_integers()) add(octavo::name(output()));
    add(view.name);
    if (has_profile()) add(octavo::name(profile));
    add(size.name);
    add(std::to_string(threads) + 't');
    return text;
  }
};

// The buffers of all cases, and the parameters: unsigned types have their zero point in the middle,
// signed ones at 0, as oneDNN and most models have it.
struct Data {
  Buffer input_buffer, grad_buffer, output_buffer;
  std::byte* input = nullptr;
  std::byte* grad = nullptr;
  std::byte* output = nullptr;
  std::vector<double> scales;
  std::vector<float> scales_f32;
  std::vector<std::int32_t> zero_points;

  void prepare(const Case& c) {
    const std::int64_t n = c.elements();
    input = input_buffer.reserve(bytes_for(c.input(), n));
    output = output_buffer.reserve(bytes_for(c.output(), n));
    fill_random(input, c.input(), n, 1);
    if (c.is_backward()) {
      grad = grad_buffer.reserve(bytes_for(c.real, n));
      fill_random(grad, c.real, n, 2);
    }
    const IntRange range = storage_range(c.integer);
    scales.clear();
    for (std::int64_t i = 0; i < c.scale_count(); ++i)
      scales.push_back(12.8 / (range.max - range.min) * (1.0 + 0.01 * static_cast<double>(i % 17)));
    scales_f32.assign(scales.begin(), scales.end());
    scales.assign(scales_f32.begin(), scales_f32.end());
    zero_points.assign(scales.size(), range.min == 0 ? (range.max + 1) / 2 : 0);
  }
};

// Selects a plan for the case and binds it to the data.
template <class Plan>
Result<std::function<void()>> bind(const Case& c, const Data& data) {
  typename Plan::Descriptor d;
  Shape shape{c.rows, c.cols};
  if constexpr (requires { d.numel; }) {
    d.numel = c.elements();
    shape = {c.elements()};
  } else if constexpr (requires { d.tokens; }) {
    d.tokens = c.rows;
    d.hidden = c.cols;
  } else if constexpr (requires { d.group_size; }) {
    d.rows = c.rows;
    d.cols = c.cols;
    d.group_size = group_size;
  } else {
    d.shape = shape;
    d.axis = c.view.axis;
  }
  const bool to_real = c.op == Op::dequantize || c.op == Op::dequantize_backward;
  if constexpr (requires { d.element; }) {
    d.element = c.real;
    d.q_min = storage_range(c.integer).min;
    d.q_max = storage_range(c.integer).max;
  } else {
    d.input = to_real ? c.integer : c.real;
    d.output = to_real ? c.real : c.integer;
  }
  if constexpr (requires { d.profile; }) d.profile = c.profile;

  typename Plan::Args args;
  if constexpr (requires { args.input; }) args.input = {data.input, c.input(), shape};
  if constexpr (requires { args.grad_output; }) args.grad_output = {data.grad, c.real, shape};
  if constexpr (requires { args.output; }) {
    args.output = {data.output, c.output(), shape};
  } else {
    args.grad_input = {data.output, c.real, shape};
  }
  if constexpr (requires { args.scales; }) {
    const Shape count{c.scale_count()};
    args.scales = {data.scales_f32.data(), count};
    if constexpr (requires { args.zero_points; })
      args.zero_points = {data.zero_points.data(), count};
  } else {
    args.scale = data.scales[0];
    if constexpr (requires { args.zero_point; }) args.zero_point = data.zero_points[0];
  }

  const Stream stream = Stream::cpu({.threads = c.threads});
  auto plan = Plan::select(stream, d);
  if (!plan) return plan.error();
  if (auto status = plan->can_implement(args); !status) return status.error();
  return std::function<void()>(
      [stream, plan = *std::move(plan), args] { (void)plan.run(stream, {}, args); });
}

using Bind = Result<std::function<void()>> (*)(const Case&, const Data&);

// By operation and layout, in the order of the enums.
constexpr Bind binds[6][4] = {
    {bind<QuantizePerTensorPlan>, bind<QuantizePerChannelPlan>, bind<QuantizePerTokenPlan>,
     bind<QuantizePerGroupPlan>},
    {bind<QuantizePerTensorBackwardPlan>, bind<QuantizePerChannelBackwardPlan>,
     bind<QuantizePerTokenBackwardPlan>, bind<QuantizePerGroupBackwardPlan>},
    {bind<DequantizePerTensorPlan>, bind<DequantizePerChannelPlan>, bind<DequantizePerTokenPlan>,
     bind<DequantizePerGroupPlan>},
    {bind<DequantizePerTensorBackwardPlan>, bind<DequantizePerChannelBackwardPlan>,
     bind<DequantizePerTokenBackwardPlan>, bind<DequantizePerGroupBackwardPlan>},
    {bind<FakeQuantizePlan>, bind<FakeQuantizePerChannelPlan>, bind<FakeQuantizePerTokenPlan>,
     bind<FakeQuantizePerGroupPlan>},
    {bind<FakeQuantizeBackwardPlan>, bind<FakeQuantizePerChannelBackwardPlan>,
     bind<FakeQuantizePerTokenBackwardPlan>, bind<FakeQuantizePerGroupBackwardPlan>},
};

Result<std::function<void()>> ours(const Case& c, const Data& data) {
  return binds[static_cast<int>(c.op)][static_cast<int>(c.view.layout)](c, data);
}

octavo_peer_elementwise peer_problem(const Case& c, const Data& data) {
  const bool grouped = c.view.layout == Layout::per_group;
  return {.op = static_cast<int>(c.op),
          .real = static_cast<int>(c.real),
          .integer = static_cast<int>(c.integer),
          .rows = grouped ? c.elements() / group_size : c.rows,
          .cols = grouped ? group_size : c.cols,
          .axis = c.view.axis,
          .q_min = storage_range(c.integer).min,
          .q_max = storage_range(c.integer).max,
          .scales = data.scales.data(),
          .zero_points = data.zero_points.data(),
          .scale_count = c.scale_count(),
          .input = data.input,
          .grad = data.grad,
          .output = data.output,
          .threads = c.threads};
}

// Peers must do the same work to be compared with: says so on standard error if one does not.
void compare_results(const Case& c, const Data& data, const Competitor& own,
                     const std::vector<PeerTask>& tasks) {
  const std::int64_t n = c.elements();
  std::vector<std::byte> expected(static_cast<std::size_t>(bytes_for(c.output(), n)));
  own.run();
  std::memcpy(expected.data(), data.output, expected.size());
  for (const auto& task : tasks) {
    const auto wrong = differences(expected.data(), task.run(), c.output(), n);
    if (wrong)
      std::fprintf(stderr, "%s: %s differs in %lld of %lld elements\n", c.name().c_str(),
                   task.peer->name, static_cast<long long>(wrong), static_cast<long long>(n));
  }
}

void run_case(benchmark::State& state, const Case& c, bool quick) {
  static Data data;
  data.prepare(c);
  Case half = c, torch = c;
  half.rows /= 2;
  torch.profile = Profile::torch;

  std::vector<Competitor> field;
  const auto enter = [&](const char* name, Kind kind, const Case& what) {
    auto run = ours(what, data);
    if (run) {
      field.push_back({.name = name, .kind = kind, .run = *std::move(run)});
    } else {
      state.SkipWithError(run.error().message().c_str());
    }
  };
  enter("octavo", Kind::ours, c);
  if (c.size.elements == sizes[0].elements) enter("half", Kind::variant, half);
  if (c.profile == Profile::onnx) enter("torch profile", Kind::variant, torch);
  if (state.error_occurred()) return;

  const auto tasks = peer_tasks(peer_problem(c, data));
  if (c.profile == Profile::torch && c.size.elements == sizes[0].elements)
    compare_results(c, data, field[0], tasks);
  for (const auto& task : tasks)
    field.push_back({.name = task.peer->name, .run = [task] { (void)task.run(); }});

  const bool two_inputs = c.is_backward() && c.reads_input();
  const measuring::Traffic traffic{.input = c.reads_input() ? data.input : data.grad,
                                   .second = two_inputs ? data.grad : nullptr,
                                   .output = data.output,
                                   .input_bytes = bytes_for(c.input(), c.elements()),
                                   .output_bytes = bytes_for(c.output(), c.elements())};
  measuring::add_limits(field, traffic, c.threads);

  race(field, c.size.seconds, quick, c.threads > 1);
  const double seconds = field[0].seconds;
  for (const auto& other : field) {
    // Time is linear in the length here, so this is what a call costs for no elements at all.
    if (other.name == "half") state.counters["run_ns"] = 1e9 * (2 * other.seconds - seconds);
    if (other.name == "torch profile") state.counters["onnx_cost"] = seconds / other.seconds;
  }
  report(state, field, c.elements(), traffic.bytes());
}

void add_sizes(const Options& options, Case c) {
  const int all = Stream::cpu().threads();
  for (const auto& size : sizes) {
    c.size = size;
    c.cols = std::min(c.view.cols, size.elements / 4);
    c.rows = size.elements / c.cols;
    for (c.threads = 1; c.threads <= all; c.threads += std::max(1, all - 1)) {
      add_case(options, c.name(),
               [c, quick = options.quick](benchmark::State& s) { run_case(s, c, quick); });
    }
  }
}

}  // namespace

void add_elementwise(const Options& options) {
  for (const auto op : ops)
    for (const auto& view : views)
      for (const auto real : reals)
        for (const auto integer : integers)
          for (const auto profile : profiles) {
            const Case c{
                .op = op, .view = view, .real = real, .integer = integer, .profile = profile};
            const bool main_types = real == DType::f32 && integer == DType::s8;
            if (profile != profiles[0] && !c.has_profile()) continue;
            if (integer != integers[0] && !c.stores_integers()) continue;
            if (!main_types && (options.quick || view.layout != Layout::per_tensor)) continue;
            add_sizes(options, c);
          }
}

}  // namespace octavo::bench
