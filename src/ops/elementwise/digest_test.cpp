// One digest per operation, types and profile, the same on every machine, target and thread count:
// tests/digests.txt. The oracle must give it too, so the file is the contract's, not a kernel's.
//
// OCTAVO_WRITE_DIGESTS=<path> makes Digest.Oracle write its lines of the file anew.
#include <gtest/gtest.h>

#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_checks.hpp"
#include "testing/digests.hpp"

namespace octavo::testing {
namespace {

struct DataCase {
  Layout layout;
  Shape shape;
  int axis;
  std::int64_t group_size;
  Parameters parameters;
};

/// Every layout with ordinary parameters, so that the vector kernels run, and with extreme ones;
/// one case is long enough to be shared by several threads.
const std::vector<DataCase>& data_cases() {
  static const Parameters ordinary{{0.1, 0.05, 1, 3, 0x1p-7, 255.5, 1e-5},
                                   {0, 3, -5, 127, -128, 255, 128, -77, 1000, 7, -999}};
  static const Parameters extreme{
      {0x1p-126, 0x1.8p-127, 0x1p-100, 1e-30, 1, 0x1p100, 1e30, 0x1.fffffep127, 0.1},
      {0, INT32_MIN, INT32_MAX, (1 << 24) + 1, -(1 << 24) - 1, 1 << 30, 3, (1 << 23) + 1}};
  static const std::vector<DataCase> cases{
      {Layout::per_tensor, {70001}, 0, 0, {{0.05}, {3}}},
      {Layout::per_tensor, {4099}, 0, 0, {{0.1}, {-128}}},
      {Layout::per_tensor, {1025}, 0, 0, {{0x1p-126}, {0}}},
      {Layout::per_tensor, {1025}, 0, 0, {{0x1.fffffep127}, {1}}},
      {Layout::per_tensor, {1025}, 0, 0, {{3}, {(1 << 24) + 1}}},
      {Layout::per_channel, {37, 129}, 1, 0, ordinary},
      {Layout::per_channel, {5, 33, 19}, 1, 0, ordinary},
      {Layout::per_channel, {37, 31}, 1, 0, extreme},
      {Layout::per_token, {41, 67}, 0, 0, ordinary},
      {Layout::per_token, {72, 9}, 0, 0, extreme},
      {Layout::per_group, {13, 192}, 0, 32, ordinary},
      {Layout::per_group, {9, 24}, 0, 3, extreme},
  };
  return cases;
}

std::vector<Operands> operands_of(Kind kind) {
  std::vector<Operands> all;
  for (const DataCase& c : data_cases()) {
    kind.layout = c.layout;
    all.push_back(make_operands(problem_of(kind, c.shape, c.axis, c.group_size), c.parameters,
                                all.size() + 1));
  }
  return all;
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const Op op : all_ops)
    for (const Kind& kind : kinds_of(op, Layout::per_tensor)) kinds.push_back(kind);
  return kinds;
}

/// What fixes the kernels of a dynamic range: the kind of its quantize, and the mode.
struct DynamicKind {
  Kind quantize;
  RangeMode mode;
};
std::vector<DynamicKind> dynamic_kinds(RangeMode mode) {
  std::vector<DynamicKind> kinds;
  for (const Kind& kind : kinds_of(Op::quantize, Layout::per_tensor))
    if (is_offered(mode, kind.integer)) kinds.push_back({kind, mode});
  return kinds;
}
std::string digest_name(const DynamicKind& kind) {
  Kind named = kind.quantize;
  named.op = kind.mode == RangeMode::symmetric ? Op::dynamic_range_quantize
                                               : Op::dynamic_range_quantize_asymmetric;
  return testing::digest_name(named);
}

/// Every scope, fused and in two passes, with slices of every style; some long enough to be shared
/// by several threads.
std::vector<DynamicCall> calls_of(const DynamicKind& kind) {
  struct Case {
    Layout layout;
    Shape shape;
    int axis;
    std::int64_t group_size;
  };
  static const std::array<Case, 10> cases{{{Layout::per_tensor, {131101}, 0, 0},
                                           {Layout::per_tensor, {1025}, 0, 0},
                                           {Layout::per_token, {263, 500}, 0, 0},
                                           {Layout::per_token, {72, 9}, 0, 0},
                                           {Layout::per_channel, {37, 129}, 0, 0},
                                           {Layout::per_channel, {37, 129}, 1, 0},
                                           {Layout::per_channel, {211, 7}, 1, 0},
                                           {Layout::per_channel, {5, 33, 19}, 1, 0},
                                           {Layout::per_group, {13, 192}, 0, 32},
                                           {Layout::per_group, {9, 24}, 0, 3}}};
  std::vector<DynamicCall> calls;
  for (const Case& c : cases) {
    Kind quantize = kind.quantize;
    quantize.layout = c.layout;
    calls.push_back(make_dynamic(problem_of(quantize, c.shape, c.axis, c.group_size), kind.mode,
                                 calls.size() + 1));
  }
  return calls;
}

void add(Digest& digest, const DynamicResult& result) {
  digest.add(result.output);
  digest.add(result.scales);
  digest.add(result.zero_points.data(), 4 * result.zero_points.size());
}

bool is_own(const std::string& op) {
  return op == name(Op::dynamic_range_quantize) ||
         op == name(Op::dynamic_range_quantize_asymmetric) ||
         std::any_of(all_ops.begin(), all_ops.end(), [&](Op own) { return name(own) == op; });
}

TEST(Digest, Oracle) {
  Digests digests;
  for (const Kind& kind : all_kinds()) {
    Digest digest;
    for (const Operands& o : operands_of(kind)) digest.add(expected(o));
    digests[digest_name(kind)] = hex(digest);
  }
  for (const RangeMode mode : all_modes)
    for (const DynamicKind& kind : dynamic_kinds(mode)) {
      Digest digest;
      for (const DynamicCall& c : calls_of(kind)) add(digest, expected(c));
      digests[digest_name(kind)] = hex(digest);
    }
  expect_recorded(digests, is_own);
}

class TargetDigest : public ::testing::TestWithParam<TargetAndOp> {};

TEST_P(TargetDigest, AllThreadCounts) {
  const auto [target, op] = GetParam();
  const Digests recorded = read_digests(OCTAVO_DIGESTS, is_own);
  const Streams streams(target);
  for (const Kind& kind : kinds_of(op, Layout::per_tensor)) {
    const std::string key = digest_name(kind);
    ASSERT_TRUE(recorded.contains(key)) << key << " is not in " << OCTAVO_DIGESTS;
    const std::vector<Operands> all = operands_of(kind);
    for (const Stream& stream : streams) {
      Digest digest;
      for (const Operands& o : all) {
        Bytes output(static_cast<std::size_t>(output_bytes(o.problem)));
        const Status status = run(stream, o.problem, pointers_of(o, output.data()));
        ASSERT_TRUE(status) << key << ": " << status.error().message();
        digest.add(output);
      }
      EXPECT_EQ(hex(digest), recorded.at(key))
          << key << " on " << name(target) << ", " << stream.threads() << " threads";
    }
    EXPECT_NE(streams.take_trace() & 1U << static_cast<int>(target), 0U) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TargetDigest, ::testing::ValuesIn(tested([](Op) { return true; })),
                         test_name);

class DynamicTargetDigest : public ::testing::TestWithParam<std::tuple<Target, RangeMode>> {};

TEST_P(DynamicTargetDigest, AllThreadCounts) {
  const auto [target, mode] = GetParam();
  const Digests recorded = read_digests(OCTAVO_DIGESTS, is_own);
  const Streams streams(target);
  for (const DynamicKind& kind : dynamic_kinds(mode)) {
    const std::string key = digest_name(kind);
    ASSERT_TRUE(recorded.contains(key)) << key << " is not in " << OCTAVO_DIGESTS;
    const std::vector<DynamicCall> calls = calls_of(kind);
    for (const Stream& stream : streams) {
      Digest digest;
      for (const DynamicCall& c : calls) {
        DynamicResult result;
        ASSERT_EQ(run(stream, c, result), "") << key;
        add(digest, result);
      }
      EXPECT_EQ(hex(digest), recorded.at(key))
          << key << " on " << name(target) << ", " << stream.threads() << " threads";
    }
    EXPECT_NE(streams.take_trace() & 1U << static_cast<int>(target), 0U) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DynamicTargetDigest,
                         ::testing::Combine(::testing::ValuesIn(tested_places()),
                                            ::testing::ValuesIn(all_modes)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::string(name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace octavo::testing
