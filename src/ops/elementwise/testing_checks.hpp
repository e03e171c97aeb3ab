// GoogleTest helpers for the elementwise plans: one check of one call, on one target, for every
// thread count.
#pragma once

#include <gtest/gtest.h>

#include <ios>
#include <memory>
#include <ostream>
#include <sstream>
#include <tuple>

#include "ops/elementwise/testing_streams.hpp"

namespace octavo::testing {

/// Test parameters: a target, and an operation that `wanted` accepts.
using TargetAndOp = std::tuple<Target, Op>;
[[nodiscard]] inline std::vector<TargetAndOp> tested(bool (*wanted)(Op)) {
  std::vector<TargetAndOp> list;
  for (const Target target : tested_places())
    for (const Op op : all_ops)
      if (wanted(op)) list.emplace_back(target, op);
  return list;
}
[[nodiscard]] inline std::string test_name(const ::testing::TestParamInfo<TargetAndOp>& info) {
  return std::string(name(std::get<0>(info.param))) + "_" +
         std::string(name(std::get<1>(info.param)));
}

/// Says which targets the tests of this program leave out, and why.
class Targets : public ::testing::TestWithParam<Target> {};
TEST_P(Targets, IsTested) {
  const std::string wanted(name(GetParam()));
  if (!is_available(GetParam())) GTEST_SKIP() << "this CPU has no " << wanted;
  if (!own_kernels(GetParam())) GTEST_SKIP() << "no elementwise kernels of its own for " << wanted;
}
INSTANTIATE_TEST_SUITE_P(Machine, Targets, ::testing::ValuesIn(machine_targets),
                         [](const auto& info) { return std::string(name(info.param)); });

/// The first element in which two outputs differ, with all that led to it.
[[nodiscard]] inline std::string first_difference(const Operands& o, const std::byte* want,
                                                  const std::byte* got) {
  const Problem& p = o.problem;
  const Elements out(output_type(p), p.shape);
  const Elements in(input_type(p), p.shape);
  const Elements grad(p.element, p.shape);
  std::ostringstream text;
  describe(text, p);
  for (std::int64_t i = 0; i < numel(p.shape); ++i) {
    if (out.get(want, i) == out.get(got, i)) continue;
    const auto slice = static_cast<std::size_t>(slice_of(p, i));
    text << "\n  element " << i << " scale " << std::hexfloat << o.scales[slice] << " zero point "
         << o.zero_points[slice] << std::hex;
    if (!o.input.empty()) text << " input " << in.get(o.input.data(), i);
    if (!o.grad.empty()) text << " grad " << grad.get(o.grad.data(), i);
    text << " expected " << out.get(want, i) << " got " << out.get(got, i);
    return text.str();
  }
  text << "\n  the padding of a packed row differs";
  return text.str();
}

/// Runs one call on every stream and compares each with what is wanted, bit for bit; nothing may be
/// written beside the output. False if a run failed or differed: one report is enough.
inline bool check(const Streams& streams, const Operands& o, const Bytes& want) {
  constexpr std::size_t beside = 64;
  constexpr std::byte paint{0xCD};
  for (const Stream& stream : streams) {
    Bytes got(want.size() + 2 * beside, paint);
    const Status status = run(stream, o.problem, pointers_of(o, got.data() + beside));
    std::ostringstream where;
    where << name(streams.target()) << ", " << stream.threads() << " threads: ";
    if (!status) {
      describe(where, o.problem);
      ADD_FAILURE() << where.str() << ": " << status.error().message();
      return false;
    }
    if (!std::equal(want.begin(), want.end(), got.begin() + beside)) {
      ADD_FAILURE() << where.str() << first_difference(o, want.data(), got.data() + beside);
      return false;
    }
    const auto painted = [&](std::byte b) { return b == paint; };
    if (!std::all_of(got.begin(), got.begin() + beside, painted) ||
        !std::all_of(got.end() - beside, got.end(), painted)) {
      describe(where, o.problem);
      ADD_FAILURE() << where.str() << ": bytes beside the output changed";
      return false;
    }
  }
  return true;
}

inline bool check(const Streams& streams, const Operands& o) {
  return check(streams, o, expected(o));
}

}  // namespace octavo::testing
