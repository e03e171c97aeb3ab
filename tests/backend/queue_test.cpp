// What is run on a backend whose work is queued: it waits for `synchronize`, reads what runs before
// it write, and is refused there by the values it reads, in the words of the CPU.
#include <limits>

#include "ops/elementwise/testing_data.hpp"
#include "ops/elementwise/testing_plans.hpp"
#include "tests/backend/device_testing.hpp"

namespace octavo::testing {
namespace {

void expect_same_error(const Status& got, const Status& want) {
  ASSERT_FALSE(want);
  ASSERT_FALSE(got) << "expected " << want.error().message();
  EXPECT_EQ(got.error().code(), want.error().code());
  EXPECT_EQ(got.error().argument(), want.error().argument());
  EXPECT_EQ(got.error().message(), want.error().message());
}

class DeviceQueue : public Device {};

// ---- Runs that read what those before them write ------------------------------------------------

/// Memory of the host, or the device's, that outputs are put to.
struct Memory {
  bool on_device = false;
  std::vector<Bytes> own;
  std::vector<WorkspaceBuffer> lent;

  void* put(const void* from, std::size_t bytes) {
    if (on_device) return device_memory().upload(from, bytes);
    const auto* at = static_cast<const std::byte*>(from);
    // (Vectors that move keep their memory.)
    return own.emplace_back(at, at + bytes).data();
  }
  void* paint(std::size_t bytes) {
    const Bytes painted(bytes, device_paint);
    return put(painted.data(), bytes);
  }
  Workspace lend(std::size_t bytes) {
    if (on_device) return {device_memory().allocate(bytes), bytes};
    return lent.emplace_back(bytes);
  }
};

/// Rows are quantized by the ranges that are found in them, and once more by what was written; then
/// back to floats, and multiplied by weights that are quantized and packed on the way.
class Chain {
 public:
  explicit Chain(bool on_device) : memory_{on_device, {}, {}} {}

  void run_on(const Stream& stream) {
    constexpr std::int64_t m = 4, k = 10, n = 3;
    std::vector<float> rows, weights;
    for (int i = 0; i < m * k; ++i) rows.push_back(static_cast<float>(i * i % 37 - 11) / 4);
    for (int i = 0; i < n * k; ++i) weights.push_back(static_cast<float>(i * 7 % 41 - 20) / 8);
    const std::vector<float> by(n, 0.03125F);
    const TensorRef x(memory_.put(rows.data(), 4 * m * k), DType::f32, {m, k});
    const TensorRef w(memory_.put(weights.data(), 4 * n * k), DType::f32, {n, k});
    const TensorRef w_scales(memory_.put(by.data(), 4 * n), DType::f32, {n});

    const TensorMut scales = output(DType::f32, {m});
    const TensorMut zeros = output(DType::s32, {m});
    const TensorMut found = output(DType::u8, {m, k});
    const TensorMut again = output(DType::u8, {m, k});
    const TensorMut back = output(DType::f32, {m, k});
    const TensorMut codes = output(DType::s8, {n, k});
    const TensorMut y = output(DType::f32, {m, n});
    run<DynamicRangeQuantizePlan>(
        stream, {.shape = {m, k}, .mode = RangeMode::asymmetric, .output = DType::u8},
        {.input = x, .output = found, .scales = scales, .zero_points = zeros});
    run<QuantizePerTokenPlan>(
        stream, {.tokens = m, .hidden = k, .output = DType::u8},
        {.input = x, .scales = scales, .zero_points = zeros, .output = again});
    run<DequantizePerTokenPlan>(
        stream, {.tokens = m, .hidden = k, .input = DType::u8},
        {.input = again, .scales = scales, .zero_points = zeros, .output = back});
    run<QuantizePerChannelPlan>(stream, {.shape = {n, k}, .axis = 0},
                                {.input = w, .scales = w_scales, .output = codes});
    const auto packed = pack(stream, codes);
    ASSERT_TRUE(packed) << packed.error().message();
    run<QuantizedMatmulPlan>(stream,
                             {.m = m,
                              .n = n,
                              .k = k,
                              .activation = DType::u8,
                              .activation_zero_points = true,
                              .packed_weight = true},
                             {.input = found,
                              .activation_scales = scales,
                              .activation_zero_points = zeros,
                              .weight = *packed,
                              .weight_scales = w_scales,
                              .output = y});
  }

  /// What the outputs hold.
  [[nodiscard]] std::vector<Bytes> outputs() const {
    std::vector<Bytes> all;
    for (const auto& [at, bytes] : outputs_) {
      Bytes& to = all.emplace_back(bytes);
      if (memory_.on_device) {
        device_memory().download(at, bytes, to.data());
      } else {
        std::memcpy(to.data(), at, bytes);
      }
    }
    return all;
  }

 private:
  // (The plan is gone when it returns, and so are the arguments.)
  template <class Plan>
  void run(const Stream& stream, const typename Plan::Descriptor& descriptor,
           const typename Plan::Args& args) {
    const auto plan = Plan::select(stream, descriptor);
    ASSERT_TRUE(plan) << plan.error().message();
    const Status can = plan->can_implement(args);
    EXPECT_TRUE(can) << can.error().message();
    const Status ran = plan->run(stream, memory_.lend(plan->workspace_size()), args);
    EXPECT_TRUE(ran) << ran.error().message();
  }
  TensorMut output(DType type, const Shape& shape) {
    const auto bytes = static_cast<std::size_t>(Elements(type, shape).bytes());
    outputs_.emplace_back(memory_.paint(bytes), bytes);
    return {outputs_.back().first, type, shape};
  }

  Memory memory_;
  std::vector<std::pair<void*, std::size_t>> outputs_;
};

TEST_F(DeviceQueue, RunsWaitAndReadWhatThoseBeforeThemWrite) {
  Chain host(false);
  host.run_on(host_stream());
  Chain device(true);
  device.run_on(stream_);
  for (const Bytes& output : device.outputs()) EXPECT_EQ(output, painted(output.size()));
  const Status done = stream_.synchronize();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(device.outputs(), host.outputs());
  for (const Bytes& output : device.outputs()) EXPECT_NE(output, painted(output.size()));
}

// ---- Refusals -----------------------------------------------------------------------------------

// Runs a call with good values, with bad ones and with good ones: the bad one is refused, late and
// alone. `run` is given an output, and whether to be bad.
template <class Run>
void expect_refused_alone(const Stream& stream, const Status& words, const Bytes& answer, Run run) {
  const Bytes paint(answer.size(), device_paint);
  std::array<void*, 3> outputs{};
  for (std::size_t i = 0; i < 3; ++i) {
    outputs[i] = device_memory().upload(paint.data(), paint.size());
    const Status ran = run(outputs[i], i == 1);
    ASSERT_TRUE(ran) << ran.error().message();
  }
  expect_same_error(stream.synchronize(), words);
  for (std::size_t i = 0; i < 3; ++i) {
    Bytes got(answer.size());
    device_memory().download(outputs[i], got.size(), got.data());
    EXPECT_EQ(got, i == 1 ? paint : answer) << i;
  }
  EXPECT_TRUE(stream.synchronize());
}

TEST_F(DeviceQueue, ElementwiseRunsAreRefusedWhenTheyAreCarriedOut) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Stream cpu = host_stream();
  for_each_plan([&](const Problem& p) {
    SCOPED_TRACE(title(p));
    device_memory().clear();
    const Operands good = make_operands(p, {{0.5, 0.25, 2}, {3, -2}}, 7);
    Operands bad = good;
    bad.scales[0] = nan;
    if (p.layout != Layout::per_tensor)
      store_bits(bad.scale_bytes.data(), 4, 2, encode(DType::f32, nan));
    Bytes untouched(static_cast<std::size_t>(output_bytes(p)));
    const auto on_cpu = select_plan(cpu, p);
    ASSERT_TRUE(on_cpu);
    const Status words = (*on_cpu)->run(cpu, {}, call_of(bad, untouched.data()));

    const auto plan = select_plan(stream_, p);
    ASSERT_TRUE(plan) << plan.error().message();
    expect_refused_alone(stream_, words, expected(good), [&](void* output, bool is_bad) {
      Call call = call_of(is_bad ? bad : good, output);
      call.input.data = up(good.input);
      call.grad.data = up(good.grad);
      call.scales.data = up((is_bad ? bad : good).scale_bytes);
      call.zero_points.data =
          device_memory().upload(good.zero_points.data(), good.zero_points.size() * 4);
      const Status can = (*plan)->can_implement(call);
      return can ? (*plan)->run(stream_, {}, call) : can;
    });
  });
}

template <class Plan>
void expect_linear_refused(const Stream& stream, const LinearData& good, const LinearData& bad) {
  SCOPED_TRACE(good.c.text());
  device_memory().clear();
  Matrix out = blank_output(good.c);
  const auto on_cpu = Plan::select(host_stream(), descriptor_for<Plan>(good));
  ASSERT_TRUE(on_cpu) << on_cpu.error().message();
  const Status words = on_cpu->can_implement(linear_args<typename Plan::Args>(bad, {}, out));

  const auto plan = Plan::select(stream, descriptor_for<Plan>(good));
  ASSERT_TRUE(plan);
  expect_refused_alone(stream, words, expected(good).bytes, [&](void* output, bool is_bad) {
    auto args = moved(linear_args<typename Plan::Args>(is_bad ? bad : good, {}, out), 0);
    args.output.data = output;
    if (Status can = plan->can_implement(args); !can) return can;
    const Workspace lent{device_memory().allocate(plan->workspace_size()), plan->workspace_size()};
    return plan->run(stream, lent, args);
  });
}

TEST_F(DeviceQueue, LinearRunsAreRefusedWhenTheyAreCarriedOut) {
  const auto infinity = encode(DType::f32, std::numeric_limits<double>::infinity());
  LinearCase c{.m = 3, .n = 5, .k = 7};
  c.activation_zero_points = c.weight_zero_points = true;
  const LinearData good = make_linear(c);
  const auto refuse = [&](auto spoil) {
    LinearData bad = good;
    spoil(bad);
    expect_linear_refused<QuantizedMatmulPlan>(stream_, good, bad);
  };
  refuse([&](LinearData& d) { d.weight_scales.set(0, 3, infinity); });
  refuse([&](LinearData& d) { d.activation_scales.set(0, 2, infinity); });
  refuse([](LinearData& d) { d.weight_zero_points[4] = 128; });
  refuse([](LinearData& d) { d.activation_zero_points[1] = -129; });

  c.activation_zero_points = false;
  c.kind = LinearKind::smoothquant;
  const LinearData smooth = make_linear(c);
  LinearData bad = smooth;
  bad.weight_scales.set(0, 1, infinity);
  expect_linear_refused<SmoothQuantLinearPlan>(stream_, smooth, bad);

  c.kind = LinearKind::dynamic;
  c.activation = DType::f32;
  const LinearData dynamic = make_linear(c);
  bad = dynamic;
  bad.weight_zero_points[0] = 1000;
  expect_linear_refused<QuantizedLinearPlan>(stream_, dynamic, bad);
}

TEST_F(DeviceQueue, TheFirstRefusalIsTheStreamsOwnAndReturnedOnce) {
  const auto quantize = [&](const Stream& stream, double scale) {
    const auto plan = QuantizePerTensorPlan::select(stream, {.numel = 4});
    ASSERT_TRUE(plan);
    ASSERT_TRUE(plan->run(stream, {},
                          {.input = TensorRef(up(Bytes(16)), DType::f32, {4}),
                           .scale = scale,
                           .output = TensorMut(up(Bytes(4)), DType::s8, {4})}));
  };
  const Stream other = device_stream();
  const Stream copy = stream_;  // (of the same stream)
  quantize(stream_, -3);
  quantize(copy, -5);
  quantize(other, 1);
  EXPECT_TRUE(other.synchronize());
  const Status first = copy.synchronize();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().argument(), "scale");
  EXPECT_NE(first.error().message().find("got -3"), std::string::npos) << first.error().message();
  EXPECT_TRUE(stream_.synchronize());
  quantize(stream_, 1);
  EXPECT_TRUE(stream_.synchronize());
}

// ---- Observers, whose state is the host's -------------------------------------------------------

TEST_F(DeviceQueue, ObserversWaitForWhatIsQueued) {
  const std::vector<std::int8_t> codes{1, -2, 3, -4};
  const auto dequantize = DequantizePerTensorPlan::select(stream_, {.numel = 4});
  const auto observer = MinMaxObserver::select(stream_, {});
  ASSERT_TRUE(dequantize && observer);
  const TensorRef input(device_memory().upload(codes.data(), 4), DType::s8, {4});
  const TensorMut batch(up(painted(16)), DType::f32, {4});
  MinMaxState state = observer->make_state();
  const auto run = [&](double scale) {
    ASSERT_TRUE(dequantize->run(stream_, {}, {.input = input, .scale = scale, .output = batch}));
    const Status seen = observer->run(stream_, workspace(observer->workspace_size()),
                                      {.input = batch, .state = &state});
    ASSERT_TRUE(seen) << seen.error().message();
  };
  run(2);
  EXPECT_EQ(state.low(), std::vector<double>{-8});
  EXPECT_EQ(state.high(), std::vector<double>{6});
  // A run before it that was refused is still the stream's to tell.
  run(std::numeric_limits<double>::infinity());
  EXPECT_EQ(state.low(), std::vector<double>{-8});
  const Status refused = stream_.synchronize();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().argument(), "scale");
  EXPECT_TRUE(stream_.synchronize());
}

// ---- Packed weights -----------------------------------------------------------------------------

class DevicePacks : public DeviceQueue {
 protected:
  static LinearData data(DType weight) {
    LinearCase c{.m = 2, .n = 3, .k = 4, .weight = weight, .packed = true};
    return make_linear(c);
  }
  /// Where the linear of a weight will write.
  void* enqueue_linear(const LinearData& d, const PackedWeight& packed) {
    const auto plan = QuantizedMatmulPlan::select(stream_, matmul_descriptor(d.c));
    EXPECT_TRUE(plan);
    Matrix out = blank_output(d.c);
    const auto args = moved(linear_args<QuantizedMatmulArgs>(d, packed, out), out.bytes.size());
    const Status ran = plan->run(stream_, workspace(plan->workspace_size()), args);
    EXPECT_TRUE(ran) << ran.error().message();
    return args.output.data;
  }
  static TensorRef weight_of(const LinearData& d) {
    TensorRef weight = d.weight.ref();
    weight.data = up(d.weight.bytes);
    return weight;
  }
};

TEST_F(DevicePacks, AreReadInOrderAndKeptUntilThen) {
  for (const DType type : {DType::s8, DType::u8}) {
    const LinearData d = data(type);
    const auto packing = PackWeightPlan::select(stream_, {.n = 3, .k = 4, .weight = type});
    ASSERT_TRUE(packing);
    void* out = nullptr;
    {
      PackedWeight packed = *packing->make_packed();
      ASSERT_TRUE(packing->run(stream_, {}, {.weight = weight_of(d), .packed = &packed}));
      out = enqueue_linear(d, packed);
    }
    ASSERT_TRUE(stream_.synchronize());
    EXPECT_EQ(down(out, expected(d).bytes.size()), expected(d).bytes);
  }
}

TEST_F(DevicePacks, AreAllZeroUntilSomethingIsPacked) {
  for (const DType type : {DType::s8, DType::u8}) {
    const LinearData d = data(type);
    const PackWeightDescriptor sizes{.n = 3, .k = 4, .weight = type};
    const PackedWeight zero = *PackWeightPlan::select(stream_, sizes)->make_packed();
    const PackedWeight host = *PackWeightPlan::select(host_stream(), sizes)->make_packed();
    EXPECT_EQ(zero.bytes(), host.bytes());
    EXPECT_EQ(zero.format(), (WeightFormat{type, 0, device_layout}));
    const void* got = enqueue_linear(d, zero);
    ASSERT_TRUE(stream_.synchronize());
    Matrix want = blank_output(d.c);
    const auto plan = QuantizedMatmulPlan::select(host_stream(), matmul_descriptor(d.c));
    const WorkspaceBuffer lent(plan->workspace_size());
    ASSERT_TRUE(plan->run(host_stream(), lent, linear_args<QuantizedMatmulArgs>(d, host, want)));
    EXPECT_EQ(down(got, want.bytes.size()), want.bytes);
  }
}

// What is queued holds a copy: nobody packs over what it will read, or pack.
TEST_F(DevicePacks, AreRefusedWhileQueuedWorkHoldsThem) {
  const LinearData d = data(DType::s8);
  const auto packing = PackWeightPlan::select(stream_, {.n = 3, .k = 4});
  ASSERT_TRUE(packing);
  PackedWeight packed = *packing->make_packed();
  const PackWeightArgs args{.weight = weight_of(d), .packed = &packed};
  const auto expect_refused = [&] {
    for (const Status& s : {packing->can_implement(args), packing->run(stream_, {}, args)}) {
      ASSERT_FALSE(s);
      EXPECT_EQ(s.error().code(), ErrorCode::invalid_problem);
      EXPECT_EQ(s.error().argument(), "packed");
    }
  };
  ASSERT_TRUE(packing->run(stream_, {}, args));
  expect_refused();
  ASSERT_TRUE(stream_.synchronize());
  EXPECT_TRUE(packing->can_implement(args));
  const void* out = enqueue_linear(d, packed);
  expect_refused();
  ASSERT_TRUE(stream_.synchronize());
  EXPECT_EQ(down(out, expected(d).bytes.size()), expected(d).bytes);
  EXPECT_TRUE(packing->run(stream_, {}, args));
  EXPECT_TRUE(stream_.synchronize());
}

}  // namespace
}  // namespace octavo::testing
