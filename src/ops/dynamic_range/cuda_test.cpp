// Dynamic ranges on a CUDA device: lengths at which kernels change, memory that ends where its
// allocation does, more rows than a launch has blocks, strides beyond 2^31, and what is refused.
#include <gtest/gtest.h>

#include <thread>

#include "ops/dynamic_range/testing.hpp"
#include "testing/lent.hpp"

namespace octavo::testing {
namespace {

class CudaDynamicRange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  }
  [[nodiscard]] static bool check(const Stream& stream, const DynamicCall& c) {
    const std::string wrong = difference(stream, c, expected(c));
    EXPECT_EQ(wrong, "");
    return wrong.empty();
  }
};

DType integer_for(RangeMode mode, std::uint64_t seed) {
  constexpr std::array all{DType::s8, DType::s4, DType::s16, DType::u8, DType::u4};
  return all[seed % (mode == RangeMode::symmetric ? 3 : 5)];
}

// Rows as long as one thread, a warp, a block and what is kept of a row in shared memory; and
// longer.
TEST_F(CudaDynamicRange, LengthsAtWhichKernelsChange) {
  const Stream stream = *cuda_stream();
  std::uint64_t seed = 0;
  for (const DType element : all_floats) {
    const std::int64_t piece = 128 / bits(element);
    for (const std::int64_t pieces : {1, 2, 32, 64, 128, 256, 1024, 2048, 6144, 16384})
      for (const std::int64_t more :
           {-piece, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, piece}) {
        const std::int64_t length = pieces * piece + more;
        if (length <= 0) continue;
        const RangeMode mode = all_modes[seed % 2];
        const Kind kind{Op::quantize, Layout::per_token, element, integer_for(mode, seed / 2),
                        all_profiles[seed / 3 % 2]};
        const std::int64_t rows = pieces > 256 ? 2 : 9;
        ASSERT_TRUE(check(stream, make_dynamic(problem_of(kind, {rows, length}), mode, seed++)));
      }
    // Of single elements, what shared memory holds.
    for (const std::int64_t length : {12287, 12289, 24575, 24577}) {
      const Kind kind{Op::quantize, Layout::per_token, element, DType::s8, Profile::torch};
      const Shape shape{2, length};
      const DynamicCall c = make_dynamic(problem_of(kind, shape), RangeMode::symmetric, seed++);
      const int bytes = bits(element) / 8;
      Bytes spread(static_cast<std::size_t>(std::int64_t{2} * bytes * (2 * length + 1)));
      for (std::int64_t i = 0; i < 2 * length; ++i)
        store_bits(spread.data(), bytes, i / length * (2 * length + 1) + i % length * 2,
                   load_bits(c.input.data(), bytes, i));
      const TensorRef input(spread.data(), element, shape, {2 * length + 1, 2});
      ASSERT_EQ(difference(stream, c, expected(c), &input), "");
    }
  }
}

/// Memory of exactly `bytes` behind `offset` bytes of paint.
struct Exact {
  Bytes host;
  std::size_t offset;
  Exact(std::size_t at, std::size_t bytes) : host(at + bytes, std::byte{0xCD}), offset(at) {}
  [[nodiscard]] std::byte* data() { return host.data() + offset; }
  [[nodiscard]] bool is(const void* want, std::size_t bytes) const {
    for (std::size_t i = 0; i < offset; ++i)
      if (host[i] != std::byte{0xCD}) return false;
    return bytes == 0 || std::memcmp(host.data() + offset, want, bytes) == 0;
  }
};

// Every buffer ends with its allocation, and begins at each alignment.
TEST_F(CudaDynamicRange, NoByteOutside) {
  const Stream stream = *cuda_stream();
  std::uint64_t seed = 0;
  for (const std::int64_t n :
       {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 63, 64, 65, 127, 130, 257})
    for (const auto& [layout, shape, axis, group] :
         {std::tuple(Layout::per_tensor, Shape{n}, 0, std::int64_t{0}),
          std::tuple(Layout::per_token, Shape{5, n}, 0, std::int64_t{0}),
          std::tuple(Layout::per_channel, Shape{3, n}, 1, std::int64_t{0}),
          std::tuple(Layout::per_channel, Shape{2, 3, n}, 1, std::int64_t{0}),
          std::tuple(Layout::per_group, Shape{2, 3 * n}, 0, n)})
      for (const DType element : all_floats)
        for (const std::size_t offset : {0, 1, 2, 3, 5}) {
          const RangeMode mode = all_modes[seed % 2];
          const DType integer = integer_for(mode, seed / 2);
          const Kind kind{Op::quantize, layout, element, integer, all_profiles[seed / 3 % 2]};
          const DynamicCall c = make_dynamic(problem_of(kind, shape, axis, group), mode, seed++);
          const DynamicResult want = expected(c);
          const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
          ASSERT_TRUE(plan);
          const DType compute = compute_type(element);
          const auto at = [&](DType type) {
            return offset * static_cast<std::size_t>(bytes_for(type, 1));
          };
          Exact input(at(element), c.input.size());
          std::copy(c.input.begin(), c.input.end(), input.data());
          Exact output(at(integer), want.output.size());
          Exact scales(at(compute), want.scales.size());
          Exact zero_points(at(DType::s32), want.zero_points.size() * 4);
          const Shape slices{plan->slices()};
          const WorkspaceBuffer workspace(stream, plan->workspace_size());
          Lent lent(stream);
          const Status ran = plan->run(
              stream, workspace,
              {.input = {lent.lend(std::as_const(input.host)) + input.offset, element, shape},
               .output = {lent.lend(output.host) + output.offset, integer, shape},
               .scales = {lent.lend(scales.host) + scales.offset, compute, slices},
               .zero_points = {lent.lend(zero_points.host) + zero_points.offset, DType::s32,
                               slices}});
          ASSERT_TRUE(ran) << ran.error().message();
          const Status waited = lent.fetch();
          ASSERT_TRUE(waited) << waited.error().message();
          std::ostringstream text;
          describe(text, c.problem);
          ASSERT_TRUE(output.is(want.output.data(), want.output.size()) &&
                      scales.is(want.scales.data(), want.scales.size()) &&
                      zero_points.is(want.zero_points.data(), want.zero_points.size() * 4))
              << text.str() << ' ' << name(mode) << " offset " << offset;
        }
}

// A launch has 65,536 blocks at most; rows beyond are done by the same ones.
TEST_F(CudaDynamicRange, MoreRowsThanBlocks) {
  const Stream stream = *cuda_stream();
  // Four rows to a block; eight runs of a channel; 32 channels side by side.
  for (const auto& [layout, shape, axis, group] :
       {std::tuple(Layout::per_token, Shape{65536 * 4 + 7, 33}, 0, std::int64_t{0}),
        std::tuple(Layout::per_channel, Shape{65536 * 8 / 3 + 9, 3, 17}, 1, std::int64_t{0}),
        std::tuple(Layout::per_channel, Shape{2, 65536 * 32 + 66}, 1, std::int64_t{0})}) {
    const Kind kind{Op::quantize, layout, DType::bf16, DType::s4, Profile::torch};
    ASSERT_TRUE(check(
        stream, make_dynamic(problem_of(kind, shape, axis, group), RangeMode::asymmetric, 5)));
  }
}

// Rows and elements that lie more than 2^31 elements apart.
TEST_F(CudaDynamicRange, StridesBeyond32Bits) {
  const Stream stream = *cuda_stream();
  constexpr std::int64_t apart = (std::int64_t{1} << 31) + 8;
  const std::int64_t bytes = bytes_for(DType::bf16, 2 * apart + 300);
  const auto memory = stream.impl().allocate(static_cast<std::size_t>(bytes));
  if (!memory) GTEST_SKIP() << memory.error().message();
  octavo::cuda::CudaStream& on = octavo::cuda::cuda_of(stream);
  const auto copy = [&](std::int64_t at, const void* from, std::size_t n) {
    const octavo::cuda::Enqueue enqueue(on);
    const auto to =
        reinterpret_cast<octavo::cuda::DevicePointer>(*memory) + static_cast<std::size_t>(2 * at);
    EXPECT_EQ(on.driver().copy_to_device(to, from, n, on.handle()), 0);
    EXPECT_EQ(on.driver().stream_synchronize(on.handle()), 0);
  };
  for (const Layout layout : all_layouts)
    for (const bool rows : {true, false}) {
      const Shape shape = rows ? Shape{3, 200} : Shape{200, 3};
      const Kind kind{Op::quantize, layout, DType::bf16, DType::s8, Profile::onnx};
      Problem p = problem_of(kind, shape, 1, rows ? 40 : 3);
      if (layout == Layout::per_tensor) p.shape = {600};
      const DynamicCall c = make_dynamic(p, RangeMode::asymmetric, 3);
      const DynamicResult want = expected(c);
      for (std::int64_t i = 0; i < 600; ++i) {
        const std::int64_t far = rows ? i / 200 : i % 3;
        const std::int64_t near = rows ? i % 200 : i / 3;
        copy(far * apart + near, c.input.data() + 2 * i, 2);
      }
      const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
      ASSERT_TRUE(plan);
      DynamicResult got{Bytes(600), Bytes(want.scales.size()),
                        std::vector<std::int32_t>(want.zero_points.size())};
      const Shape slices{plan->slices()};
      const WorkspaceBuffer workspace(stream, plan->workspace_size());
      Lent lent(stream);
      const Status ran = plan->run(
          stream, workspace,
          {.input = {*memory, DType::bf16, shape, rows ? Shape{apart, 1} : Shape{1, apart}},
           .output = {lent.lend(got.output), DType::s8, shape},
           .scales = {lent.lend(got.scales), DType::f32, slices},
           .zero_points = {lent.lend(got.zero_points), DType::s32, slices}});
      ASSERT_TRUE(ran) << ran.error().message();
      ASSERT_TRUE(lent.fetch());
      EXPECT_TRUE(got == want) << name(layout) << ' ' << rows;
    }
  stream.impl().free(*memory);
}

// Two streams, and several threads on each of them.
TEST_F(CudaDynamicRange, ManyAtOnce) {
  const std::array streams{*cuda_stream(), *cuda_stream()};
  std::vector<DynamicCall> calls;
  for (const RangeMode mode : all_modes)
    for (const Layout layout : all_layouts) {
      const Kind kind{Op::quantize, layout, DType::f16, DType::s8, Profile::onnx};
      const Shape shape = layout == Layout::per_tensor ? Shape{30000} : Shape{30, 1000};
      calls.push_back(make_dynamic(problem_of(kind, shape, 1, 25), mode, calls.size()));
    }
  std::vector<std::string> wrong(6);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (const DynamicCall& c : calls)
        if (wrong[t].empty()) wrong[t] = difference(streams[t % 2], c, expected(c));
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& w : wrong) EXPECT_EQ(w, "");
}

// Work is carried out in its order: what one run writes the next may read, and a workspace may be
// lent to both.
TEST_F(CudaDynamicRange, RunsFollowEachOther) {
  const Stream stream = *cuda_stream();
  const Kind kind{Op::quantize, Layout::per_tensor, DType::f32, DType::s8, Profile::torch};
  const DynamicCall first = make_dynamic(problem_of(kind, {5000}), RangeMode::symmetric, 1);
  const DynamicCall second = make_dynamic(problem_of(kind, {5000}), RangeMode::symmetric, 2);
  const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(first));
  const auto dequantize = DequantizePerTokenPlan::select(
      stream, {.tokens = 1, .hidden = 5000, .input = DType::s8, .output = DType::f32});
  ASSERT_TRUE(plan);
  ASSERT_TRUE(dequantize);
  const WorkspaceBuffer workspace(stream, plan->workspace_size());
  Lent lent(stream);
  std::vector<std::int8_t> q(5000);
  std::vector<float> scale(1), again(1), y(5000);
  auto* q_at = lent.lend(q);
  auto* scale_at = lent.lend(scale);
  auto* again_at = lent.lend(again);
  auto* y_at = lent.lend(y);
  const auto run = [&](const void* x, float* to) {
    return plan->run(stream, workspace,
                     {.input = {x, DType::f32, Shape{5000}},
                      .output = {q_at, Shape{5000}},
                      .scales = {to, Shape{1}}});
  };
  ASSERT_TRUE(run(lent.lend(first.input), scale_at));
  ASSERT_TRUE(run(lent.lend(second.input), scale_at));
  ASSERT_TRUE(dequantize->run(
      stream, {},
      {.input = {q_at, {1, 5000}}, .scales = {scale_at, {1}}, .output = {y_at, {1, 5000}}}));
  ASSERT_TRUE(run(y_at, again_at));
  ASSERT_TRUE(lent.fetch());
  const DynamicResult want = expected(second);
  float want_scale = 0;
  std::memcpy(&want_scale, want.scales.data(), sizeof want_scale);
  EXPECT_EQ(scale[0], want_scale);
  EXPECT_EQ(std::memcmp(q.data(), want.output.data(), 5000), 0);
  EXPECT_EQ(again, scale);
}

// Memory of the host is not the device's, nor the reverse: refused by argument, and nothing is
// written.
TEST_F(CudaDynamicRange, MemoryOfAnotherBackendIsRefused) {
  const Stream device = *cuda_stream();
  for (const Stream& stream : one_of_each()) {
    const bool on_host = stream.backend() == Backend::cpu;
    std::vector<float> x(24, 1.0F), scales(6, 77.0F);
    std::vector<std::int8_t> q(24, 77);
    std::vector<std::int32_t> zero_points(6, 77);
    Lent lent(device);
    const DynamicRangeQuantizeArgs host{.input = {x, {4, 6}},
                                        .output = {q, {4, 6}},
                                        .scales = {scales, {6}},
                                        .zero_points = {zero_points, {6}}};
    const DynamicRangeQuantizeArgs there{.input = {lent.lend(x), {4, 6}},
                                         .output = {lent.lend(q), {4, 6}},
                                         .scales = {lent.lend(scales), {6}},
                                         .zero_points = {lent.lend(zero_points), {6}}};
    const DynamicRangeQuantizeArgs& good = on_host ? host : there;
    const DynamicRangeQuantizeArgs& bad = on_host ? there : host;
    const auto plan = DynamicRangeQuantizePlan::select(
        stream,
        {.shape = {4, 6}, .mode = RangeMode::asymmetric, .scope = Layout::per_channel, .axis = 1});
    ASSERT_TRUE(plan);
    const WorkspaceBuffer workspace(stream, plan->workspace_size());
    ASSERT_TRUE(plan->can_implement(good));
    const auto refused = [&](const char* argument, auto spoil) {
      DynamicRangeQuantizeArgs args = good;
      spoil(args);
      for (const Status& s : {plan->can_implement(args), plan->run(stream, workspace, args)}) {
        ASSERT_FALSE(s) << argument;
        EXPECT_EQ(s.error().code(), ErrorCode::invalid_problem);
        EXPECT_EQ(s.error().argument(), argument) << s.error().message();
      }
    };
    refused("input", [&](auto& a) { a.input.data = bad.input.data; });
    refused("output", [&](auto& a) { a.output.data = bad.output.data; });
    refused("scales", [&](auto& a) { a.scales.data = bad.scales.data; });
    refused("zero_points", [&](auto& a) { a.zero_points.data = bad.zero_points.data; });
    const WorkspaceBuffer other(on_host ? device : Stream::cpu(), plan->workspace_size());
    const Status s = plan->run(stream, other, good);
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().argument(), "workspace") << s.error().message();
    ASSERT_TRUE(lent.fetch());
    EXPECT_EQ(q, std::vector<std::int8_t>(24, 77));
    EXPECT_EQ(scales, std::vector<float>(6, 77.0F));
    EXPECT_EQ(zero_points, std::vector<std::int32_t>(6, 77));
  }
}

// What the driver refuses is an error of the run, and the stream is as good as before.
TEST_F(CudaDynamicRange, FailuresOfTheDriverAreErrors) {
  const Stream stream = *cuda_stream();
  const auto* control = standin::Control::find();
  if (control == nullptr) GTEST_SKIP() << "only the stand-in driver can be made to fail";
  for (const Layout layout : all_layouts) {
    const Kind kind{Op::quantize, layout, DType::f32, DType::s8, Profile::torch};
    const Shape shape = layout == Layout::per_tensor ? Shape{3000} : Shape{30, 100};
    const DynamicCall c = make_dynamic(problem_of(kind, shape, 1, 25), RangeMode::asymmetric, 4);
    ASSERT_TRUE(check(stream, c));  // (What it needs is loaded now.)
    for (const auto& [function, most] : {std::pair("cuLaunchKernel", 3), {"cuMemsetD8Async", 1}})
      for (int nth = 1; nth <= most; ++nth) {
        const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
        ASSERT_TRUE(plan);
        DynamicResult got = expected(c);
        const Shape slices{plan->slices()};
        const WorkspaceBuffer workspace(stream, plan->workspace_size());
        Lent lent(stream);
        const DynamicRangeQuantizeArgs args{
            .input = {lent.lend(c.input), DType::f32, shape},
            .output = {lent.lend(got.output), DType::s8, shape},
            .scales = {lent.lend(got.scales), DType::f32, slices},
            .zero_points = {lent.lend(got.zero_points), DType::s32, slices}};
        control->reset_calls();
        constexpr int out_of_memory = 2;
        control->inject(function, static_cast<std::uint64_t>(nth), out_of_memory);
        const Status ran = plan->run(stream, workspace, args);
        const bool is_called = control->calls(function) >= static_cast<std::uint64_t>(nth);
        control->clear_injections();
        EXPECT_EQ(static_cast<bool>(ran), !is_called) << function << ' ' << nth;
        if (!ran) {
          EXPECT_EQ(ran.error().code(), ErrorCode::backend) << ran.error().message();
        }
        EXPECT_TRUE(stream.synchronize());
        EXPECT_TRUE(plan->run(stream, workspace, args));
        EXPECT_TRUE(lent.fetch());
        EXPECT_TRUE(got == expected(c));
      }
  }
}

// The plan's place, and what it asks for.
TEST_F(CudaDynamicRange, SaysWhereItRuns) {
  const Stream stream = *cuda_stream();
  const auto plan = DynamicRangeQuantizePlan::select(stream, {.shape = {5, 4096}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->sku().backend, Backend::cuda);
  EXPECT_EQ(plan->sku().target, Target::sm80);
  EXPECT_EQ(plan->workspace_size(), 0U);
  EXPECT_NE(to_string(plan->sku()).find("cuda.sm80"), std::string::npos) << to_string(plan->sku());
  const auto needed = [&](const DynamicRangeQuantizeDescriptor& d) {
    return DynamicRangeQuantizePlan::select(stream, d)->workspace_size();
  };
  EXPECT_EQ(needed({.shape = {5, 24576}}), 0U);
  EXPECT_EQ(needed({.shape = {5, 24577}}), 40U);
  EXPECT_EQ(needed({.shape = {5, 12289}, .input = DType::f64}), 80U);
  EXPECT_EQ(needed({.shape = {5, 9}, .scope = Layout::per_tensor}), 8U);
  EXPECT_EQ(needed({.shape = {5, 9}, .scope = Layout::per_channel, .axis = 1}), 72U);
  const auto refused = DynamicRangeQuantizePlan::select(
      stream, {.shape = {5, 9}, .scope = Layout::per_tensor}, {.max_workspace_bytes = 7});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::workspace_too_small);
  // A plan runs on streams of its backend alone.
  const Status s = plan->run(Stream::cpu(), {}, {});
  ASSERT_FALSE(s);
}

}  // namespace
}  // namespace octavo::testing
