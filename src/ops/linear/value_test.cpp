// Linear plans with unusual values and strides, with nothing at all, row by row, and what they say
// of themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>

#include "core/parts.hpp"
#include "numerics/linear.hpp"
#include "ops/linear/cpu/grid.hpp"
#include "ops/linear/testing_guard.hpp"
#include "testing/large.hpp"

namespace octavo::testing {
namespace {

template <class F>
void for_each_case(std::int64_t m, std::int64_t n, std::int64_t k, F&& f) {
  for (const Target target : linear_targets())
    for (std::uint64_t turn = 0; turn < (slow_machine() ? 21 : 84); ++turn)
      f(Stream::cpu({.threads = 1, .cap = target}), linear_case_in_turn(turn, m, n, k));
}

// NaNs become the canonical one, and zeros, infinities and subnormals keep their signs, through
// bias, residual and ReLU.
TEST(LinearValues, SpecialBiasAndResidual) {
  for_each_case(5, 70, 9, [](const Stream& stream, LinearCase c) {
    if (c.output == DType::s32) return;
    c.special = true;
    c.epilogue = c.epilogue | (c.seed % 2 != 0 ? Epilogue::bias : Epilogue::residual);
    const LinearData d = make_linear(c);
    EXPECT_EQ(compare(stream, d, expected(d)), "");
  });
}

// Once, not to f32 in between: just beside the middle of two halves it makes a difference.
TEST(LinearValues, DoublesAreRoundedOnceToHalves) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const auto check = [](auto half, DType type, double x) {
    for (const double y : {std::nextafter(x, -inf), x, std::nextafter(x, inf), x * (1 - 0x1p-26),
                           x * (1 + 0x1p-26), x * (1 - 0x1p-23), x * (1 + 0x1p-23)})
      for (const double z : {y, -y})
        ASSERT_EQ(numerics::stored<decltype(half)>(z).bits, encode(type, z)) << z;
  };
  for (std::uint64_t i = 0; i < 0x7F80; ++i) {
    const double bf = decode(DType::bf16, i);
    check(bf16{}, DType::bf16, bf);
    check(bf16{}, DType::bf16, bf / 2 + decode(DType::bf16, i + 1) / 2);
    if (i >= 0x7C00) continue;
    const double f = decode(DType::f16, i);
    check(f16{}, DType::f16, f);
    check(f16{}, DType::f16, f / 2 + (i == 0x7BFF ? 65536 : decode(DType::f16, i + 1)) / 2);
  }
  for (const double x : {0x1.fffffep127, 0x1.ffffffp127, 0x1p128, 1e300, 0x1p-149, 0x1p-150, 1e-300,
                         0x1p-1074, inf, 0.0}) {
    check(f16{}, DType::f16, x);
    check(bf16{}, DType::bf16, x);
  }
}

// Zero points of an output may be any: what is so far from 0 is quantized as well.
TEST(LinearValues, ZeroPointsOfOutputsFarFromZero) {
  for_each_case(5, 35, 9, [](const Stream& stream, LinearCase c) {
    if (c.output == DType::s32) return;
    c.output = c.seed % 2 == 0 ? DType::s8 : DType::u8;
    LinearData d = make_linear(c);
    d.output_scale = 0x1p-8;
    for (const std::int32_t zero :
         {8192, -8193, 16384, -20000, 32768, -65536, 1 << 24, INT32_MIN, INT32_MAX}) {
      d.output_zero_point = zero;
      EXPECT_EQ(compare(stream, d, expected(d)), "") << zero;
    }
  });
}

Matrix upside_down(const Matrix& m) {
  Matrix turned = m;
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t i = 0; i < m.columns; ++i) turned.set(r, i, m.get(m.rows - 1 - r, i));
  return turned;
}
/// The rows of `turned` from the last to the first.
template <class Tensor>
void read_backwards(Tensor& t, const Matrix& turned) {
  if (turned.rows == 0) return;
  t.data = const_cast<std::byte*>(turned.bytes.data()) +
           (turned.rows - 1) * turned.stride * (bits(turned.type) / 8);
  t.strides[0] = -turned.stride;
  t.buffer_bytes = -1;
}

template <class Plan>
void run_backwards(const Stream& stream, const typename Plan::Descriptor& descriptor,
                   const LinearData& d) {
  const auto plan = Plan::select(stream, descriptor);
  ASSERT_TRUE(plan) << plan.error().message();
  const Matrix input = upside_down(d.input);
  const Matrix weight = upside_down(d.weight);
  const Matrix residual = upside_down(d.residual);
  Matrix out = blank_output(d.c);
  PackedWeight packed;
  auto args = linear_args<typename Plan::Args>(d, packed, out);
  read_backwards(args.input, input);
  TensorRef rows = d.weight.ref();
  read_backwards(rows, weight);
  if (d.c.packed) packed = *pack(stream, rows);
  args.weight = d.c.packed ? WeightRef(packed) : WeightRef(rows);
  if (contains(d.c.epilogue, Epilogue::residual)) read_backwards(args.residual, residual);
  read_backwards(args.output, out);
  const WorkspaceBuffer workspace(plan->workspace_size());
  const Status status = plan->run(stream, workspace, args);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_TRUE(upside_down(out).bytes == expected(d).bytes) << d.c.text();
}

TEST(LinearStrides, RowsMayRunBackwards) {
  for_each_case(19, 35, 64, [](const Stream& stream, const LinearCase& c) {
    const LinearData d = make_linear(c);
    if (c.kind == LinearKind::matmul)
      run_backwards<QuantizedMatmulPlan>(stream, matmul_descriptor(c), d);
    if (c.kind == LinearKind::dynamic)
      run_backwards<QuantizedLinearPlan>(stream, dynamic_descriptor(c), d);
    if (c.kind == LinearKind::smoothquant)
      run_backwards<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d);
  });
}

template <class Plan>
void run_with_another_residual(const Stream& stream, const typename Plan::Descriptor& descriptor,
                               const LinearData& d) {
  Matrix residual(d.residual.type, d.c.m, d.c.n, d.c.padding + 5);
  for (std::int64_t r = 0; r < d.c.m; ++r)
    for (std::int64_t i = 0; i < d.c.n; ++i) residual.set(r, i, d.residual.get(r, i));
  const auto plan = Plan::select(stream, descriptor);
  ASSERT_TRUE(plan) << plan.error().message();
  const PackedWeight packed = d.c.packed ? *pack(stream, d.weight.ref()) : PackedWeight();
  Matrix out = blank_output(d.c);
  auto args = linear_args<typename Plan::Args>(d, packed, out);
  args.residual = residual.ref();
  const WorkspaceBuffer workspace(plan->workspace_size());
  const Status status = plan->run(stream, workspace, args);
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_TRUE(out.bytes == expected(d).bytes) << d.c.text();
}

TEST(LinearStrides, ResidualsMayLieInAnotherWayThanOutputs) {
  for_each_case(19, 35, 64, [](const Stream& stream, LinearCase c) {
    if (c.output == DType::s32) return;
    c.epilogue = c.epilogue | Epilogue::residual;
    const LinearData d = make_linear(c);
    if (c.kind == LinearKind::matmul)
      run_with_another_residual<QuantizedMatmulPlan>(stream, matmul_descriptor(c), d);
    if (c.kind == LinearKind::dynamic)
      run_with_another_residual<QuantizedLinearPlan>(stream, dynamic_descriptor(c), d);
    if (c.kind == LinearKind::smoothquant)
      run_with_another_residual<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d);
  });
}

// A stride of 0: one row of activations, of weights, serves as all.
TEST(LinearStrides, OneRowMayServeAsAll) {
  const std::vector<std::int8_t> x{1, -2, 3, 100};
  const std::vector<std::int8_t> w{7, 0, -128, 5};
  const std::int32_t sum = 7 - 3 * 128 + 500;
  for (const Target target : linear_targets())
    for (const bool packed : {false, true}) {
      const Stream stream = Stream::cpu({.threads = 1, .cap = target});
      const auto plan = QuantizedMatmulPlan::select(
          stream, {.m = 50, .n = 70, .k = 4, .output = DType::s32, .packed_weight = packed});
      ASSERT_TRUE(plan);
      const TensorRef rows(w.data(), {70, 4}, {0, 1});
      std::vector<std::int32_t> y(std::size_t{50} * 70);
      const WorkspaceBuffer workspace(plan->workspace_size());
      ASSERT_TRUE(plan->run(stream, workspace,
                            {.input = TensorRef(x.data(), {50, 4}, {0, 1}),
                             .weight = packed ? WeightRef(*pack(stream, rows)) : WeightRef(rows),
                             .output = TensorMut(y, {50, 70})}));
      EXPECT_EQ(y, std::vector<std::int32_t>(std::size_t{50} * 70, sum)) << name(target);
    }
}

// Rows so far apart that the last begins beyond 2^31 elements, in memory that is only mapped.
TEST(LinearStrides, BeyondTwoToThe31) {
  if (const std::string why = no_large_tests(); !why.empty()) GTEST_SKIP() << why;
  constexpr std::int64_t apart = (std::int64_t{1} << 31) + 64;
  const Sparse input(apart + 64);
  const Sparse weight(apart + 64);
  const Sparse output((apart + 64) * 4);
  if (input.data == nullptr || weight.data == nullptr || output.data == nullptr)
    GTEST_SKIP() << "the system refuses to map so much";
  for (std::int64_t r = 0; r < 2; ++r)
    for (std::int64_t i = 0; i < 64; ++i) {
      reinterpret_cast<std::int8_t*>(input.data)[r * apart + i] = static_cast<std::int8_t>(r + 1);
      reinterpret_cast<std::int8_t*>(weight.data)[r * apart + i] = static_cast<std::int8_t>(r + 3);
    }
  for (const Target target : linear_targets()) {
    const Stream stream = Stream::cpu({.threads = 1, .cap = target});
    const auto plan =
        QuantizedMatmulPlan::select(stream, {.m = 2, .n = 2, .k = 64, .output = DType::s32});
    ASSERT_TRUE(plan);
    const WorkspaceBuffer workspace(plan->workspace_size());
    const Shape strides{apart, 1};
    ASSERT_TRUE(plan->run(stream, workspace,
                          {.input = TensorRef(input.data, DType::s8, {2, 64}, strides),
                           .weight = TensorRef(weight.data, DType::s8, {2, 64}, strides),
                           .output = TensorMut(output.data, DType::s32, {2, 2}, strides)}));
    const auto* y = reinterpret_cast<const std::int32_t*>(output.data);
    EXPECT_EQ(y[0], 64 * 1 * 3);
    EXPECT_EQ(y[1], 64 * 1 * 4);
    EXPECT_EQ(y[apart], 64 * 2 * 3);
    EXPECT_EQ(y[apart + 1], 64 * 2 * 4);
  }
}

// What belongs to nothing may be left out.
TEST(LinearEmpty, ArgumentsOfNoElements) {
  const Stream stream = Stream::cpu({.threads = 1});
  const std::vector<float> scales(3, 1.0F);
  const std::vector<std::int8_t> w(12);
  std::vector<float> y(3);
  constexpr Epilogue all = Epilogue::bias | Epilogue::residual;
  const auto no_rows = QuantizedMatmulPlan::select(
      stream, {.m = 4, .n = 3, .k = 4, .activation_zero_points = true, .epilogue = all});
  ASSERT_TRUE(no_rows);
  const WorkspaceBuffer workspace(no_rows->workspace_size());
  EXPECT_TRUE(no_rows->run(stream, workspace,
                           {.input = TensorRef(nullptr, DType::s8, {0, 4}),
                            .weight = TensorRef(w, {3, 4}),
                            .weight_scales = scales,
                            .bias = scales,
                            .output = TensorMut(y.data(), {0, 3})}));
  const auto no_columns = QuantizedMatmulPlan::select(
      stream, {.m = 3, .n = 0, .k = 4, .weight_zero_points = true, .epilogue = all});
  ASSERT_TRUE(no_columns);
  EXPECT_TRUE(no_columns->run(stream, {},
                              {.input = TensorRef(w, {3, 4}),
                               .activation_scales = scales,
                               .weight = TensorRef(nullptr, DType::s8, {0, 4}),
                               .output = TensorMut(y.data(), {3, 0})}));
}

// A row's result does not depend on the batch it is in, whatever the layer.
TEST(LinearRows, EqualThoseRunAlone) {
  for_each_case(71, 75, 128, [](const Stream& stream, LinearCase c) {
    c.one_activation_scale = true;
    const LinearData d = make_linear(c);
    Matrix all;
    ASSERT_EQ(run(stream, d, all), "");
    for (const std::int64_t r : {0, 1, 5, 33, 47, 48, 70}) {
      LinearData alone = d;
      alone.c.m = 1;
      const auto keep = [&](Matrix& m) {
        if (m.rows != c.m) return;
        Matrix one(m.type, 1, m.columns, 0);
        for (std::int64_t i = 0; i < m.columns; ++i) one.set(0, i, m.get(r, i));
        m = one;
      };
      keep(alone.input);
      keep(alone.residual);
      Matrix one;
      ASSERT_EQ(run(stream, alone, one), "");
      for (std::int64_t i = 0; i < c.n; ++i)
        ASSERT_EQ(one.get(0, i), all.get(r, i)) << r << " " << c.text();
    }
  });
}

// A plan made on a stream of one thread uses all of another's, where weights are packed.
TEST(LinearGrid, SharesOutAllOfTheWork) {
  using octavo::detail::Grid;
  using octavo::detail::share_out;
  for (const bool packed : {false, true})
    for (const std::int64_t rows : {1, 2, 7, 48, 512, 2048})
      for (const std::int64_t panels : {1, 3, 24, 256, 688})
        for (const std::int64_t parts : {1, 2, 3, 16, 64, 192}) {
          const Grid g = share_out(rows, panels, parts, packed);
          EXPECT_GE(g.rows, 1);
          EXPECT_GE(g.panels, 1);
          EXPECT_LE(g.rows, rows);
          EXPECT_LE(g.panels, panels);
          EXPECT_LE(g.rows * g.panels, parts);
          // At least half of the threads have work, if there is enough for them.
          if (rows * panels >= 4 * parts) {
            EXPECT_GE(2 * g.rows * g.panels, parts);
          }
        }
  // One row is shared by columns, few columns by rows; many of both by columns, so that each thread
  // reads its own weights.
  EXPECT_EQ(share_out(1, 256, 16, true).panels, 16);
  EXPECT_EQ(share_out(700, 1, 16, true).rows, 16);
  EXPECT_EQ(share_out(512, 256, 2, true).panels, 2);
}

TEST(Parts, AreAsManyAsThereIsWorkFor) {
  using octavo::detail::amount;
  using octavo::detail::parts_of;
  EXPECT_EQ(parts_of(0, 100, 8), 1);
  EXPECT_EQ(parts_of(199, 100, 8), 1);
  EXPECT_EQ(parts_of(200, 100, 8), 2);
  EXPECT_EQ(parts_of(799, 100, 8), 7);
  EXPECT_EQ(parts_of(INT64_MAX, 100, 8), 8);
  EXPECT_EQ(parts_of(INT64_MAX, 1, 0), 1);  // (of no rows)
  EXPECT_EQ(amount(3, 4), 12);
  EXPECT_EQ(amount(std::int64_t{1} << 40, std::int64_t{1} << 40), INT64_MAX);
}

TEST(LinearSkus, TellKernelsApart) {
  const Stream stream = Stream::cpu({.threads = 1});
  std::unordered_set<std::string> names;
  std::size_t count = 0;
  for (const bool packed : {false, true})
    for (const RangeMode mode : all_modes)
      for (const DType quantized : {DType::s8, DType::u8}) {
        if (mode == RangeMode::symmetric && quantized == DType::u8) continue;
        const auto plan = QuantizedLinearPlan::select<float, std::int8_t, bf16>(
            stream, {.m = 2,
                     .n = 3,
                     .k = 4,
                     .mode = mode,
                     .quantized = quantized,
                     .packed_weight = packed,
                     .epilogue = Epilogue::relu});
        ASSERT_TRUE(plan);
        const KernelSku& sku = plan->sku();
        EXPECT_EQ(sku.category, Category::linear);
        EXPECT_EQ(sku.element, DType::f32);
        EXPECT_EQ(sku.quantized, quantized);
        EXPECT_EQ(sku.aux_element, DType::s8);
        EXPECT_EQ(sku.output, DType::bf16);
        EXPECT_EQ(sku.packed_weight, packed);
        EXPECT_EQ(sku.epilogue, Epilogue::relu);
        EXPECT_EQ(plan->precision_guarantee(),
                  (PrecisionGuarantee{.math = DType::f32, .accumulator = DType::s32}));
        names.insert(to_string(sku));
        ++count;
      }
  EXPECT_EQ(names.size(), count);
  const auto f64 = SmoothQuantLinearPlan::select(
      stream, {.m = 2, .n = 3, .k = 4, .act_scale = 1, .output = DType::f64});
  ASSERT_TRUE(f64);
  EXPECT_EQ(f64->precision_guarantee().math, DType::f64);
  EXPECT_EQ(f64->sku().quantized, std::nullopt);
}

TEST(Epilogues, ContainAllOfAPart) {
  constexpr Epilogue both = Epilogue::bias | Epilogue::relu;
  EXPECT_TRUE(contains(both, Epilogue::bias));
  EXPECT_TRUE(contains(both, both));
  EXPECT_FALSE(contains(Epilogue::bias, both));
  EXPECT_FALSE(contains(both, Epilogue::residual));
  EXPECT_TRUE(contains(both, Epilogue::none));
}

}  // namespace
}  // namespace octavo::testing
