// One digest per linear plan, activation, output, profile and epilogue, the same on every machine,
// target and thread count: tests/digests.txt. The oracle must give it too.
//
// OCTAVO_WRITE_DIGESTS=<path> makes LinearDigest.Oracle write its lines of the file anew.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/linear/testing_digest.hpp"
#include "ops/linear/testing_targets.hpp"

namespace octavo::testing {
namespace {

constexpr std::array linear_ops{Op::quantized_matmul, Op::quantized_linear,
                                Op::quantized_linear_asymmetric, Op::smoothquant_linear};

bool is_linear(const std::string& op) {
  return std::any_of(linear_ops.begin(), linear_ops.end(), [&](Op own) { return name(own) == op; });
}

/// What a digest is of; sizes, weights and the rest vary within it.
struct LinearKey {
  Op op;
  DType activation, output;
  Profile profile;
  Epilogue epilogue;

  /// Whether something is quantized on the way.
  [[nodiscard]] bool has_profile() const { return is_float(activation) || is_quantized(output); }
  [[nodiscard]] std::string text() const {
    return std::string(name(op)) + "." + std::string(name(activation)) + "." +
           std::string(name(output)) + (has_profile() ? "." + std::string(name(profile)) : "") +
           "." + std::string(name(epilogue));
  }
};

std::vector<LinearKey> keys_of(Op op) {
  const bool dynamic = op == Op::quantized_linear || op == Op::quantized_linear_asymmetric;
  std::vector<LinearKey> keys;
  for (const DType activation :
       {DType::s8, DType::u8, DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const DType output :
         {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8, DType::s32})
      for (const Profile profile : all_profiles)
        for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias | Epilogue::relu,
                                        Epilogue::bias | Epilogue::residual | Epilogue::relu}) {
          const LinearKey key{op, activation, output, profile, epilogue};
          if (is_float(activation) != dynamic) continue;
          if (output == DType::s32 && (op != Op::quantized_matmul || epilogue != Epilogue::none))
            continue;
          if (!key.has_profile() && profile != all_profiles.front()) continue;
          keys.push_back(key);
        }
  return keys;
}

/// Small and odd sizes, with weights of both types, zero points, packing and rows that lie apart in
/// turn; for one epilogue also one large enough to be shared by threads, and one whose sums do not
/// fit 32 bits.
std::vector<LinearData> data_of(const LinearKey& key) {
  std::vector<std::array<std::int64_t, 3>> shapes{{1, 1, 1},    {3, 17, 5},    {7, 33, 129},
                                                  {50, 70, 64}, {2, 130, 300}, {4, 5, 0}};
  if (key.epilogue == (Epilogue::bias | Epilogue::relu)) {
    shapes.push_back({33, 700, 94});
    shapes.push_back({1, 3, 131200});
  }
  std::vector<LinearData> all;
  for (const auto& [m, n, k] : shapes) {
    const auto i = all.size();
    LinearCase c;
    c.m = m;
    c.n = n;
    c.k = k;
    c.activation = key.activation;
    c.output = key.output;
    c.profile = key.profile;
    c.epilogue = key.epilogue;
    c.weight = i % 2 != 0 ? DType::u8 : DType::s8;
    c.weight_zero_points = i % 3 != 0;
    c.packed = i % 4 < 2;
    c.padding = i == 2 ? 5 : 0;
    c.parameter = all_floats[i % all_floats.size()];
    c.one_weight_scale = i == 4;
    c.one_activation_scale = i == 3;
    c.seed = i + 1;
    switch (key.op) {
      case Op::quantized_matmul:
        c.kind = LinearKind::matmul;
        c.activation_zero_points = i % 3 != 1;
        break;
      case Op::smoothquant_linear:
        c.kind = LinearKind::smoothquant;
        c.activation_zero_points = i % 3 != 1;
        break;
      default:
        c.kind = LinearKind::dynamic;
        c.mode = key.op == Op::quantized_linear ? RangeMode::symmetric : RangeMode::asymmetric;
        if (c.mode == RangeMode::asymmetric && i % 3 == 1) c.quantized = DType::s8;
        break;
    }
    all.push_back(make_linear(c));
  }
  return all;
}

TEST(LinearDigest, Oracle) {
  Digests digests;
  for (const Op op : linear_ops)
    for (const LinearKey& key : keys_of(op)) digests[key.text()] = oracle_digest(data_of(key));
  expect_recorded(digests, is_linear);
}

class LinearTargetDigest : public ::testing::TestWithParam<TargetAndOp> {};

TEST_P(LinearTargetDigest, AllThreadCounts) {
  const auto [target, op] = GetParam();
  const Digests recorded = read_digests(OCTAVO_DIGESTS, is_linear);
  const Streams streams(target);
  for (const LinearKey& key : keys_of(op)) {
    expect_digest(recorded, key.text(), streams, data_of(key));
    if (HasFatalFailure()) return;
    EXPECT_EQ(streams.take_trace(), 1U << static_cast<int>(target)) << key.text();
  }
}

std::vector<TargetAndOp> targets_and_ops() {
  std::vector<TargetAndOp> list;
  for (const Target target : linear_targets_and_device())
    for (const Op op : linear_ops) list.emplace_back(target, op);
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, LinearTargetDigest, ::testing::ValuesIn(targets_and_ops()),
                         test_name);

}  // namespace
}  // namespace octavo::testing
