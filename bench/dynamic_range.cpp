// Dynamic-range quantize per row: range, scale and quantize. The limit reads the input once and
// writes the output once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness.hpp"
#include "measuring/limit.hpp"
#include "octavo/octavo.hpp"
#include "peers.hpp"

namespace octavo::bench {
namespace {

struct Rows {
  std::int64_t rows, cols;
  const char* name;
  double seconds;  // for each case
};
constexpr std::array<Rows, 4> shapes{{{1, 4096, "1x4096", 0.3},
                                      {16, 11008, "16x11008", 0.4},
                                      {65536, 128, "65536x128", 1.0},
                                      {4096, 4096, "4096x4096", 1.0}}};

struct Case {
  Rows shape{};
  DType real = DType::f32;
  DType integer = DType::s8;
  RangeMode mode = RangeMode::symmetric;
  Profile profile = Profile::torch;
  int threads = 1;

  [[nodiscard]] Op op() const {
    return mode == RangeMode::symmetric ? Op::dynamic_range_quantize
                                        : Op::dynamic_range_quantize_asymmetric;
  }
  [[nodiscard]] std::string name() const {
    return "dynamic_range/" + std::string(octavo::name(op())) + "/" +
           std::string(octavo::name(real)) + "/" + std::string(octavo::name(integer)) +
           "/per_token/" + std::string(octavo::name(profile)) + "/" + shape.name + "/" +
           std::to_string(threads) + "t";
  }
};

void run_case(benchmark::State& state, const Case& c, bool quick) {
  static Buffer input_buffer, output_buffer;
  const std::int64_t n = c.shape.rows * c.shape.cols;
  const Shape shape{c.shape.rows, c.shape.cols};
  std::byte* input = input_buffer.reserve(bytes_for(c.real, n));
  std::byte* output = output_buffer.reserve(bytes_for(c.integer, n));
  fill_random(input, c.real, n, 1);
  std::vector<float> scales(static_cast<std::size_t>(c.shape.rows));
  std::vector<std::int32_t> zero_points(scales.size());

  const Stream stream = Stream::cpu({.threads = c.threads});
  const auto plan = DynamicRangeQuantizePlan::select(
      stream,
      {.shape = shape, .mode = c.mode, .input = c.real, .output = c.integer, .profile = c.profile});
  if (!plan) return state.SkipWithError(plan.error().message().c_str());
  const DynamicRangeQuantizeArgs args{.input = {input, c.real, shape},
                                      .output = {output, c.integer, shape},
                                      .scales = scales,
                                      .zero_points = zero_points};
  if (const auto status = plan->can_implement(args); !status)
    return state.SkipWithError(status.error().message().c_str());

  std::vector<Competitor> field{
      {.name = "octavo", .kind = Kind::ours, .run = [&] { (void)plan->run(stream, {}, args); }}};
  const octavo_peer_elementwise problem{.op = static_cast<int>(c.op()),
                                        .real = static_cast<int>(c.real),
                                        .integer = static_cast<int>(c.integer),
                                        .rows = c.shape.rows,
                                        .cols = c.shape.cols,
                                        .axis = 0,
                                        .q_min = -128,
                                        .q_max = 127,
                                        .scales = nullptr,
                                        .zero_points = nullptr,
                                        .scale_count = c.shape.rows,
                                        .input = input,
                                        .grad = nullptr,
                                        .output = output,
                                        .threads = c.threads};
  if (c.integer == DType::s8)  // (peers have no other)
    for (const auto& task : peer_tasks(problem))
      field.push_back({.name = task.peer->name, .run = [task] { (void)task.run(); }});
  const measuring::Traffic traffic{.input = input,
                                   .second = nullptr,
                                   .output = output,
                                   .input_bytes = bytes_for(c.real, n),
                                   .output_bytes = bytes_for(c.integer, n)};
  measuring::add_limits(field, traffic, c.threads);
  race(field, c.shape.seconds, quick, c.threads > 1);
  report(state, field, n, traffic.bytes());
}

}  // namespace

void add_dynamic_range(const Options& options) {
  const int all = Stream::cpu().threads();
  for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric})
    for (const DType real : {DType::f32, DType::bf16})
      for (const Profile profile : {Profile::torch, Profile::onnx})
        for (const DType integer : {DType::s8, DType::s16})
          for (const Rows& shape : shapes)
            for (int threads = 1; threads <= all; threads += std::max(1, all - 1)) {
              // (Of s16, what linear layers do.)
              const bool main = mode == RangeMode::symmetric && profile == Profile::torch;
              if (integer != DType::s8 && (!main || options.quick)) continue;
              const Case c{shape, real, integer, mode, profile, threads};
              add_case(options, c.name(),
                       [c, quick = options.quick](benchmark::State& s) { run_case(s, c, quick); });
            }
}

}  // namespace octavo::bench
