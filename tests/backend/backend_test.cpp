// All plans on a backend whose memory the host cannot touch: what is neutral reads no tensor.
#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_data.hpp"
#include "tests/backend/device_testing.hpp"

namespace octavo::testing {
namespace {

using DeviceDeathTest = Device;

TEST_F(DeviceDeathTest, MemoryIsNotTheHosts) {
  if (emulated()) GTEST_SKIP() << "under qemu the child that faults does not end";
  const auto* byte = static_cast<const volatile char*>(up(Bytes(64)));
  EXPECT_DEATH(std::exit(*byte), "");
}

TEST_F(Device, Elementwise) {
  const auto check = [&](const Kind& kind, const Shape& shape, int axis, std::int64_t group,
                         std::optional<DType> scale_type) {
    device_memory().clear();
    Problem p = problem_of(kind, shape, axis, group);
    if (kind.layout != Layout::per_tensor) p.scale_type = scale_type;
    const Operands o = make_operands(p, {{0.5, 0.25, 2}, {3, -2}}, 7);
    const auto plan = octavo::detail::AnyElementwisePlan::select(stream_, p, {});
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->sku().backend, octavo::detail::test_backend);
    Pointers at = pointers_of(o, device_memory().allocate(1 << 16));
    at.input = up(o.input);
    at.grad = up(o.grad);
    if (kind.layout != Layout::per_tensor) {
      at.scales = up(o.scale_bytes);
      at.zero_points = device_memory().upload(o.zero_points.data(), o.zero_points.size() * 4);
    }
    const Status ran = run(*plan, stream_, p, at, workspace(plan->workspace_size()));
    ASSERT_TRUE(ran) << ran.error().message();
    ASSERT_TRUE(stream_.synchronize());
    std::ostringstream text;
    describe(text, p);
    EXPECT_EQ(down(at.output, static_cast<std::size_t>(output_bytes(p))), expected(o))
        << text.str();
  };
  for (const Op op : all_ops)
    for (const Layout layout : all_layouts)
      for (const Kind& kind : kinds_of(op, layout))
        for (const auto scale_type : {std::optional<DType>(), std::optional(DType::bf16)})
          switch (layout) {
            case Layout::per_tensor:
              check(kind, {35}, 0, 0, scale_type);
              break;
            case Layout::per_channel:
              check(kind, {3, 4, 5}, 1, 0, scale_type);
              break;
            case Layout::per_token:
              check(kind, {5, 7}, 0, 0, scale_type);
              break;
            case Layout::per_group:
              check(kind, {3, 12}, 0, 4, scale_type);
              break;
          }
}

TEST_F(Device, DynamicRanges) {
  for (const DType element : all_floats)
    for (const DType integer : all_integers)
      for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric})
        for (const Layout layout : all_layouts) {
          if (mode == RangeMode::symmetric && (integer == DType::u8 || integer == DType::u4))
            continue;
          device_memory().clear();
          const Shape shape = layout == Layout::per_tensor ? Shape{40} : Shape{4, 10};
          const Problem p = problem_of({Op::quantize, layout, element, integer}, shape, 1, 5);
          const DynamicCall c = make_dynamic(p, mode, 3);
          const auto plan = DynamicRangeQuantizePlan::select(stream_, descriptor_of(c));
          ASSERT_TRUE(plan) << plan.error().message();
          const auto slices = static_cast<std::size_t>(plan->slices());
          const DType compute = compute_type(element);
          const auto scale_bytes = slices * static_cast<std::size_t>(bits(compute)) / 8;
          DynamicRangeQuantizeArgs args;
          args.input = TensorRef(up(c.input), element, shape);
          args.output = TensorMut(device_memory().allocate(512), integer, shape);
          args.scales = TensorMut(device_memory().allocate(512), compute, {plan->slices()});
          args.zero_points = TensorMut(device_memory().allocate(512), DType::s32, {plan->slices()});
          const Status ran = plan->run(stream_, workspace(plan->workspace_size()), args);
          ASSERT_TRUE(ran) << ran.error().message();
          ASSERT_TRUE(stream_.synchronize());
          const DynamicResult want = expected(c);
          EXPECT_EQ(down(args.output.data, want.output.size()), want.output);
          EXPECT_EQ(down(args.scales.data, scale_bytes), want.scales);
          std::vector<std::int32_t> zero_points(slices);
          device_memory().download(args.zero_points.data, slices * 4, zero_points.data());
          EXPECT_EQ(zero_points, want.zero_points);
        }
}

template <class Plan>
void check_observer_on(const Stream& stream, const ObserverDescriptor& descriptor) {
  device_memory().clear();
  const auto bytes = static_cast<std::size_t>(bytes_for(descriptor.input, 24));
  Bytes batch(bytes);
  Random random(5);
  for (std::int64_t i = 0; i < 24; ++i)
    store_bits(batch.data(), bits(descriptor.input) / 8, i,
               dynamic_bits(descriptor.input, random.below(12), random));
  const auto observe = [&](const Stream& on, const void* data, auto lend) {
    const auto observer = Plan::select(on, descriptor);
    EXPECT_TRUE(observer) << observer.error().message();
    EXPECT_EQ(observer->sku().backend, on.backend());
    auto state = observer->make_state();
    const auto lent = lend(observer->workspace_size());
    const Status s = observer->run(
        on, lent, {.input = TensorRef(data, descriptor.input, {8, 3}), .state = &state});
    EXPECT_TRUE(s) << s.error().message();
    return state;
  };
  const auto on_device = [](std::size_t size) {
    return Workspace{device_memory().allocate(size), size};
  };
  EXPECT_EQ(observe(stream, device_memory().upload(batch.data(), bytes), on_device),
            observe(Stream::cpu(), batch.data(), [](std::size_t n) { return WorkspaceBuffer(n); }));
}

TEST_F(Device, Observers) {
  for (const DType type : all_floats)
    for (const Layout scope : {Layout::per_tensor, Layout::per_channel}) {
      const ObserverDescriptor d{.input = type, .scope = scope, .axis = 1, .channels = 3};
      check_observer_on<MinMaxObserver>(stream_, d);
      check_observer_on<HistogramObserver>(stream_, d);
    }
}

template <class Plan>
void check_linear_on(const Stream& stream, const LinearData& d) {
  SCOPED_TRACE(d.c.text());
  device_memory().clear();
  const auto plan = Plan::select(stream, descriptor_for<Plan>(d));
  ASSERT_TRUE(plan) << plan.error().message();
  PackedWeight packed;
  if (d.c.packed) {
    TensorRef weight = d.weight.ref();
    WeightGroups groups = groups_of(d);
    move(weight);
    move(groups.scales);
    move(groups.zero_points);
    auto made = pack(stream, weight, groups);
    ASSERT_TRUE(made) << made.error().message();
    packed = *made;
    EXPECT_EQ(packed.format().layout, device_layout);
  }
  Matrix out = blank_output(d.c);
  const auto args = moved(linear_args<typename Plan::Args>(d, packed, out), out.bytes.size());
  const Workspace workspace{device_memory().allocate(plan->workspace_size()),
                            plan->workspace_size()};
  const Status can = plan->can_implement(args);
  ASSERT_TRUE(can) << can.error().message();
  const Status ran = plan->run(stream, workspace, args);
  ASSERT_TRUE(ran) << ran.error().message();
  ASSERT_TRUE(stream.synchronize());
  device_memory().download(args.output.data, out.bytes.size(), out.bytes.data());
  EXPECT_EQ(out.bytes, expected(d).bytes);
}
void check_linear_on(const Stream& stream, const LinearCase& c) {
  const LinearData d = make_linear(c);
  switch (c.kind) {
    case LinearKind::matmul:
      return check_linear_on<QuantizedMatmulPlan>(stream, d);
    case LinearKind::dynamic:
      return check_linear_on<QuantizedLinearPlan>(stream, d);
    case LinearKind::smoothquant:
      return check_linear_on<SmoothQuantLinearPlan>(stream, d);
    case LinearKind::floats:
      return check_linear_on<FloatLinearPlan>(stream, d);
  }
}

TEST_F(Device, Linears) {
  for (const LinearKind kind : {LinearKind::matmul, LinearKind::dynamic, LinearKind::smoothquant})
    for (const DType weight : {DType::s8, DType::u8})
      for (const DType output : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8})
        for (const bool packed : {false, true})
          for (const Epilogue epilogue :
               {Epilogue::none, Epilogue::bias | Epilogue::residual | Epilogue::relu}) {
            LinearCase c;
            c.kind = kind;
            c.m = 3;
            c.n = 5;
            c.k = 7;
            c.activation = kind == LinearKind::dynamic ? DType::f32 : DType::s8;
            c.weight = weight;
            c.output = output;
            c.activation_zero_points = kind != LinearKind::dynamic && packed;
            c.weight_zero_points = packed;
            c.packed = packed;
            c.epilogue = epilogue;
            check_linear_on(stream_, c);
          }
}

TEST_F(Device, LinearsInGroupsAndOfFloats) {
  for (const DType weight : {DType::s4, DType::u4, DType::s8, DType::f32, DType::bf16})
    for (const DType quantized : {DType::s8, DType::s16})
      for (const std::int64_t group : {0, 4})
        for (const bool packed : {false, true}) {
          LinearCase c;
          c.kind = is_float(weight) ? LinearKind::floats : LinearKind::dynamic;
          c.m = 3;
          c.n = 5;
          c.k = 12;
          c.group = is_float(weight) ? 0 : group;
          c.activation = DType::f32;
          c.weight = weight;
          c.quantized = quantized;
          c.weight_zero_points = !is_float(weight) && packed;
          c.packed = packed;
          check_linear_on(stream_, c);
        }
}

TEST_F(Device, SumsAsTheyAre) {
  for (const DType activation : {DType::s8, DType::u8})
    for (const bool packed : {false, true}) {
      LinearCase c{.m = 3, .n = 5, .k = 7, .activation = activation, .output = DType::s32};
      c.packed = packed;
      c.activation_zero_points = c.weight_zero_points = packed;
      check_linear_on(stream_, c);
    }
}

TEST_F(Device, LinearsWithAsymmetricRows) {
  for (const DType activation : all_floats)
    for (const auto quantized : {std::optional<DType>(), std::optional(DType::s8)})
      for (const bool packed : {false, true}) {
        LinearCase c{.kind = LinearKind::dynamic, .m = 3, .n = 5, .k = 7};
        c.activation = activation;
        c.mode = RangeMode::asymmetric;
        c.quantized = quantized;
        c.packed = packed;
        check_linear_on(stream_, c);
      }
}

TEST_F(Device, WeightsPackedElsewhereAreRefusedByTheirFormat) {
  const LinearCase c{.m = 2, .n = 3, .k = 4, .packed = true};
  const LinearData d = make_linear(c);
  const auto host = pack(Stream::cpu(), d.weight.ref());
  ASSERT_TRUE(host);
  const auto plan = QuantizedMatmulPlan::select(stream_, matmul_descriptor(c));
  ASSERT_TRUE(plan);
  Matrix out = blank_output(c);
  const Status s =
      plan->can_implement(moved(linear_args<QuantizedMatmulArgs>(d, *host, out), out.bytes.size()));
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(s.error().argument(), "weight");
}

TEST_F(Device, APlanRunsOnStreamsOfItsBackendOnly) {
  std::vector<float> x(4);
  std::vector<std::int8_t> q(4, 77);
  const Stream cpu = Stream::cpu();
  const PerTensorArgs args{.input = x, .output = q};
  for (const auto& [made, run_on, words] :
       {std::tuple{stream_, cpu,
                   "expected a stream of test, as the plan was made for, got one of "
                   "cpu"},
        {cpu, stream_, "expected a stream of cpu, as the plan was made for, got one of test"}}) {
    const auto plan = QuantizePerTensorPlan::select<float, std::int8_t>(made, {.numel = 4});
    ASSERT_TRUE(plan);
    const Status s = plan->run(run_on, {}, args);
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().code(), ErrorCode::unsupported);
    EXPECT_EQ(s.error().argument(), "stream");
    EXPECT_EQ(s.error().message(), std::string("stream: ") + words);
  }
  EXPECT_EQ(q, std::vector<std::int8_t>(4, 77));
  EXPECT_FALSE(QuantizePerTensorPlan::select(stream_, {.numel = 4}, {.backend = Backend::cpu}));
}

TEST_F(Device, NoPlanTakesATarget) {
  const PlanPreference scalar{.target = Target::scalar};
  const auto expect_refused = [](const auto& plan) {
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().argument(), "target");
  };
  expect_refused(QuantizePerTensorPlan::select(stream_, {.numel = 4}, scalar));
  expect_refused(DynamicRangeQuantizePlan::select(stream_, {.shape = {4, 4}}, scalar));
  expect_refused(MinMaxObserver::select(stream_, {}, scalar));
  expect_refused(QuantizedMatmulPlan::select(stream_, {.m = 1, .n = 1, .k = 1}, scalar));
  expect_refused(PackWeightPlan::select(stream_, {.n = 1, .k = 1}, scalar));
}

}  // namespace
}  // namespace octavo::testing
