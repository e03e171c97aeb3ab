// More than 2^31 elements: the ends of the output are compared.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ops/elementwise/testing_placed.hpp"
#include "testing/large.hpp"

namespace octavo::testing {
namespace {

constexpr std::int64_t cols = 4096;
constexpr std::int64_t rows = (std::int64_t{1} << 31) / cols + 5;  // beyond 2^31 by 5 rows
constexpr std::int64_t ends = 4;                                   // rows compared on either side

class Large : public ::testing::TestWithParam<Kind> {};

TEST_P(Large, EndsAreRight) {
  if (const std::string why = no_large_tests(); !why.empty()) GTEST_SKIP() << why;
  const Kind kind = GetParam();
  const Shape shape{rows, cols};
  const Problem p = kind.layout == Layout::per_group ? problem_of(kind, shape, 0, 512)
                                                     : problem_on(kind, shape, 1);
  const auto row_bytes = [](DType t) { return bytes_for(t, cols); };
  const Sparse input(has_input(p.op) ? rows * row_bytes(input_type(p)) : 0);
  const Sparse grad(has_grad(p.op) ? rows * row_bytes(p.element) : 0);
  const Sparse output(rows * row_bytes(output_type(p)));
  if (input.data == nullptr || grad.data == nullptr || output.data == nullptr)
    GTEST_SKIP() << "the system refuses to map " << (rows * row_bytes(p.element) >> 20) << " MiB";

  // Small problems of a few rows, whose operands become the first and the last rows.
  const std::int64_t slices = slice_count(p);
  std::vector<float> scales(static_cast<std::size_t>(slices), 0.25F);
  std::vector<std::int32_t> zero_points(static_cast<std::size_t>(slices), 1);
  std::vector<std::pair<std::int64_t, Operands>> parts;
  for (const std::int64_t first : {std::int64_t{0}, rows - ends}) {
    const Shape few{ends, cols};
    const Problem small =
        kind.layout == Layout::per_group ? problem_of(kind, few, 0, 512) : problem_on(kind, few, 1);
    const Operands o = make_operands(small, ordinary, static_cast<std::uint64_t>(first) + 1);
    const std::int64_t own = slice_count(small);
    const std::int64_t at = slices == own || first == 0 ? 0 : slices - own;
    for (std::int64_t i = 0; i < own; ++i) {
      const auto from = static_cast<std::size_t>(i);
      const auto to = static_cast<std::size_t>(at + i);
      scales[to] = static_cast<float>(o.scales[from]);
      zero_points[to] = o.zero_points[from];
    }
    const auto put = [&](const Sparse& to, const Bytes& bytes, DType type) {
      if (!bytes.empty())
        std::memcpy(to.data + first * row_bytes(type), bytes.data(), bytes.size());
    };
    put(input, o.input, input_type(p));
    put(grad, o.grad, p.element);
    parts.emplace_back(first, o);
  }

  Call call;
  call.input = {input.data, input_type(p), shape};
  call.grad = {grad.data, p.element, shape};
  call.scales = TensorRef(scales);
  call.zero_points = TensorRef(zero_points);
  call.scale = static_cast<double>(scales[0]);
  call.zero_point = zero_points[0];
  call.output = {output.data, output_type(p), shape};
  // One thread has runs of more than 2^31 elements; three begin in the middle.
  const bool whole = kind.layout == Layout::per_tensor || kind.layout == Layout::per_channel;
  const Status status = run_call(Stream::cpu({.threads = whole ? 1 : 3}), p, call);
  ASSERT_TRUE(status) << status.error().message();
  for (const auto& [first, o] : parts) {
    const Bytes want = expected(o);
    EXPECT_EQ(
        std::memcmp(output.data + first * row_bytes(output_type(p)), want.data(), want.size()), 0)
        << "rows from " << first;
  }
}

// On a device, whose memory is real: zeros between the ends.
TEST(LargeOnCuda, EndsAreRight) {
  const char* wanted = std::getenv("OCTAVO_TEST_CUDA");
  if (wanted == nullptr || std::string(wanted) != "all")
    GTEST_SKIP() << "OCTAVO_TEST_CUDA is not all";
  if (!has_cuda()) GTEST_SKIP() << "there is no CUDA device";
  const Stream stream = cuda_stream().value();
  octavo::cuda::CudaStream& on = octavo::cuda::cuda_of(stream);
  constexpr std::int64_t n = rows * cols + 3;
  constexpr std::int64_t end = 1000;
  CudaMemory memory(stream);
  auto* input = static_cast<std::byte*>(memory.allocate(static_cast<std::size_t>(2 * n)));
  auto* output = static_cast<std::byte*>(memory.allocate(static_cast<std::size_t>((n + 1) / 2)));
  {
    const octavo::cuda::Enqueue enqueue(on);
    ASSERT_EQ(on.driver().set_bytes(reinterpret_cast<octavo::cuda::DevicePointer>(input), 0,
                                    static_cast<std::size_t>(2 * n), on.handle()),
              0);
  }
  const Kind kind{Op::quantize, Layout::per_tensor, DType::bf16, DType::s4};
  const Operands first = make_operands(problem_of(kind, {end}), ordinary, 1);
  const Operands last = make_operands(problem_of(kind, {end + 1}), ordinary, 2);  // (of odd length)
  memory.write(input, first.input.data(), first.input.size());
  memory.write(input + 2 * (n - end - 1), last.input.data(), last.input.size());
  const auto plan = QuantizePerTensorPlan::select<bf16, s4x2>(stream, {.numel = n});
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_TRUE(plan->run(stream, {},
                        {.input = {input, DType::bf16, {n}},
                         .scale = first.scales[0],
                         .zero_point = first.zero_points[0],
                         .output = {output, DType::s4, {n}}}));
  const Status done = stream.synchronize();
  ASSERT_TRUE(done) << done.error().message();
  for (const auto& [o, at] : {std::pair{first, std::int64_t{0}}, {last, (n - end - 1) / 2}}) {
    const Bytes want = expected(o);
    Bytes got(want.size());
    memory.read(output + at, got.size(), got.data());
    EXPECT_EQ(got, want) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Large,
    ::testing::Values(Kind{Op::quantize, Layout::per_tensor, DType::bf16, DType::s4},
                      Kind{Op::quantize, Layout::per_group, DType::f32, DType::u8},
                      Kind{Op::dequantize, Layout::per_channel, DType::f16, DType::u8},
                      Kind{Op::fake_quantize_backward, Layout::per_token, DType::bf16, DType::s8}),
    [](const auto& info) {
      return std::string(name(info.param.op)) + "_" + std::string(name(info.param.layout));
    });

}  // namespace
}  // namespace octavo::testing
