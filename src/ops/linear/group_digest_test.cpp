// One digest for each kind of weights in groups, of four bits and of floats, the same on every
// machine, target and thread count: tests/digests.txt. The oracle must give it too.
//
// OCTAVO_WRITE_DIGESTS=<path> makes GroupDigest.Oracle write its lines of the file anew.
#include <gtest/gtest.h>

#include "ops/linear/testing_digest.hpp"
#include "ops/linear/testing_targets.hpp"

namespace octavo::testing {
namespace {

bool is_own(const std::string& family) { return family == "groups"; }

/// What a digest is of: "groups.s4.s16.f32", weights, activations as they are multiplied, output.
struct GroupKey {
  DType weight, quantized, output;
  [[nodiscard]] std::string text() const {
    return "groups." + std::string(name(weight)) + "." + std::string(name(quantized)) + "." +
           std::string(name(output));
  }
};

std::vector<GroupKey> keys() {
  std::vector<GroupKey> all;
  for (const DType output :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8}) {
    for (const DType weight : {DType::s4, DType::u4, DType::s8, DType::u8})
      for (const DType quantized : {DType::s8, DType::u8, DType::s16})
        all.push_back({weight, quantized, output});
    if (output == DType::f64) continue;
    for (const DType weight : {DType::f32, DType::f16, DType::bf16})
      for (const DType activation : {DType::f32, DType::bf16})
        all.push_back({weight, activation, output});
  }
  return all;
}

std::vector<LinearData> data_of(const GroupKey& key) {
  std::vector<LinearData> all;
  for (const auto& [m, n, k, group] : {std::array<std::int64_t, 4>{1, 1, 4, 0},
                                       {1, 70, 128, 32},
                                       {7, 33, 96, 8},
                                       {13, 31, 1152, 64},
                                       {3, 40, 77, 0},
                                       {2, 5, 2560, 128},
                                       {5, 3, 4096, 512}}) {
    const std::size_t i = all.size();
    LinearCase c;
    c.m = m;
    c.n = n;
    c.k = k;
    c.group = group;
    c.weight = key.weight;
    c.output = key.output;
    c.epilogue = static_cast<Epilogue>(i % 8);
    c.profile = all_profiles[i % 2];
    c.packed = i % 3 != 0;
    c.parameter = all_floats[i % all_floats.size()];
    c.padding = i == 2 ? 6 : 0;
    c.seed = i + 1;
    if (is_float(key.weight)) {
      c.kind = LinearKind::floats;
      c.activation = key.quantized;
      c.group = 0;
    } else if (i % 2 != 0 || key.quantized == DType::s16) {
      c.kind = LinearKind::dynamic;
      c.activation = all_floats[i % all_floats.size()];
      c.quantized = key.quantized;
      c.mode = key.quantized == DType::u8 ? RangeMode::asymmetric : RangeMode::symmetric;
      c.weight_zero_points = i % 3 == 1;
    } else {
      c.activation = key.quantized;
      c.activation_zero_points = i % 4 == 0;
      c.weight_zero_points = i % 3 != 1;
    }
    all.push_back(make_linear(c));
  }
  return all;
}

TEST(GroupDigest, Oracle) {
  Digests digests;
  for (const GroupKey& key : keys()) digests[key.text()] = oracle_digest(data_of(key));
  expect_recorded(digests, is_own);
}

class GroupTargetDigest : public ::testing::TestWithParam<Target> {};

TEST_P(GroupTargetDigest, AllThreadCounts) {
  const Digests recorded = read_digests(OCTAVO_DIGESTS, is_own);
  const Streams streams(GetParam());
  for (const GroupKey& key : keys()) {
    expect_digest(recorded, key.text(), streams, data_of(key));
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, GroupTargetDigest, ::testing::ValuesIn(linear_targets_and_device()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace octavo::testing
