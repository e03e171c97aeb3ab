// `run` allocates nothing once it is warm. An executable of its own: it replaces the allocator by
// one that counts. What oneTBB takes from an allocator of its own is not seen.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "c/testing.hpp"
#include "ops/elementwise/testing_checks.hpp"
#include "ops/elementwise/testing_placed.hpp"
#include "ops/linear/testing_guard.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OCTAVO_COUNTS 0
#elif defined(__has_feature)
#define OCTAVO_COUNTS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define OCTAVO_COUNTS 1
#endif
#if !defined(__GLIBC__)
#undef OCTAVO_COUNTS
#define OCTAVO_COUNTS 0
#endif

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

#if OCTAVO_COUNTS
// Everything that asks the C library for memory ends in one of these, operator new too. They carry
// the library's names only for the linker: here those are declared already.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): GNU libc's own
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* data, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

#pragma GCC visibility push(default)
void* counted_malloc(std::size_t bytes) asm("malloc");
void* counted_calloc(std::size_t count, std::size_t bytes) asm("calloc");
void* counted_realloc(void* data, std::size_t bytes) asm("realloc");
void* counted_memalign(std::size_t alignment, std::size_t bytes) asm("memalign");
void* counted_aligned_alloc(std::size_t alignment, std::size_t bytes) asm("aligned_alloc");
int counted_posix_memalign(void** data, std::size_t alignment,
                           std::size_t bytes) asm("posix_memalign");
#pragma GCC visibility pop

void* counted_malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* counted_calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* counted_realloc(void* data, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(data, bytes);
}
void* counted_memalign(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* counted_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return counted_memalign(alignment, bytes);
}
int counted_posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  *data = counted_memalign(alignment, bytes);
  return *data == nullptr ? ENOMEM : 0;
}
}
#endif

namespace octavo::testing {
namespace {

class Allocation : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!OCTAVO_COUNTS) GTEST_SKIP() << "allocations cannot be counted under this sanitizer";
  }
};

TEST_F(Allocation, IsCounted) {
  const std::int64_t before = allocations;
  ::operator delete(::operator new(100));
  ::operator delete (::operator new (100, std::align_val_t{64}), std::align_val_t{64});
  EXPECT_EQ(allocations - before, 2);
}

/// How often `run` allocated, after a warm-up.
std::int64_t count(const Stream& stream, const Problem& p, int warm_up, int times,
                   bool every_second_element = false) {
  const Operands o = make_operands(p, ordinary, 1);
  Bytes output(static_cast<std::size_t>(output_bytes(p)));
  Call call = call_of(o, output.data());
  const std::int64_t n = numel(p.shape);
  Bytes wide(static_cast<std::size_t>(2 * n) * 8);
  if (every_second_element) {
    call.input = {wide.data(), input_type(p), {n}, {2}};
    call.grad = {wide.data(), p.element, {n}, {2}};
    call.output = {output.data(), output_type(p), {n}};
  }
  const auto plan = select_plan(stream, p);
  EXPECT_TRUE(plan);
  const WorkspaceBuffer workspace((*plan)->workspace_size());
  bool fine = true;
  for (int i = 0; i < warm_up; ++i) fine &= (*plan)->run(stream, workspace, call).has_value();
  const std::int64_t before = allocations;
  for (int i = 0; i < times; ++i) fine &= (*plan)->run(stream, workspace, call).has_value();
  const std::int64_t after = allocations;
  EXPECT_TRUE(fine);
  return after - before;
}

TEST_F(Allocation, NoneOnOneThread) {
  const Stream stream = Stream::cpu({.threads = 1});
  for_each_kind([&](const Kind& kind) {
    Problem p = problem_on(kind, {30, 135});
    EXPECT_EQ(count(stream, p, 1, 5), 0) << title(p);
    if (kind.layout == Layout::per_tensor) {
      if (is_packed(input_type(p))) return;
      EXPECT_EQ(count(stream, p, 1, 5, true), 0) << title(p) << ", strided";
    } else {
      p.scale_type = kind.element == DType::f64 ? DType::f32 : DType::f64;
      EXPECT_EQ(count(stream, p, 1, 5), 0) << title(p) << ", with a workspace";
    }
  });
}

TEST_F(Allocation, NoneOnTwoThreads) {
#if defined(OCTAVO_STD_THREADS)
  GTEST_SKIP() << "std::thread allocates";
#endif
  [[maybe_unused]] const ManyThreads many;
  const Stream stream = Stream::cpu({.threads = 2});
  for (const Op op : all_ops)
    for (const Layout layout : all_layouts) {
      const Problem p = problem_on({.op = op, .layout = layout}, {600, 513});
      EXPECT_EQ(count(stream, p, 20, 20), 0) << title(p);
    }
}

TEST_F(Allocation, NoneInDynamicRangesAndObservers) {
  const Stream stream = Stream::cpu({.threads = 1});
  std::vector<float> x(std::size_t{30} * 135, 1.5F);
  std::vector<std::int8_t> q(x.size());
  std::vector<float> scales(x.size());
  std::vector<std::int32_t> zero_points(scales.size());
  const Shape shape{30, 135};
  for (const Layout scope : all_layouts) {
    const auto plan = DynamicRangeQuantizePlan::select(stream, {.shape = shape,
                                                                .mode = RangeMode::asymmetric,
                                                                .scope = scope,
                                                                .axis = 1,
                                                                .group_size = 5});
    ASSERT_TRUE(plan);
    const WorkspaceBuffer workspace(plan->workspace_size());
    const Shape slices{plan->slices()};
    const DynamicRangeQuantizeArgs args{.input = {x.data(), shape},
                                        .output = TensorMut(q.data(), shape),
                                        .scales = TensorMut(scales.data(), slices),
                                        .zero_points = TensorMut(zero_points.data(), slices)};
    bool fine = plan->run(stream, workspace, args).has_value();
    const std::int64_t before = allocations;
    fine &= plan->run(stream, workspace, args).has_value();
    EXPECT_EQ(allocations - before, 0) << name(scope);
    EXPECT_TRUE(fine);
  }
  const auto observer = HistogramObserver::select(stream, {});
  ASSERT_TRUE(observer);
  const WorkspaceBuffer workspace(observer->workspace_size());
  HistogramState state = observer->make_state();
  bool fine = observer->run(stream, workspace, {.input = x, .state = &state}).has_value();
  const std::int64_t before = allocations;
  fine &= observer->run(stream, workspace, {.input = x, .state = &state}).has_value();
  EXPECT_EQ(allocations - before, 0);
  EXPECT_TRUE(fine);
}

template <class Plan>
std::int64_t count_linear(const Stream& stream, const typename Plan::Descriptor& descriptor,
                          const LinearData& d, int warm_up, int times) {
  const auto plan = Plan::select(stream, descriptor);
  EXPECT_TRUE(plan) << plan.error().message();
  const PackedWeight packed = *octavo::pack(stream, d.weight.ref());
  Matrix out = blank_output(d.c);
  const auto args = linear_args<typename Plan::Args>(d, packed, out);
  const WorkspaceBuffer workspace(plan->workspace_size());
  bool fine = true;
  for (int i = 0; i < warm_up; ++i) fine &= plan->run(stream, workspace, args).has_value();
  const std::int64_t before = allocations;
  for (int i = 0; i < times; ++i) fine &= plan->run(stream, workspace, args).has_value();
  const std::int64_t after = allocations;
  EXPECT_TRUE(fine);
  return after - before;
}

TEST_F(Allocation, NoneInLinearLayers) {
  [[maybe_unused]] const ManyThreads many;
  for (const int threads : {1, 2}) {
#if defined(OCTAVO_STD_THREADS)
    if (threads > 1) GTEST_SKIP() << "std::thread allocates";
#endif
    const int warm_up = threads == 1 ? 1 : 20;
    for (const Target target : linear_targets()) {
      const Stream stream = Stream::cpu({.threads = threads, .cap = target});
      for (std::uint64_t turn = 0; turn < 28; turn += threads == 1 ? 1 : 4) {
        const LinearCase c = linear_case_in_turn(turn, 33, 200, threads == 1 ? 75 : 330);
        const LinearData d = make_linear(c);
        const std::int64_t counted =
            c.kind == LinearKind::matmul
                ? count_linear<QuantizedMatmulPlan>(stream, matmul_descriptor(c), d, warm_up, 10)
            : c.kind == LinearKind::dynamic
                ? count_linear<QuantizedLinearPlan>(stream, dynamic_descriptor(c), d, warm_up, 10)
                : count_linear<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d, warm_up,
                                                      10);
        EXPECT_EQ(counted, 0) << name(target) << ", " << threads << " threads: " << c.text();
      }
      // Packing anew into one that is there.
      const LinearData d = make_linear(linear_case_in_turn(1, 1, 900, 900));
      const auto plan = PackWeightPlan::select(stream, {.n = 900, .k = 900, .weight = d.c.weight});
      ASSERT_TRUE(plan);
      PackedWeight packed = *plan->make_packed();
      const PackWeightArgs args{.weight = d.weight.ref(), .packed = &packed};
      bool fine = true;
      for (int i = 0; i < warm_up; ++i) fine &= plan->run(stream, {}, args).has_value();
      const std::int64_t before = allocations;
      for (int i = 0; i < 5; ++i) fine &= plan->run(stream, {}, args).has_value();
      EXPECT_EQ(allocations - before, 0);
      EXPECT_TRUE(fine);
    }
  }
}

TEST_F(Allocation, NoneThroughC) {
  Quantize c;
  ASSERT_EQ(c.run(), OCTAVO_OK);
  const std::int64_t before = allocations;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(c.run(), OCTAVO_OK);
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace octavo::testing
