// Ranges and observers of more than 2^31 elements. All but the ends of the input is 0, and takes no
// part in a range: what is found, and the ends of the output, are those of the ends alone.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/dynamic_range/testing.hpp"
#include "testing/large.hpp"
#include "testing/lent.hpp"

namespace octavo::testing {
namespace {

constexpr std::int64_t cols = 4096;
constexpr std::int64_t rows = (std::int64_t{1} << 31) / cols + 5;  // beyond 2^31 by 5 rows
constexpr std::int64_t numel_of_all = rows * cols;
constexpr std::int64_t end_rows = 4;
constexpr std::int64_t end = end_rows * cols;  // elements on either side

/// The ends of `c` at the ends of `memory`.
void put_ends(const DynamicCall& c, const Sparse& memory) {
  const std::size_t bytes = c.input.size() / 2;
  const std::int64_t last = bytes_for(c.problem.element, numel_of_all - end);
  std::memcpy(memory.data, c.input.data(), bytes);
  std::memcpy(memory.data + last, c.input.data() + bytes, bytes);
}

struct LargeCase {
  const char* name;
  Layout layout;
  Shape shape;       // of all
  Shape ends_shape;  // of both ends together
  int axis;
  RangeMode mode;
  int threads;
};

class LargeDynamicRange : public ::testing::TestWithParam<LargeCase> {};

TEST_P(LargeDynamicRange, EndsAreRight) {
  if (const std::string why = no_large_tests(); !why.empty()) GTEST_SKIP() << why;
  const LargeCase& g = GetParam();
  const Sparse input(bytes_for(DType::bf16, numel_of_all));
  const Sparse output(numel_of_all);
  if (input.data == nullptr || output.data == nullptr)
    GTEST_SKIP() << "the system refuses to map " << (numel_of_all * 3 >> 20) << " MiB";

  const Kind kind{Op::quantize, g.layout, DType::bf16, DType::s8, Profile::torch};
  const DynamicCall ends = make_dynamic(problem_of(kind, g.ends_shape, g.axis), g.mode, 3);
  const DynamicResult want = expected(ends);
  put_ends(ends, input);

  const Stream stream = Stream::cpu({.threads = g.threads});
  DynamicCall all = ends;
  all.problem.shape = g.shape;
  const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(all));
  ASSERT_TRUE(plan) << plan.error().message();
  const WorkspaceBuffer workspace(plan->workspace_size());
  std::vector<float> scales(static_cast<std::size_t>(plan->slices()), -1.0F);
  std::vector<std::int32_t> zero_points(scales.size(), -1);
  const Status status = plan->run(stream, workspace,
                                  {.input = {input.data, DType::bf16, g.shape},
                                   .output = {output.data, DType::s8, g.shape},
                                   .scales = scales,
                                   .zero_points = zero_points});
  ASSERT_TRUE(status) << status.error().message();

  const auto half = static_cast<std::size_t>(end);
  EXPECT_EQ(std::memcmp(output.data, want.output.data(), half), 0);
  EXPECT_EQ(std::memcmp(output.data + (numel_of_all - end), want.output.data() + half, half), 0);
  // Slices of the ends are all there are, or the first and the last.
  const std::size_t known = want.zero_points.size();
  const bool apart = known < scales.size();
  const std::int32_t none = g.mode == RangeMode::symmetric ? 0 : -128;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::size_t from_end = scales.size() - i;
    float scale = 1;
    std::int32_t zero_point = none;
    if (!apart || i < known / 2 || from_end <= known / 2) {
      const std::size_t at = !apart || i < known / 2 ? i : known - from_end;
      std::memcpy(&scale, want.scales.data() + 4 * at, sizeof(scale));
      zero_point = want.zero_points[at];
    }
    ASSERT_EQ(scales[i], scale) << "slice " << i;
    ASSERT_EQ(zero_points[i], zero_point) << "slice " << i;
  }
}

/// As many zeros on a device, with the ends of a call.
class LargeOnDevice {
 public:
  explicit LargeOnDevice(const Stream& stream)
      : memory_(stream),
        on_(octavo::cuda::cuda_of(stream)) {}
  std::byte* zeros(std::int64_t bytes) {
    void* memory = memory_.allocate(static_cast<std::size_t>(bytes));
    const octavo::cuda::Enqueue enqueue(on_);
    EXPECT_EQ(on_.driver().set_bytes(reinterpret_cast<octavo::cuda::DevicePointer>(memory), 0,
                                     static_cast<std::size_t>(bytes), on_.handle()),
              0);
    return static_cast<std::byte*>(memory);
  }
  std::byte* with_ends(const DynamicCall& c) {
    std::byte* input = zeros(bytes_for(DType::bf16, numel_of_all));
    const std::size_t bytes = c.input.size() / 2;
    memory_.write(input, c.input.data(), bytes);
    memory_.write(input + bytes_for(DType::bf16, numel_of_all - end), c.input.data() + bytes,
                  bytes);
    return input;
  }
  [[nodiscard]] Bytes read(const std::byte* from, std::int64_t bytes) {
    Bytes to(static_cast<std::size_t>(bytes));
    memory_.read(from, to.size(), to.data());
    return to;
  }

 private:
  CudaMemory memory_;
  octavo::cuda::CudaStream& on_;
};

TEST_P(LargeDynamicRange, EndsAreRightOnCuda) {
  if (!all_cuda_tests()) GTEST_SKIP() << "OCTAVO_TEST_CUDA is not all";
  const LargeCase& g = GetParam();
  const Kind kind{Op::quantize, g.layout, DType::bf16, DType::s8, Profile::torch};
  const DynamicCall ends = make_dynamic(problem_of(kind, g.ends_shape, g.axis), g.mode, 3);
  const DynamicResult want = expected(ends);
  const Stream stream = *cuda_stream();
  LargeOnDevice device(stream);
  std::byte* input = device.with_ends(ends);
  std::byte* output = device.zeros(numel_of_all);
  DynamicCall all = ends;
  all.problem.shape = g.shape;
  const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(all));
  ASSERT_TRUE(plan) << plan.error().message();
  const WorkspaceBuffer workspace(stream, plan->workspace_size());
  std::byte* scales = device.zeros(plan->slices() * 4);
  std::byte* zero_points = device.zeros(plan->slices() * 4);
  const Shape slices{plan->slices()};
  const Status status = plan->run(stream, workspace,
                                  {.input = {input, DType::bf16, g.shape},
                                   .output = {output, DType::s8, g.shape},
                                   .scales = {scales, DType::f32, slices},
                                   .zero_points = {zero_points, DType::s32, slices}});
  ASSERT_TRUE(status) << status.error().message();
  const Status waited = stream.synchronize();
  ASSERT_TRUE(waited) << waited.error().message();
  const auto half = static_cast<std::ptrdiff_t>(end);
  EXPECT_TRUE(device.read(output, end) == Bytes(want.output.begin(), want.output.begin() + half));
  EXPECT_TRUE(device.read(output + (numel_of_all - end), end) ==
              Bytes(want.output.begin() + half, want.output.end()));
  // The first slice and the last.
  const auto last = plan->slices() - 1;
  EXPECT_TRUE(device.read(scales, 4) == Bytes(want.scales.begin(), want.scales.begin() + 4));
  EXPECT_TRUE(device.read(scales + 4 * last, 4) == Bytes(want.scales.end() - 4, want.scales.end()));
  const auto is = [&](const std::byte* at, std::int32_t value) {
    return std::memcmp(device.read(at, 4).data(), &value, 4) == 0;
  };
  EXPECT_TRUE(is(zero_points, want.zero_points.front()));
  EXPECT_TRUE(is(zero_points + 4 * last, want.zero_points.back()));
}

INSTANTIATE_TEST_SUITE_P(
    Scopes, LargeDynamicRange,
    ::testing::Values(
        LargeCase{"many_rows",
                  Layout::per_token,
                  {rows, cols},
                  {2 * end_rows, cols},
                  0,
                  RangeMode::asymmetric,
                  3},
        LargeCase{"one_row",
                  Layout::per_token,
                  {1, numel_of_all},
                  {1, 2 * end},
                  0,
                  RangeMode::symmetric,
                  1},
        LargeCase{
            "tensor", Layout::per_tensor, {numel_of_all}, {2 * end}, 0, RangeMode::asymmetric, 3},
        LargeCase{"channels",
                  Layout::per_channel,
                  {rows, cols},
                  {2 * end_rows, cols},
                  1,
                  RangeMode::symmetric,
                  3}),
    [](const auto& info) { return std::string(info.param.name); });

// The histogram counts beyond int32, in one bin.
TEST(LargeObserver, CountsEveryElement) {
  if (const std::string why = no_large_tests(); !why.empty()) GTEST_SKIP() << why;
  const Sparse input(bytes_for(DType::bf16, numel_of_all));
  if (input.data == nullptr) GTEST_SKIP() << "the system refuses";
  const Kind kind{Op::quantize, Layout::per_tensor, DType::bf16, DType::s8, Profile::torch};
  const DynamicCall ends = make_dynamic(problem_of(kind, {2 * end}), RangeMode::asymmetric, 3);
  put_ends(ends, input);
  const Stream stream = Stream::cpu();
  const auto observer = HistogramObserver::select(stream, {.input = DType::bf16});
  ASSERT_TRUE(observer);
  const WorkspaceBuffer workspace(observer->workspace_size());
  const auto seen = [&](const void* data, std::int64_t n) {
    HistogramState state = observer->make_state();
    EXPECT_TRUE(observer->run(stream, workspace,
                              {.input = {data, DType::bf16, Shape{n}}, .state = &state}));
    return state;
  };
  const HistogramState all = seen(input.data, numel_of_all);
  const HistogramState small = seen(ends.input.data(), 2 * end);
  EXPECT_EQ(all.extremes(), small.extremes());
  std::vector<std::int64_t> counts = small.counts();
  counts[0] += numel_of_all - 2 * end;
  EXPECT_EQ(all.counts(), counts);
}

TEST(LargeObserver, CountsEveryElementOnCuda) {
  if (!all_cuda_tests()) GTEST_SKIP() << "OCTAVO_TEST_CUDA is not all";
  const Kind kind{Op::quantize, Layout::per_tensor, DType::bf16, DType::s8, Profile::torch};
  const DynamicCall ends = make_dynamic(problem_of(kind, {2 * end}), RangeMode::asymmetric, 3);
  const auto seen = [&](const Stream& stream, const void* data, std::int64_t n) {
    const auto observer = HistogramObserver::select(stream, {.input = DType::bf16});
    const WorkspaceBuffer workspace(stream, observer->workspace_size());
    HistogramState state = observer->make_state();
    EXPECT_TRUE(observer->run(stream, workspace,
                              {.input = {data, DType::bf16, Shape{n}}, .state = &state}));
    return state;
  };
  const Stream stream = *cuda_stream();
  LargeOnDevice device(stream);
  const HistogramState all = seen(stream, device.with_ends(ends), numel_of_all);
  const HistogramState small = seen(Stream::cpu(), ends.input.data(), 2 * end);
  EXPECT_EQ(all.extremes(), small.extremes());
  std::vector<std::int64_t> counts = small.counts();
  counts[0] += numel_of_all - 2 * end;
  EXPECT_EQ(all.counts(), counts);
}

}  // namespace
}  // namespace octavo::testing
