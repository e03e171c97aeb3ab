// Where a linear runs: what is chosen and why not, streams and packed weights of another backend.
// The backend here reads nothing, and its memory cannot be read: nothing neutral may touch it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "core/stream.hpp"
#include "ops/linear/cpu/kernels.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/testing_refusals.hpp"

namespace octavo::testing {
namespace {

using octavo::detail::Allowed;
using octavo::detail::Found;
using octavo::detail::LinearImpl;
using octavo::detail::PackImpl;
using octavo::detail::test_backend;

constexpr std::uint32_t elsewhere = 77;  // a layout
constexpr WeightFormat format_elsewhere{DType::s8, 0, elsewhere};

struct WeightElsewhere final : PackedWeight::Impl {
  WeightElsewhere(std::int64_t columns, std::int64_t sums_over)
      : Impl(columns, sums_over, format_elsewhere) {
    bytes = static_cast<std::size_t>(columns * sums_over);
  }
};

int runs = 0;
int packs = 0;

struct LinearElsewhere final : LinearImpl {
  explicit LinearElsewhere(const detail::LinearProblem& p) : LinearImpl(p, format_elsewhere) {
    workspace_bytes = 128;
  }
  [[nodiscard]] Status check_values(const detail::LinearOperands& /*o*/) const override {
    return {};
  }
  [[nodiscard]] Status run(const Stream& /*stream*/, void* /*workspace*/,
                           const detail::LinearOperands& /*o*/) const override {
    ++runs;
    return {};
  }
};
struct PackElsewhere final : PackImpl {
  explicit PackElsewhere(const PackWeightDescriptor& d) : PackImpl(d, format_elsewhere) {}
  [[nodiscard]] Result<PackedWeight> make(bool /*zeroed*/) const override {
    return PackedWeightAccess::make(std::make_shared<WeightElsewhere>(problem.n, problem.k));
  }
  [[nodiscard]] Status check_values(const PackWeightArgs& /*args*/) const override { return {}; }
  [[nodiscard]] Status run(const Stream& /*stream*/,
                           const PackWeightArgs& /*args*/) const override {
    ++packs;
    return {};
  }
};

Found<std::shared_ptr<LinearImpl>> find_linear(const detail::LinearProblem& p, const Allowed&) {
  if (p.output == DType::f64) return {nullptr, "no f64 here"};
  return {std::make_shared<LinearElsewhere>(p)};
}
Found<std::shared_ptr<PackImpl>> find_pack(const PackWeightDescriptor& d, const Allowed&) {
  return {std::make_shared<PackElsewhere>(d)};
}
constexpr detail::LinearEntry linear_entries[] = {{{test_backend, Target::scalar}, find_linear}};
constexpr detail::PackEntry pack_entries[] = {{{test_backend, Target::scalar}, find_pack}};

Stream stream_elsewhere() {
  return detail::StreamAccess::make(std::make_shared<Stream::Impl>(test_backend));
}

class LinearPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    detail::test_linear = linear_entries;
    detail::test_pack = pack_entries;
    runs = packs = 0;
  }
  void TearDown() override {
    detail::test_linear = {};
    detail::test_pack = {};
  }

  /// Memory that may not be touched.
  static void* at(std::int64_t page) {
    static void* closed =
        mmap(nullptr, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return static_cast<std::byte*>(closed) + (page << 12);
  }
  static TensorRef tensor(std::int64_t page, DType type, const Shape& shape) {
    return {at(page), type, shape};
  }
  static QuantizedMatmulDescriptor descriptor() {
    return {.m = 4,
            .n = 6,
            .k = 8,
            .activation_zero_points = true,
            .weight_zero_points = true,
            .packed_weight = true,
            .epilogue = Epilogue::bias | Epilogue::residual};
  }
  static QuantizedMatmulArgs args(const PackedWeight& packed) {
    return {.input = tensor(1, DType::s8, {4, 8}),
            .activation_scales = tensor(2, DType::f64, {4}),
            .activation_zero_points = tensor(3, DType::s32, {4}),
            .weight = packed,
            .weight_scales = tensor(4, DType::f32, {6}),
            .weight_zero_points = tensor(5, DType::s32, {6}),
            .bias = tensor(6, DType::f16, {6}),
            .residual = tensor(7, DType::f32, {4, 6}),
            .output = TensorMut(at(8), DType::f32, {4, 6})};
  }
  const Stream cpu_ = Stream::cpu({.threads = 1});
  const Stream stream_ = stream_elsewhere();
  const Workspace lent_{at(9), 128};
};

TEST_F(LinearPlaces, NothingNeutralReadsMemory) {
  const auto packed = octavo::pack(stream_, tensor(10, DType::s8, {6, 8}));
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packs, 1);
  EXPECT_EQ(packed->format(), format_elsewhere);
  EXPECT_EQ(packed->bytes(), 48U);
  const auto plan = QuantizedMatmulPlan::select(stream_, descriptor());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->sku().backend, test_backend);
  EXPECT_EQ(plan->workspace_size(), 128U);
  EXPECT_TRUE(plan->can_implement(args(*packed)));
  EXPECT_TRUE(plan->run(stream_, lent_, args(*packed)));
  EXPECT_EQ(runs, 1);
  // Refusals do not read it either.
  auto wrong = args(*packed);
  wrong.bias.shape = {5};
  EXPECT_FALSE(plan->run(stream_, lent_, wrong));
  EXPECT_FALSE(plan->run(stream_, {at(7), 128}, args(*packed)));
  EXPECT_EQ(runs, 1);
}

TEST_F(LinearPlaces, AStreamOfAnotherBackendIsRefused) {
  const auto there = QuantizedMatmulPlan::select(stream_, descriptor());
  const auto here = QuantizedMatmulPlan::select(cpu_, descriptor());
  ASSERT_TRUE(there && here);
  const auto packed = octavo::pack(stream_, tensor(10, DType::s8, {6, 8}));
  ASSERT_TRUE(packed);
  const Status on_cpu = there->run(cpu_, lent_, args(*packed));
  ASSERT_FALSE(on_cpu);
  expect_error(on_cpu.error(), unsupported("stream", {"test", "cpu"}));
  const Status on_test = here->run(stream_, lent_, args(*packed));
  ASSERT_FALSE(on_test);
  expect_error(on_test.error(), unsupported("stream", {"cpu", "test"}));
  const auto packing = PackWeightPlan::select(stream_, {.n = 6, .k = 8});
  ASSERT_TRUE(packing);
  EXPECT_EQ(packing->sku().backend, test_backend);
  PackedWeight made = *packing->make_packed();
  const Status pack_on_cpu =
      packing->run(cpu_, {}, {.weight = tensor(10, DType::s8, {6, 8}), .packed = &made});
  ASSERT_FALSE(pack_on_cpu);
  expect_error(pack_on_cpu.error(), unsupported("stream", {"test", "cpu"}));
  EXPECT_EQ(runs, 0);
}

TEST_F(LinearPlaces, PackedWeightsOfAnotherFormatAreRefused) {
  const std::vector<std::int8_t> rows(48, 1);
  const PackedWeight here = *octavo::pack(cpu_, TensorRef(rows, {6, 8}));
  PackedWeight there = *octavo::pack(stream_, TensorRef(rows, {6, 8}));
  EXPECT_EQ(here.format(), (WeightFormat{DType::s8, 0, 1}));
  for (const bool cpu : {true, false}) {
    const auto plan = QuantizedMatmulPlan::select(cpu ? cpu_ : stream_, descriptor());
    ASSERT_TRUE(plan);
    for (const Status& status :
         {plan->can_implement(args(cpu ? there : here)),
          plan->run(cpu ? cpu_ : stream_, lent_, args(cpu ? there : here))}) {
      ASSERT_FALSE(status);
      expect_error(status.error(),
                   unsupported("weight", {"s8, one scale per channel", "layout 1", "layout 77"}));
    }
  }
  const auto packing = PackWeightPlan::select(cpu_, {.n = 6, .k = 8});
  ASSERT_TRUE(packing);
  const Status status =
      packing->run(cpu_, {}, {.weight = TensorRef(rows, {6, 8}), .packed = &there});
  ASSERT_FALSE(status);
  expect_error(status.error(), unsupported("packed", {"layout 1", "layout 77"}));
  EXPECT_EQ(detail::to_string(WeightFormat{DType::u4, 128, 2}),
            "u4, groups of 128, scales of f32, layout 2");
  // An image holds layout 1.
  EXPECT_EQ(there.serialized_bytes(), 0U);
  EXPECT_TRUE(there.serialize().empty());
  std::vector<std::byte> room(4096);
  const Status image = there.serialize(room);
  ASSERT_FALSE(image);
  expect_error(image.error(), unsupported("image", {"the host's", "layout 77"}));
  EXPECT_EQ(PackedWeight::deserialize(here.serialize())->format(), here.format());
}

TEST(LinearProblems, OfTwoZerosAreTwo) {
  SmoothQuantLinearDescriptor d;
  d.act_scale = 0.0;
  const detail::LinearProblem zero = detail::linear_problem(d);
  EXPECT_TRUE(zero == detail::linear_problem(d));
  d.act_scale = -0.0;
  EXPECT_FALSE(zero == detail::linear_problem(d));
}

TEST_F(LinearPlaces, EachCandidateSaysWhyNot) {
  auto d = descriptor();
  d.output = DType::f64;
  const auto plan = QuantizedMatmulPlan::select(stream_, d);
  ASSERT_FALSE(plan);
  expect_error(plan.error(), unsupported("backend", {"test: no f64 here"}));
  EXPECT_TRUE(QuantizedMatmulPlan::select(cpu_, d));
  // A kernel that is needed and not there is a reason, never called.
  detail::LinearProblem p;
  p.op = Op::quantized_linear;
  p.activation = DType::s32;
  const auto allowed = detail::allowed_places(cpu_, {});
  ASSERT_TRUE(allowed);
  const auto kernels = detail::choose_kernels(p, *allowed);
  EXPECT_FALSE(kernels.impl);
  EXPECT_THAT(kernels.why_not, ::testing::HasSubstr("scalar: no dynamic range from s32 to s8"));
  // The reason of a dot product is that of the kernels it goes with, and no sentence of its own.
  const auto scalar = detail::choose(Allowed(), p, {detail::cpu_linear()});
  ASSERT_FALSE(scalar);
  EXPECT_EQ(scalar.error().message(),
            "backend: expected an implementation on cpu, got none: scalar: of floats only; scalar: "
            "scalar: no dynamic range from s32 to s8");
  p.op = Op::quantized_matmul;
  p.activation = DType::s8;
  p.output = DType::s4;
  EXPECT_TRUE(detail::choose_kernels(p, *allowed).impl);  // (f32 is quantized to that)
}

// A plan that was moved from, or copied, still is one.
TEST_F(LinearPlaces, PlansStayUsableWhenMovedFrom) {
  auto plan = *QuantizedMatmulPlan::select(cpu_, descriptor());
  const auto moved = std::move(plan);
  EXPECT_EQ(plan.sku(), moved.sku());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(plan.workspace_size(), moved.workspace_size());
  auto packing = *PackWeightPlan::select(cpu_, {.n = 6, .k = 8});
  const auto taken = std::move(packing);  // NOLINT(performance-move-const-arg)
  EXPECT_EQ(packing.sku(), taken.sku());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(packing.make_packed());
}

}  // namespace
}  // namespace octavo::testing
