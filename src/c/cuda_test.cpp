// CUDA streams through C: made, refused, and a plan on one with its workspace.
#include <vector>

#include "c/testing.hpp"
#include "testing/cuda.hpp"

namespace octavo::testing {
namespace {

TEST(CCuda, StreamsAreRefusedByName) {
  octavo_stream* stream = nullptr;
  EXPECT_EQ(octavo_stream_create_cuda(nullptr, nullptr), OCTAVO_INVALID_PROBLEM);
  EXPECT_STREQ(octavo_last_error()->argument, "out");
  octavo_cuda_options options{sizeof options, 99, 0, nullptr};
  const octavo_status s = octavo_stream_create_cuda(&options, &stream);
  EXPECT_EQ(s, has_cuda() ? OCTAVO_INVALID_PROBLEM : octavo_last_error()->code);
  EXPECT_NE(s, OCTAVO_OK);
  EXPECT_STREQ(octavo_last_error()->argument, "device");
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(octavo_cuda_device_count(nullptr), OCTAVO_INVALID_PROBLEM);
  EXPECT_EQ(octavo_stream_backend(nullptr), OCTAVO_CPU);
  void* workspace = nullptr;
  EXPECT_EQ(octavo_stream_workspace_create(nullptr, 1, &workspace), OCTAVO_INVALID_PROBLEM);
  octavo_stream_workspace_destroy(nullptr, nullptr);
}

TEST(CCuda, WorkspacesOfTheCpuAreTheHosts) {
  const auto cpu = c_stream(1);
  void* workspace = nullptr;
  ASSERT_EQ(octavo_stream_workspace_create(cpu.get(), 100, &workspace), OCTAVO_OK);
  std::memset(workspace, 1, 100);
  octavo_stream_workspace_destroy(cpu.get(), workspace);
  EXPECT_EQ(octavo_stream_backend(cpu.get()), OCTAVO_CPU);
}

TEST(CCuda, PlansRunOnADevice) {
  if (!has_cuda()) GTEST_SKIP() << "there is no CUDA device";
  std::int32_t devices = 0;
  EXPECT_EQ(octavo_cuda_device_count(&devices), OCTAVO_OK);
  EXPECT_GE(devices, 1);
  const auto own = made<octavo_stream>(
      [](octavo_stream** out) { return octavo_stream_create_cuda(nullptr, out); });
  octavo_cuda_options legacy{sizeof legacy, 0, 1, nullptr};
  const auto on_default = made<octavo_stream>(
      [&](octavo_stream** out) { return octavo_stream_create_cuda(&legacy, out); });
  for (const auto* stream : {own.get(), on_default.get()}) {
    ASSERT_NE(stream, nullptr);
    EXPECT_EQ(octavo_stream_backend(stream), OCTAVO_CUDA);
    const std::int64_t shape[] = {4, 3};
    octavo_elementwise_desc d{};
    d.struct_size = sizeof d;
    d.op = OCTAVO_QUANTIZE;
    d.layout = OCTAVO_PER_TOKEN;
    d.rank = 2;
    d.shape = shape;
    d.input = OCTAVO_F32;
    d.output = OCTAVO_S8;
    d.scale_type.is_set = 1;
    d.scale_type.value = OCTAVO_F64;
    const auto plan = made<octavo_plan>(
        [&](octavo_plan** out) { return octavo_elementwise_select(stream, &d, nullptr, out); });
    ASSERT_NE(plan, nullptr);
    EXPECT_STREQ(octavo_plan_sku(plan.get()),
                 "elementwise.quantize.per_token.f32.s8.none.torch.cuda.sm80");
    const std::size_t bytes = octavo_plan_workspace_size(plan.get());
    ASSERT_GT(bytes, 0U);
    void* workspace = nullptr;
    ASSERT_EQ(octavo_stream_workspace_create(stream, bytes, &workspace), OCTAVO_OK);

    CudaMemory memory(cuda_stream().value());
    const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    std::vector<double> scales{1, 0.5, 2, 0.25};
    std::vector<std::int8_t> q(12);
    void* output = memory.upload(q.data(), 12);
    CTensors c;
    octavo_elementwise_args a{};
    a.struct_size = sizeof a;
    a.input = c(TensorRef(memory.upload(x.data(), 48), DType::f32, {4, 3}));
    a.scales = c(TensorRef(memory.upload(scales.data(), 32), DType::f64, {4}));
    a.output = c(TensorMut(output, DType::s8, {4, 3}));
    ASSERT_EQ(octavo_elementwise_run(plan.get(), stream, workspace, bytes, &a), OCTAVO_OK)
        << octavo_last_error()->message;
    ASSERT_EQ(octavo_stream_synchronize(stream), OCTAVO_OK) << octavo_last_error()->message;
    memory.read(output, 12, q.data());
    EXPECT_EQ(q, (std::vector<std::int8_t>{1, 2, 3, 8, 10, 12, 4, 4, 4, 40, 44, 48}));

    // Values are refused by synchronize, memory of the host at once.
    scales[2] = -1;
    a.scales = c(TensorRef(memory.upload(scales.data(), 32), DType::f64, {4}));
    ASSERT_EQ(octavo_elementwise_run(plan.get(), stream, workspace, bytes, &a), OCTAVO_OK);
    EXPECT_EQ(octavo_stream_synchronize(stream), OCTAVO_INVALID_PROBLEM);
    EXPECT_STREQ(octavo_last_error()->argument, "scales");
    EXPECT_EQ(octavo_stream_synchronize(stream), OCTAVO_OK);
    a.input = c(TensorRef(x.data(), DType::f32, {4, 3}));
    EXPECT_EQ(octavo_elementwise_run(plan.get(), stream, workspace, bytes, &a),
              OCTAVO_INVALID_PROBLEM);
    EXPECT_STREQ(octavo_last_error()->argument, "input");
    octavo_stream_workspace_destroy(stream, workspace);
  }
}

}  // namespace
}  // namespace octavo::testing
