// CUDA streams: made and refused, errors of the driver, refusals of values in order, whose memory
// is whose, many threads and many streams. On the stand-in driver; what only that can do is skipped
// on a real one.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <thread>
#include <vector>

#include "ops/elementwise/testing_data.hpp"
#include "ops/elementwise/testing_plans.hpp"
#include "testing/cuda.hpp"
#include "tests/cuda/driver/control.hpp"

namespace octavo::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "there is no CUDA device";
    control_ = standin::Control::find();
  }
  void TearDown() override {
    if (control_ != nullptr) control_->reset();
  }
  /// As if the machine had such devices; false if it cannot be.
  [[nodiscard]] bool set_devices(int count, int capability) const {
    return control_ != nullptr && control_->live().contexts == 0 &&
           control_->set_devices(count, capability) &&
           octavo::cuda::driver().value()->init(0) == octavo::cuda::success;
  }
  const standin::Control* control_ = nullptr;  // of the stand-in; null of a real driver
};

/// A run of quantize per tensor on the device, whose output can be looked at.
class Quantizing {
 public:
  explicit Quantizing(const Stream& stream, std::int64_t n = 1000)
      : stream_(stream),
        memory_(stream),
        n_(n),
        plan_(QuantizePerTensorPlan::select(stream, {.numel = n}).value()) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      x[static_cast<std::size_t>(i)] = static_cast<float>(i % 100);
    const std::vector<std::int8_t> paint(x.size(), 111);
    input_ = memory_.upload(x.data(), 4 * x.size());
    output_ = memory_.upload(paint.data(), paint.size());
  }
  [[nodiscard]] PerTensorArgs args(double scale = 1) const {
    return {.input = TensorRef(input_, DType::f32, {n_}),
            .scale = scale,
            .zero_point = 0,
            .output = TensorMut(output_, DType::s8, {n_})};
  }
  [[nodiscard]] Status operator()(double scale = 1) const {
    return plan_.run(stream_, {}, args(scale));
  }
  [[nodiscard]] bool is_done() {
    std::vector<std::int8_t> q(static_cast<std::size_t>(n_));
    memory_.read(output_, q.size(), q.data());
    for (std::size_t i = 0; i < q.size(); ++i)
      if (q[i] != static_cast<std::int8_t>(i % 100)) return false;
    return true;
  }
  [[nodiscard]] bool is_untouched() {
    std::vector<std::int8_t> q(static_cast<std::size_t>(n_));
    memory_.read(output_, q.size(), q.data());
    return q == std::vector<std::int8_t>(q.size(), 111);
  }
  [[nodiscard]] const QuantizePerTensorPlan& plan() const { return plan_; }

 private:
  Stream stream_;
  CudaMemory memory_;
  std::int64_t n_;
  QuantizePerTensorPlan plan_;
  void* input_;
  void* output_;
};

void expect_error(const Status& s, ErrorCode code, const char* argument, const char* part) {
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code(), code) << s.error().message();
  EXPECT_EQ(s.error().argument(), argument) << s.error().message();
  EXPECT_NE(s.error().message().find(part), std::string::npos) << s.error().message();
}
Status status_of(const Result<Stream>& made) { return made ? Status() : Status(made.error()); }

// ---- streams -----------------------------------------------------------------------------------

TEST_F(Cuda, PlansNameTheirKernel) {
  const Stream stream = cuda_stream().value();
  EXPECT_EQ(stream.backend(), Backend::cuda);
  const auto plan = QuantizePerTensorPlan::select(stream, {.numel = 1});
  ASSERT_TRUE(plan);
  EXPECT_EQ(to_string(plan->sku()), "elementwise.quantize.per_tensor.f32.s8.none.torch.cuda.sm80");
  EXPECT_EQ(plan->sku().target, Target::sm80);
  EXPECT_FALSE(QuantizePerTensorPlan::select(stream, {.numel = 1}, {.target = Target::sm80}));
  const Status s = plan->run(Stream::cpu(), {}, {});
  expect_error(s, ErrorCode::unsupported, "stream", "expected a stream of cuda");
}

TEST_F(Cuda, DevicesThatAreNotThereOrTooOldAreRefused) {
  if (!set_devices(2, 75)) GTEST_SKIP() << "the stand-in's alone";
  expect_error(status_of(Stream::cuda()), ErrorCode::unsupported, "device",
               "expected compute capability 8.0 or later, got 7.5");
  ASSERT_TRUE(set_devices(2, 90));
  EXPECT_TRUE(Stream::cuda({.device = 1}));
  expect_error(status_of(Stream::cuda({.device = 2})), ErrorCode::invalid_problem, "device",
               "expected one of the devices 0 to 1, got 2");
  expect_error(status_of(Stream::cuda({.device = -1})), ErrorCode::invalid_problem, "device",
               "got -1");
  const auto devices = cuda_devices();
  ASSERT_TRUE(devices);
  EXPECT_EQ(devices->size(), 2U);
  EXPECT_EQ(devices->at(0).compute_major, 9);
  EXPECT_GT(devices->at(0).bytes, 0U);
  ASSERT_TRUE(set_devices(1, 80));
}

TEST_F(Cuda, StreamsThatExistAreUsed) {
  const Stream own = cuda_stream().value();
  octavo::cuda::CudaStream& of = octavo::cuda::cuda_of(own);
  void* const handles[] = {of.handle(), nullptr};  // (null: the legacy default stream)
  for (void* handle : handles) {
    const auto stream = Stream::cuda({.device = 0, .stream = handle});
    ASSERT_TRUE(stream) << stream.error().message();
    EXPECT_EQ(octavo::cuda::cuda_of(*stream).handle(), handle);
    Quantizing run(*stream);
    ASSERT_TRUE(run());
    ASSERT_TRUE(stream->synchronize());
    EXPECT_TRUE(run.is_done());
  }
  Quantizing still(own);
  ASSERT_TRUE(still());
  EXPECT_TRUE(own.synchronize());
}

TEST_F(Cuda, RunsAreQueued) {
  if (control_ == nullptr) GTEST_SKIP() << "the stand-in's alone";
  const Stream stream = cuda_stream().value();
  Quantizing run(stream);
  const std::uint64_t before = control_->pending();
  ASSERT_TRUE(run());
  EXPECT_GT(control_->pending(), before);
  ASSERT_TRUE(stream.synchronize());
  EXPECT_TRUE(run.is_done());
}

TEST_F(Cuda, NothingIsAllocatedByRuns) {
  if (control_ == nullptr) GTEST_SKIP() << "the stand-in's alone";
  const Stream stream = cuda_stream().value();
  Quantizing run(stream);
  ASSERT_TRUE(run());
  ASSERT_TRUE(stream.synchronize());
  control_->reset_calls();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(run());
  for (const char* name : {"cuMemAlloc", "cuModuleLoadData", "cuModuleGetFunction",
                           "cuStreamSynchronize", "cuMemFree"})
    EXPECT_EQ(control_->calls(name), 0U) << name;
  EXPECT_EQ(control_->calls("cuLaunchKernel"), 10U);
  ASSERT_TRUE(stream.synchronize());
}

// ---- whose memory ------------------------------------------------------------------------------

TEST_F(Cuda, MemoryOfTheHostIsRefusedByArgument) {
  const Stream stream = cuda_stream().value();
  CudaMemory memory(stream);
  for_each_plan([&](Problem p) {
    SCOPED_TRACE(title(p));
    if (p.layout != Layout::per_tensor) p.scale_type = DType::bf16;  // (with a workspace)
    const Operands o = make_operands(p, {{0.5}, {3}}, 1);
    const auto plan = select_plan(stream, p);
    ASSERT_TRUE(plan);
    Bytes output(static_cast<std::size_t>(output_bytes(p)));
    const Call host = call_of(o, output.data());
    Call device = host;
    device.input.data = memory.upload(o.input.data(), o.input.size());
    device.grad.data = memory.upload(o.grad.data(), o.grad.size());
    device.scales.data = memory.upload(o.scale_bytes.data(), o.scale_bytes.size());
    device.zero_points.data = memory.upload(o.zero_points.data(), 4 * o.zero_points.size());
    device.output.data = memory.upload(output.data(), output.size());
    const std::size_t bytes = (*plan)->workspace_size();
    const WorkspaceBuffer lent(stream, bytes);
    const WorkspaceBuffer wrong(bytes);
    const auto expect_refused = [&](const Call& call, const std::string& argument) {
      for (const Status& s : {(*plan)->can_implement(call), (*plan)->run(stream, lent, call)})
        expect_error(s, ErrorCode::invalid_problem, argument.c_str(),
                     "expected memory of a CUDA device, as the stream's backend is cuda, got "
                     "memory of the host");
    };
    const std::string out = has_grad(p.op) ? "grad_input" : "output";
    Call call = device;
    call.output = host.output;
    expect_refused(call, out);
    if (has_input(p.op)) {
      call = device;
      call.input = host.input;
      expect_refused(call, "input");
    }
    if (has_grad(p.op)) {
      call = device;
      call.grad = host.grad;
      expect_refused(call, "grad_output");
    }
    if (p.layout != Layout::per_tensor) {
      call = device;
      call.scales = host.scales;
      expect_refused(call, "scales");
      if (has_input(p.op)) {
        call = device;
        call.zero_points = host.zero_points;
        expect_refused(call, "zero_points");
      }
      expect_error((*plan)->run(stream, wrong, device), ErrorCode::invalid_problem, "workspace",
                   "got memory of the host");
    }
    EXPECT_TRUE((*plan)->can_implement(device));

    // And the other way round.
    const auto on_cpu = select_plan(Stream::cpu(), p);
    ASSERT_TRUE(on_cpu);
    call = host;
    call.output = device.output;
    for (const Status& s : {(*on_cpu)->can_implement(call),
                            (*on_cpu)->run(Stream::cpu(), WorkspaceBuffer(bytes), call)})
      expect_error(s, ErrorCode::invalid_problem, out.c_str(),
                   "expected memory of the host, as the stream's backend is cpu, got memory of "
                   "CUDA device 0");
    EXPECT_TRUE((*on_cpu)->can_implement(host));
  });
}

TEST_F(Cuda, MemoryOfAnotherDeviceIsRefused) {
  if (!set_devices(2, 80)) GTEST_SKIP() << "the stand-in's alone";
  {
    const Stream first = Stream::cuda({.device = 0}).value();
    const Stream second = Stream::cuda({.device = 1}).value();
    Quantizing run(first);
    expect_error(run.plan().run(second, {}, run.args()), ErrorCode::invalid_problem, "output",
                 "expected memory of CUDA device 1, the stream's, got memory of device 0");
    ASSERT_TRUE(run());
    ASSERT_TRUE(first.synchronize());
    Quantizing other(second);
    ASSERT_TRUE(other());
    ASSERT_TRUE(second.synchronize());
    EXPECT_TRUE(run.is_done() && other.is_done());
  }
  ASSERT_TRUE(set_devices(1, 80));
}

TEST_F(Cuda, WorkspacesLieWhereTheStreamIs) {
  const Stream stream = cuda_stream().value();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    const WorkspaceBuffer buffer(stream, bytes);
    const Workspace lent = buffer;
    EXPECT_EQ(lent.bytes, bytes);
    EXPECT_EQ(lent.data == nullptr, bytes == 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lent.data) % workspace_alignment, 0U);
  }
  EXPECT_THROW(WorkspaceBuffer(stream, std::size_t{1} << 50), std::bad_alloc);
  const WorkspaceBuffer on_host(Stream::cpu(), 100);
  std::memset(static_cast<Workspace>(on_host).data, 1, 100);
}

// Rows so far apart that no offset fits 32 bits, in either direction.
TEST_F(Cuda, OffsetsBeyond32Bits) {
  const Stream stream = cuda_stream().value();
  constexpr std::int64_t cols = 37;
  constexpr std::int64_t apart = (std::int64_t{1} << 32U) + 48;
  CudaMemory memory(stream);
  std::array<std::byte*, 2> ends{};
  try {
    ends = {static_cast<std::byte*>(memory.allocate(apart + cols)),
            static_cast<std::byte*>(memory.allocate(apart + cols))};
  } catch (const std::bad_alloc&) {
    GTEST_SKIP() << "the device has too little memory";
  }
  const auto plan = DequantizePerTokenPlan::select<std::int8_t, f16>(
      stream, {.tokens = 2, .hidden = cols, .scale_type = DType::f32});
  const auto back = QuantizePerTokenPlan::select<f16, std::int8_t>(
      stream, {.tokens = 2, .hidden = cols, .scale_type = DType::f32});
  ASSERT_TRUE(plan && back);
  const std::vector<float> scales{0.5F, 2};
  const TensorRef given(memory.upload(scales.data(), 8), DType::f32, {2});
  std::vector<std::int8_t> q(cols);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<std::int8_t>(i * 3 - 50);
  memory.write(ends[0], q.data(), cols);
  memory.write(ends[0] + apart, q.data(), cols);
  for (const std::int64_t step : {apart, -apart}) {
    SCOPED_TRACE(step);
    const Shape shape{2, cols};
    const Shape wide{step, 1};
    std::byte* const first = step > 0 ? ends[0] : ends[0] + apart;
    std::byte* const other = step > 0 ? ends[1] : ends[1] + apart;
    const TensorMut middle(memory.allocate(static_cast<std::size_t>(4 * cols)), DType::f16, shape);
    ASSERT_TRUE(plan->run(
        stream, {},
        {.input = TensorRef(first, DType::s8, shape, wide), .scales = given, .output = middle}));
    ASSERT_TRUE(back->run(
        stream, {},
        {.input = middle, .scales = given, .output = TensorMut(other, DType::s8, shape, wide)}));
    const Status done = stream.synchronize();
    ASSERT_TRUE(done) << done.error().message();
    for (const std::int64_t at : {std::int64_t{0}, apart}) {
      std::vector<std::int8_t> got(cols);
      memory.read(ends[1] + at, cols, got.data());
      EXPECT_EQ(got, q) << at;
    }
  }
}

// ---- refusals of values ------------------------------------------------------------------------

// A good run, a refused one and another good one: only the refused writes nothing, and synchronize
// says what the CPU says, once.
TEST_F(Cuda, RefusalsAreThoseOfTheCpu) {
  const Stream stream = cuda_stream().value();
  const Stream cpu = Stream::cpu({.threads = 1});
  const double values[] = {nan,       -nan, 0.0,   -0.0,  -1.0,
                           0x1p-128,  1e39, -1e39, 1e-50, std::numeric_limits<double>::infinity(),
                           0x1p-1024, 0.5};
  for (const auto& [element, scales] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::f32, DType::f64},
        std::pair{DType::f64, DType::f64}, std::pair{DType::f16, DType::f16},
        std::pair{DType::bf16, DType::bf16}, std::pair{DType::f64, DType::f32}})
    for_each_plan(
        [&, scales = scales](Problem p) {
          if (p.layout != Layout::per_tensor) p.scale_type = scales;
          const auto there = select_plan(stream, p);
          const auto here = select_plan(cpu, p);
          ASSERT_TRUE(there && here);
          const Operands good = make_operands(p, {{0.5, 0.25, 2}, {3, -2}}, 7);
          const Bytes want = expected(good);
          const WorkspaceBuffer lent(stream, (*there)->workspace_size());
          for (const double value : values)
            for (const std::int64_t index : {std::int64_t{0}, slice_count(p) - 1}) {
              Operands bad = good;
              bad.scales[0] = value;
              if (p.layout != Layout::per_tensor)
                store_bits(bad.scale_bytes.data(), bits(scales) / 8, index, encode(scales, value));
              SCOPED_TRACE(title(p) + " " + std::to_string(value));
              Bytes unused(want.size());
              const Status words = (*here)->run(cpu, WorkspaceBuffer((*here)->workspace_size()),
                                                call_of(bad, unused.data()));
              CudaMemory memory(stream);
              std::array<void*, 3> outputs{};
              for (std::size_t i = 0; i < 3; ++i) {
                const Operands& o = i == 1 ? bad : good;
                const Bytes paint(want.size(), std::byte{0x77});
                outputs[i] = memory.upload(paint.data(), paint.size());
                Call call = call_of(o, outputs[i]);
                call.input.data = memory.upload(o.input.data(), o.input.size());
                call.grad.data = memory.upload(o.grad.data(), o.grad.size());
                call.scales.data = memory.upload(o.scale_bytes.data(), o.scale_bytes.size());
                call.zero_points.data =
                    memory.upload(o.zero_points.data(), 4 * o.zero_points.size());
                const Status can = (*there)->can_implement(call);
                ASSERT_TRUE(can) << can.error().message();
                const Status ran = (*there)->run(stream, lent, call);
                ASSERT_TRUE(ran) << ran.error().message();
              }
              const Status told = stream.synchronize();
              ASSERT_EQ(told.has_value(), words.has_value());
              if (!told) {
                EXPECT_EQ(told.error().message(), words.error().message());
                EXPECT_EQ(told.error().argument(), words.error().argument());
                EXPECT_EQ(told.error().code(), words.error().code());
              }
              for (std::size_t i = 0; i < 3; ++i) {
                if (i == 1 && told) continue;
                Bytes got(want.size());
                memory.read(outputs[i], got.size(), got.data());
                EXPECT_EQ(got, i == 1 ? Bytes(want.size(), std::byte{0x77}) : want) << i;
              }
              EXPECT_TRUE(stream.synchronize());
            }
        },
        element);
}

TEST_F(Cuda, TheFirstRefusalIsKeptHoweverManyFollow) {
  const Stream stream = cuda_stream().value();
  const Stream other = cuda_stream().value();
  Quantizing run(stream);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(run(i == 5 ? -3 : i % 7 == 0 ? -5 - i : 1));
  Quantizing good(other);
  ASSERT_TRUE(good());
  EXPECT_TRUE(other.synchronize());
  expect_error(stream.synchronize(), ErrorCode::invalid_problem, "scale", "got -5");
  EXPECT_TRUE(stream.synchronize());
  EXPECT_TRUE(run.is_done());
}

// So many scales that several blocks look at them: the smallest index is told.
TEST_F(Cuda, TheFirstOfManyScalesIsNamed) {
  const Stream stream = cuda_stream().value();
  constexpr std::int64_t tokens = 300001;
  const auto plan = FakeQuantizePerTokenPlan::select(stream, {.tokens = tokens, .hidden = 1});
  ASSERT_TRUE(plan);
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{}, {0}, {tokens - 1}, {70000, 299999, 123456}, {40000, 39999}}) {
    CudaMemory memory(stream);
    std::vector<float> scales(tokens, 0.5F);
    for (const std::int64_t i : bad) scales[static_cast<std::size_t>(i)] = -static_cast<float>(i);
    const std::vector<float> x(tokens, 1.25F);
    const std::vector<float> paint(tokens, 7);
    void* output = memory.upload(paint.data(), 4 * tokens);
    ASSERT_TRUE(plan->run(
        stream, {},
        {.input = TensorRef(memory.upload(x.data(), 4 * tokens), DType::f32, {tokens, 1}),
         .scales = TensorRef(memory.upload(scales.data(), 4 * tokens), DType::f32, {tokens}),
         .output = TensorMut(output, DType::f32, {tokens, 1})}));
    const Status told = stream.synchronize();
    std::vector<float> got(tokens);
    memory.read(output, 4 * tokens, got.data());
    if (bad.empty()) {
      ASSERT_TRUE(told) << told.error().message();
      EXPECT_EQ(got, std::vector<float>(tokens, 1.0F));
      continue;
    }
    const std::int64_t least = *std::min_element(bad.begin(), bad.end());
    expect_error(told, ErrorCode::invalid_problem, "scales",
                 ("at index " + std::to_string(least)).c_str());
    EXPECT_EQ(got, paint);
  }
}

// Of those that one thread looks at, too.
TEST_F(Cuda, TheFirstOfFewScalesIsNamed) {
  const Stream stream = cuda_stream().value();
  Problem p = problem_of({Op::quantize, Layout::per_token}, {2000, 1});
  const Operands good = make_operands(p, {{0.5}, {0}}, 1);
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{1112, 600, 88}, {1999, 1998}, {513, 1}}) {
    Operands o = good;
    for (const std::int64_t i : bad) store_bits(o.scale_bytes.data(), 4, i, encode(DType::f32, -1));
    Bytes got(2000);
    const std::int64_t least = *std::min_element(bad.begin(), bad.end());
    expect_error(run(stream, p, pointers_of(o, got.data())), ErrorCode::invalid_problem, "scales",
                 ("at index " + std::to_string(least)).c_str());
  }
}

// ---- threads, streams, seeds -------------------------------------------------------------------

TEST_F(Cuda, ManyThreadsAndStreams) {
  const Stream shared = cuda_stream().value();
  std::vector<std::thread> threads;
  std::vector<int> done(8);
  threads.reserve(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const Stream own = t % 2 == 0 ? cuda_stream().value() : shared;
      Quantizing run(own, 500 + t);
      for (int i = 0; i < 20; ++i)
        if (!run(t % 4 == 2 && i == 7 ? nan : 1)) return;
      const Status s = own.synchronize();
      if (s.has_value() == (t % 4 == 2)) return;
      done[static_cast<std::size_t>(t)] = run.is_done() ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, std::vector<int>(8, 1));
}

TEST_F(Cuda, NoOrderOfWarpsAndBlocksChangesABit) {
  if (control_ == nullptr) GTEST_SKIP() << "the stand-in's alone";
  for (const std::uint64_t seed : {1, 2, 3, 77}) {
    control_->set_seed(seed);
    const Stream stream = cuda_stream().value();
    const Stream second = cuda_stream().value();
    for_each_plan([&](const Problem& p) {
      const Operands o = make_operands(p, {{0.5, 0.25, 2}, {3, -2}}, seed);
      for (const Stream& on : {stream, second}) {
        Bytes got(static_cast<std::size_t>(output_bytes(p)));
        const Status ran = run(on, p, pointers_of(o, got.data()));
        ASSERT_TRUE(ran) << ran.error().message();
        EXPECT_EQ(got, expected(o)) << title(p);
      }
    });
  }
  control_->set_seed(0);
}

// ---- errors of the driver ----------------------------------------------------------------------

/// Numbers that scales may be.
Status fill(const Stream& stream, void* memory, std::size_t bytes) {
  const octavo::cuda::CudaStream& on = octavo::cuda::cuda_of(stream);
  const octavo::cuda::Current current(on.context());
  if (!current.status()) return current.status();
  return check(on.driver(), "cuMemsetD8Async",
               on.driver().set_bytes(reinterpret_cast<octavo::cuda::DevicePointer>(memory), 0x3F,
                                     bytes, on.handle()));
}

/// Everything from a stream to its end, as far as it goes; the first error.
Status do_all() {
  auto made = Stream::cuda();
  if (!made) return made.error();
  const Stream stream = *std::move(made);
  const auto plan = QuantizePerChannelPlan::select(
      stream, {.shape = {40000, 1}, .axis = 0, .scale_type = DType::f64});
  if (!plan) return plan.error();
  octavo::cuda::Context& context = octavo::cuda::cuda_of(stream).context();
  std::vector<void*> all;
  const auto allocate = [&](std::size_t bytes) -> void* {
    const Result<void*> memory = context.allocate(bytes);
    if (!memory) return nullptr;
    all.push_back(*memory);
    return *memory;
  };
  Status s;
  {
    void* x = allocate(320000);
    void* scales = allocate(320000);
    void* q = allocate(40000);
    if (x == nullptr || scales == nullptr || q == nullptr) {
      s = Error(ErrorCode::backend, "", "no memory");
    } else {
      for (void* input : {x, scales})
        if (s) s = fill(stream, input, 320000);
    }
    if (s) {
      try {
        const WorkspaceBuffer lent(stream, plan->workspace_size());
        s = plan->run(stream, lent,
                      {.input = TensorRef(x, DType::f32, {40000, 1}),
                       .scales = TensorRef(scales, DType::f64, {40000}),
                       .output = TensorMut(q, DType::s8, {40000, 1})});
        const Status ended = stream.synchronize();
        if (s && !ended) s = ended;
      } catch (const std::bad_alloc&) {
        s = Error(ErrorCode::backend, "", "no memory");
      }
    }
  }
  for (void* memory : all) context.free(memory);
  return s;
}

TEST_F(Cuda, ErrorsOfTheDriverAreErrorsAndLeakNothing) {
  if (control_ == nullptr) GTEST_SKIP() << "the stand-in's alone";
  control_->reset();
  const standin::Live before = control_->live();
  const Status plainly = do_all();
  ASSERT_TRUE(plainly) << plainly.error().message();
  EXPECT_EQ(control_->live().allocations, before.allocations);
  int injected = 0;
  for (const char* function :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent", "cuStreamCreate", "cuMemAlloc", "cuMemsetD8Async", "cuModuleLoadData",
        "cuModuleGetFunction", "cuLaunchKernel", "cuStreamSynchronize", "cuMemcpyDtoHAsync",
        "cuPointerGetAttributes"})
    for (const int result : {1, 2, 700, 719, 999})
      for (std::uint64_t nth = 1; nth <= 12; ++nth) {
        control_->reset();
        control_->reset_calls();
        control_->inject(function, nth, result);
        const Status s = do_all();
        const bool reached = control_->calls(function) >= nth;
        control_->reset();
        // (What fails while all is given back has nobody to tell; and memory about which the driver
        // says nothing is the host's.)
        if (!s && std::string(function) != "cuPointerGetAttributes") {
          ++injected;
          EXPECT_EQ(s.error().code(), ErrorCode::backend)
              << function << ' ' << nth << ' ' << result << ": " << s.error().message();
        }
        EXPECT_TRUE(!s || !reached || std::string(function) != "cuLaunchKernel") << nth;
        const standin::Live now = control_->live();
        EXPECT_EQ(now.allocations, before.allocations) << function << ' ' << nth << ' ' << result;
        EXPECT_EQ(now.streams, before.streams) << function << ' ' << nth << ' ' << result;
        EXPECT_EQ(now.modules, before.modules) << function << ' ' << nth << ' ' << result;
        EXPECT_EQ(now.contexts, before.contexts) << function << ' ' << nth << ' ' << result;
        if (!reached) break;
      }
  EXPECT_GT(injected, 50);
  // All is well afterwards.
  const Stream stream = cuda_stream().value();
  Quantizing run(stream);
  ASSERT_TRUE(run());
  ASSERT_TRUE(stream.synchronize());
  EXPECT_TRUE(run.is_done());
}

}  // namespace
}  // namespace octavo::testing
