// What a caller may rely on: names, in-place calls, empty tensors, ranks, packed rows, and
// granularities that are nothing but many per-tensor calls.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "ops/elementwise/testing_placed.hpp"

namespace octavo::testing {
namespace {

Stream one_thread() { return Stream::cpu({.threads = 1}); }

class PlansEverywhere : public OnBackend {};
class InPlace : public OnBackend {};
class Shapes : public OnBackend {};
class PackedEverywhere : public OnBackend {};
class Granularity : public OnBackend {};
const auto backends = ::testing::ValuesIn(tested_backends());
INSTANTIATE_TEST_SUITE_P(All, PlansEverywhere, backends, backend_name);
INSTANTIATE_TEST_SUITE_P(All, InPlace, backends, backend_name);
INSTANTIATE_TEST_SUITE_P(All, Shapes, backends, backend_name);
INSTANTIATE_TEST_SUITE_P(All, PackedEverywhere, backends, backend_name);
INSTANTIATE_TEST_SUITE_P(All, Granularity, backends, backend_name);

// ---- plans -------------------------------------------------------------------------------------

TEST(Plans, NameTheirKernel) {
  for_each_kind([](Kind kind) {
    for (const Profile profile : all_profiles) {
      kind.profile = profile;
      const Problem p = problem_on(kind, {4, 6});
      SCOPED_TRACE(title(p));
      const auto plan = select_plan(one_thread(), p);
      ASSERT_TRUE(plan) << plan.error().message();
      const KernelSku& sku = (*plan)->sku();
      EXPECT_EQ(sku.category, Category::elementwise);
      EXPECT_EQ(sku.op, kind.op);
      EXPECT_EQ(sku.layout, kind.layout);
      EXPECT_EQ(sku.element, kind.element);
      EXPECT_EQ(sku.aux_element, has_integer(kind.op) ? kind.integer : kind.element);
      EXPECT_EQ(sku.epilogue, Epilogue::none);
      EXPECT_EQ(sku.backend, Backend::cpu);
      if (has_range(kind.op)) {
        EXPECT_EQ(sku.profile, profile);
      }
      PrecisionGuarantee guarantee;
      guarantee.math = compute_type(kind.element);
      EXPECT_EQ((*plan)->precision_guarantee(), guarantee);
      EXPECT_EQ(sku.guarantee, guarantee);
    }
  });
}

TEST(Plans, TakeTypesFromCpp) {
  const Stream stream = one_thread();
  const std::vector<float> x{-1, 0, 1.5F, 2.5F, 1000};
  std::vector<std::int8_t> q(5);
  std::vector<float> y(5);

  const auto quantize = QuantizePerTensorPlan::select<float, std::int8_t>(stream, {.numel = 5});
  ASSERT_TRUE(quantize);
  ASSERT_TRUE(quantize->run(stream, {}, {.input = x, .scale = 0.5, .zero_point = 3, .output = q}));
  EXPECT_EQ(q, (std::vector<std::int8_t>{1, 3, 6, 8, 127}));

  const auto dequantize = DequantizePerTensorPlan::select<std::int8_t, float>(stream, {.numel = 5});
  ASSERT_TRUE(dequantize);
  ASSERT_TRUE(
      dequantize->run(stream, {}, {.input = q, .scale = 0.5, .zero_point = 3, .output = y}));
  EXPECT_EQ(y, (std::vector<float>{-1, 0, 1.5F, 2.5F, 62}));

  const auto fake = FakeQuantizePlan::select<float>(stream, {.numel = 5, .q_min = 0, .q_max = 4});
  ASSERT_TRUE(fake);
  ASSERT_TRUE(fake->run(stream, {}, {.input = x, .scale = 1, .zero_point = 1, .output = y}));
  EXPECT_EQ(y, (std::vector<float>{-1, 0, 2, 2, 3}));
  EXPECT_EQ(fake->sku().element, DType::f32);
}

TEST(Plans, AreValues) {
  const Stream stream = one_thread();
  const std::vector<float> x{1, 2, 3};
  std::vector<std::uint8_t> q(3);
  auto selected = QuantizePerTensorPlan::select<float, std::uint8_t>(stream, {.numel = 3});
  ASSERT_TRUE(selected);
  const QuantizePerTensorPlan copy = *selected;
  selected = QuantizePerTensorPlan::select<double, std::int8_t>(stream, {.numel = 9});
  ASSERT_TRUE(copy.run(stream, {}, {.input = x, .scale = 1, .zero_point = 0, .output = q}));
  EXPECT_EQ(q, (std::vector<std::uint8_t>{1, 2, 3}));
}

TEST_P(PlansEverywhere, ZeroPointsLeftOutAreZero) {
  for_each_kind([&](const Kind& kind) {
    if (kind.layout == Layout::per_tensor) return;
    const Problem p = problem_on(kind, {4, 9});
    SCOPED_TRACE(title(p));
    const Operands o = make_operands(p, {ordinary.scales, {0}}, 3);
    Placed output(output_type(p), p.shape);
    const Bytes want = expected_memory(o, output);
    Call call = call_of(o, nullptr);
    call.zero_points = {};
    call.output = output.mut();
    const Status status = run_call(stream(), p, call);
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_TRUE(output.memory == want);
  });
}

TEST_P(PlansEverywhere, TakeScalesOfEveryFloatType) {
  for (const DType type : all_floats)
    for_each_kind([&](const Kind& kind) {
      if (kind.layout == Layout::per_tensor) return;
      Problem p = problem_on(kind, {7, 9}, 1);
      p.scale_type = type;
      SCOPED_TRACE(title(p) + " scales " + std::string(name(type)));
      // A third is another number in every type.
      const Operands o = make_operands(p, {{1.0 / 3, 0.1, 1e-3, 2.7}, ordinary.zero_points}, 5);
      Placed output(output_type(p), p.shape);
      const Bytes want = expected_memory(o, output);
      Call call = call_of(o, nullptr);
      call.output = output.mut();
      const Status status = run_call(stream(), p, call);
      ASSERT_TRUE(status) << status.error().message();
      EXPECT_TRUE(output.memory == want);
    });
}

// ---- in place ----------------------------------------------------------------------------------

// The output takes the place of the input, of the gradient, or of both.
TEST_P(InPlace, GivesTheSameBits) {
  for_each_kind([&](const Kind& kind) {
    if (kind.op == Op::quantize || kind.op == Op::dequantize) return;
    for (const bool big : {false, true})
      for (const std::int64_t gap : {0, 5}) {
        // The big ones are for the cuts between threads.
        if (big && (gap == 0 || kind.element == DType::f64 || kind.element == DType::f16)) continue;
        if (big && slow_machine() && kind.layout != Layout::per_token) continue;
        const Shape shape = big ? Shape{31, 7001} : Shape{3, 9};
        for (const bool over_input : {false, true})
          for (const bool over_grad : {false, true}) {
            if (over_input && !has_input(kind.op)) continue;
            if (over_grad && !has_grad(kind.op)) continue;
            if (!over_input && !over_grad) continue;
            const Problem p = problem_on(kind, shape, 1);
            SCOPED_TRACE(title(p) + (over_input ? " over input" : "") +
                         (over_grad ? " over grad" : ""));
            Operands o = make_operands(p, ordinary, 11);
            const Elements from(p.element, p.shape);
            Placed output(p.element, shape, {shape[1] + gap, 1});
            Placed other(p.element, shape);
            if (over_input && over_grad) o.grad = o.input;
            if (has_input(p.op)) place(o.input, from, over_input ? output : other);
            if (has_grad(p.op)) place(o.grad, from, over_grad ? output : other);
            const Bytes want = expected_memory(o, output);
            Call call = call_of(o, nullptr);
            call.output = output.mut();
            call.input = over_input ? output.ref() : other.ref();
            call.grad = over_grad ? output.ref() : other.ref();
            const Status status = run_call(stream(3), p, call);
            ASSERT_TRUE(status) << status.error().message();
            ASSERT_TRUE(output.memory == want);
          }
      }
  });
}

// Integers of 16 bits take the place of floats of 16 bits, and the other way round.
TEST(InPlaceOnTargets, GivesTheSameIntegers) {
  for (const DType element : {DType::f16, DType::bf16})
    for (const Op op : {Op::quantize, Op::dequantize})
      for (const Layout layout : all_layouts)
        for (const Shape& shape : {Shape{3, 9}, Shape{31, 7002}}) {
          if (slow_machine() && shape[0] > 3) continue;
          const Problem p = problem_on({op, layout, element, DType::s16, Profile::torch}, shape, 1);
          SCOPED_TRACE(title(p));
          const Operands o = make_operands(p, ordinary, 11);
          for (const Target target : machine_targets) {
            if (!own_kernels(target)) continue;
            Bytes memory = o.input;
            Pointers at = pointers_of(o, memory.data());
            at.input = memory.data();
            const Status status = run(Stream::cpu({.threads = 3, .cap = target}), p, at);
            ASSERT_TRUE(status) << status.error().message();
            ASSERT_TRUE(memory == expected(o));
          }
        }
}

// ---- shapes ------------------------------------------------------------------------------------

TEST_P(Shapes, WithoutElementsWriteNothing) {
  for_each_kind([&](const Kind& kind) {
    for (const Shape& shape : {Shape{0, 6}, Shape{4, 0}, Shape{0, 0}, Shape{0}, Shape{2, 0, 3}}) {
      if (shape.rank() == 1 && kind.layout == Layout::per_channel) continue;
      for (int axis = 0; axis < (kind.layout == Layout::per_channel ? shape.rank() : 1); ++axis) {
        const Problem p = problem_on(kind, shape, axis);
        SCOPED_TRACE(title(p));
        const Operands o = make_operands(p, ordinary, 1);
        for (const bool null : {false, true}) {
          Placed output(output_type(p), shape);
          const Bytes before = output.memory;
          Call call = call_of(o, nullptr);
          call.input = {null ? nullptr : before.data(), input_type(p), shape};
          call.grad = {null ? nullptr : before.data(), p.element, shape};
          call.output = null ? TensorMut(nullptr, output_type(p), shape) : output.mut();
          const Status status = run_call(stream(), p, call);
          ASSERT_TRUE(status) << status.error().message();
          EXPECT_TRUE(output.memory == before);
        }
      }
    }
  });
}

// Sizes beside a 0 may be anything, their product too.
TEST_P(Shapes, WithoutElementsMayBeHuge) {
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  const Shape wraps_to_0{huge, huge, 0};
  const Shape wraps_to_4{(std::int64_t{1} << 62) + 1, 4, 0};
  for (std::size_t i = 0; i < 2 * all_ops.size(); ++i) {
    const Op op = all_ops[i / 2];
    const Shape& shape = i % 2 == 0 ? wraps_to_0 : wraps_to_4;
    const Problem p = problem_of({.op = op, .layout = Layout::per_tensor}, {0});
    Call call;
    call.input = {nullptr, input_type(p), shape};
    call.grad = {nullptr, p.element, shape};
    call.output = {nullptr, output_type(p), shape};
    const Status status = run_call(stream(), p, call);
    EXPECT_TRUE(status) << status.error().message();

    // As rows of a token or a group they are not those of the plan.
    for (const Layout layout : {Layout::per_token, Layout::per_group}) {
      const Problem few = problem_of({.op = op, .layout = layout}, {4, 0}, 0, 3);
      const std::array<float, 4> scales{1, 1, 1, 1};
      call.scales = {scales.data(), {layout == Layout::per_token ? 4 : 0}};
      const Status refused = run_call(stream(), few, call);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code(), ErrorCode::invalid_problem);
    }
  }
}

TEST_P(Shapes, OfRankZeroAndEight) {
  for_each_kind([&](const Kind& kind) {
    for (const Shape& shape : {Shape{}, Shape{2, 1, 3, 1, 2, 1, 2, 9}}) {
      const int axes = kind.layout == Layout::per_channel ? shape.rank() : 1;
      for (int axis = 0; axis < axes; ++axis) {
        // A row needs a dimension.
        const bool rows = kind.layout == Layout::per_token || kind.layout == Layout::per_group;
        if (shape.rank() == 0 && rows) continue;
        const Problem p = problem_on(kind, shape, axis);
        SCOPED_TRACE(title(p) + " rank " + std::to_string(shape.rank()));
        Operands o = make_operands(p, ordinary, 2);
        Placed input(input_type(p), shape);
        Placed grad(p.element, shape);
        Placed output(output_type(p), shape);
        if (has_input(p.op)) place(o.input, Elements(input_type(p), p.shape), input);
        if (has_grad(p.op)) place(o.grad, Elements(p.element, p.shape), grad);
        const Bytes want = expected_memory(o, output);
        Call call = call_of(o, nullptr);
        call.input = input.ref();
        call.grad = grad.ref();
        call.output = output.mut();
        const Status status = run_call(stream(), p, call);
        ASSERT_TRUE(status) << status.error().message();
        EXPECT_TRUE(output.memory == want);
      }
    }
  });
}

// ---- packed rows -------------------------------------------------------------------------------

TEST(Packed, RowsStartOnAByte) {
  const std::vector<float> x{-8, 7, -1, 1, 2, 3};
  std::array<s4x2, 6> bytes;
  bytes.fill({0xEE});
  const TensorMut output(bytes.data() + 1, {2, 3});
  const auto plan = QuantizePerTensorPlan::select<float, s4x2>(one_thread(), {.numel = 6});
  ASSERT_TRUE(plan);
  const Status status =
      plan->run(one_thread(), {},
                {.input = TensorRef(x, {2, 3}), .scale = 1, .zero_point = 0, .output = output});
  ASSERT_TRUE(status) << status.error().message();
  const std::array<s4x2, 6> want{{{0xEE}, {0x78}, {0x0F}, {0x21}, {0x03}, {0xEE}}};
  EXPECT_EQ(bytes, want);

  // And back, whatever stands in the half of a byte that is not used.
  bytes[2].bits |= 0xA0;
  bytes[4].bits |= 0x50;
  std::vector<float> y(6);
  const auto back = DequantizePerTensorPlan::select<s4x2, float>(one_thread(), {.numel = 6});
  ASSERT_TRUE(back);
  const Status done =
      back->run(one_thread(), {},
                {.input = output, .scale = 1, .zero_point = 0, .output = TensorMut(y, {2, 3})});
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(y, x);
}

// Odd rows, and groups that begin in the middle of a byte, on every thread count's cuts.
TEST_P(PackedEverywhere, OddRowsAndGroups) {
  for (const DType integer : {DType::s4, DType::u4})
    for (const Op op : {Op::quantize, Op::dequantize})
      for (const std::int64_t group : {1, 3, 5, 7, 33})
        for (const std::int64_t groups : {1, 2, 3, 8, 31})
          for (const std::int64_t rows :
               {std::int64_t{1}, std::int64_t{5}, 210000 / group / groups}) {
            if (rows > 5 && (groups == 2 || slow_machine())) continue;
            const Problem p = problem_of({op, Layout::per_group, DType::bf16, integer},
                                         {rows, group * groups}, 0, group);
            SCOPED_TRACE(title(p) + " groups of " + std::to_string(group));
            const Operands o = make_operands(p, ordinary, 9);
            Placed output(output_type(p), p.shape);
            const Bytes want = expected_memory(o, output);
            Call call = call_of(o, nullptr);
            call.output = output.mut();
            const Status status = run_call(stream(3), p, call);
            ASSERT_TRUE(status) << status.error().message();
            ASSERT_TRUE(output.memory == want);
          }
}

// ---- granularities -----------------------------------------------------------------------------

/// The part of a tensor that shares one scale: `size` of them along `dim`, from `first` on. Sizes
/// of the rest stay; a last dimension is kept, so that its stride is that of the tensor.
template <class View>
View narrow(const View& view, int dim, std::int64_t first, std::int64_t size) {
  if (view.data == nullptr) return view;  // not an operand of this plan
  View part = view;
  part.shape[dim] = size;
  using Byte = std::conditional_t<std::is_same_v<View, TensorRef>, const std::byte, std::byte>;
  part.data = static_cast<Byte*>(view.data) + first * view.strides[dim] * bits(view.dtype) / 8;
  return part;
}

// Every slice by itself, through a per-tensor plan, is what the others compute in one call.
TEST_P(Granularity, IsManyPerTensorCalls) {
  const Shape shape{3, 4, 5, 6};
  for_each_kind([&](const Kind& kind) {
    // Half a byte cannot be pointed to.
    if (kind.layout == Layout::per_tensor) return;
    if (has_integer(kind.op) && !has_grad(kind.op) && is_packed(kind.integer)) return;
    for (int axis = -4; axis < (kind.layout == Layout::per_channel ? 4 : -3); ++axis) {
      const Problem p = problem_on(kind, shape, axis);
      SCOPED_TRACE(title(p) + " axis " + std::to_string(axis));
      const Operands o = make_operands(p, ordinary, 4);
      // One dimension whose parts share a scale, in the order of the scales.
      const bool channel = kind.layout == Layout::per_channel;
      const Shape view = channel                            ? shape
                         : kind.layout == Layout::per_token ? Shape{60, 6}
                                                            : Shape{180, 2};
      const int dim = channel ? (axis + 4) % 4 : 0;
      Placed whole(output_type(p), view);
      Placed parts(output_type(p), view);
      Call call = call_of(o, nullptr);
      call.input = {o.input.data(), input_type(p), shape};
      call.grad = {o.grad.data(), p.element, shape};
      call.output = {whole.mut().data, output_type(p), shape};
      const Status status = run_call(stream(), p, call);
      ASSERT_TRUE(status) << status.error().message();

      const std::int64_t count = numel(shape) / view[dim];
      const Problem part =
          problem_of({kind.op, Layout::per_tensor, kind.element, kind.integer}, {count});
      for (std::int64_t i = 0; i < view[dim]; ++i) {
        const auto at = static_cast<std::size_t>(i);
        Call slice;
        slice.input = narrow(TensorRef(o.input.data(), input_type(p), view), dim, i, 1);
        slice.grad = narrow(TensorRef(o.grad.data(), p.element, view), dim, i, 1);
        slice.scale = o.scales[at];
        slice.zero_point = o.zero_points[at];
        slice.output = narrow(parts.mut(), dim, i, 1);
        const Status done = run_call(stream(), part, slice);
        ASSERT_TRUE(done) << done.error().message();
      }
      ASSERT_TRUE(whole.memory == parts.memory);
    }
  });
}

}  // namespace
}  // namespace octavo::testing
