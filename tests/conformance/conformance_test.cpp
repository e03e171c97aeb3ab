// Octavo against PyTorch and the ONNX node tests, on every target this machine has.
//
// OCTAVO_ORACLE_DIR names the directory that make_oracle.py wrote. What PyTorch and Octavo must
// agree on, and where they differ, is in docs/pytorch_differences.md.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle.hpp"

namespace octavo::conformance {
namespace {

template <class Plan>
typename Plan::Descriptor descriptor_of(const Case& c) {
  typename Plan::Descriptor d;
  if constexpr (requires { d.numel; }) {
    d.numel = c.input.count;
  } else if constexpr (requires { d.tokens; }) {
    d.tokens = c.shape[0];
    d.hidden = c.input.count / c.shape[0];
  } else if constexpr (requires { d.group_size; }) {
    d.rows = 1;
    d.cols = c.input.count;
    d.group_size = c.input.count / c.shape[0];
  } else {
    d.shape = c.shape;
    d.axis = c.axis.value();
  }
  if constexpr (requires { d.element; }) {
    d.element = c.input.dtype;
  } else {
    d.input = c.input.dtype;
    d.output = c.expected.dtype;
  }
  if constexpr (requires { d.q_min; }) {
    if (c.q_min) d.q_min = *c.q_min;
    if (c.q_max) d.q_max = *c.q_max;
    d.profile = c.profile;
  }
  if constexpr (requires { d.scale_type; }) d.scale_type = c.scales.dtype;
  return d;
}

// What a plan wrote.
struct Results {
  std::vector<std::byte> output;
  std::vector<std::byte> scales;  // these two only if the plan finds them
  std::vector<std::byte> zero_points;
  friend bool operator==(const Results&, const Results&) = default;
};

Results untouched(const Case& c) {
  const auto bytes = [](const Tensor& t) { return std::vector(t.bytes(), std::byte{0xA5}); };
  Results results{bytes(c.expected), {}, {}};
  if (c.mode) {
    results.scales = bytes(c.scales);
    results.zero_points = bytes(c.zero_points);
  }
  return results;
}

template <class Plan>
Status run_plan(const Case& c, const Stream& stream, Results& results) {
  const auto d = descriptor_of<Plan>(c);
  const auto plan = Plan::select(stream, d);
  if (!plan) return plan.error();

  Shape shape = c.shape;
  if constexpr (requires { d.tokens; }) shape = {d.tokens, d.hidden};
  if constexpr (requires { d.group_size; }) shape = {d.rows, d.cols};
  const auto ref = [](const Tensor& t, const Shape& s) { return TensorRef(t.data, t.dtype, s); };
  typename Plan::Args args;
  args.input = ref(c.input, shape);
  if constexpr (requires { args.scales; }) {
    args.scales = ref(c.scales, {c.scales.count});
    args.zero_points = ref(c.zero_points, {c.zero_points.count});
  } else {
    args.scale = value_at(c.scales.data, c.scales.dtype, 0);
    args.zero_point =
        static_cast<std::int32_t>(value_at(c.zero_points.data, c.zero_points.dtype, 0));
  }
  const TensorMut out(results.output.data(), c.expected.dtype, shape);
  if constexpr (requires { args.grad_output; }) {
    args.grad_output = ref(c.grad.value(), shape);
    args.grad_input = out;
  } else {
    args.output = out;
  }
  const WorkspaceBuffer workspace(plan->workspace_size());
  return plan->run(stream, workspace, args);
}

template <Layout scope>
Status run_dynamic(const Case& c, const Stream& stream, Results& results) {
  DynamicRangeQuantizeDescriptor d;
  d.shape = c.shape;
  d.mode = c.mode.value();
  d.scope = scope;
  if constexpr (scope == Layout::per_channel) d.axis = c.axis.value();
  if constexpr (scope == Layout::per_group) {
    d.shape = {1, c.input.count};
    d.group_size = c.input.count / c.shape[0];
  }
  d.input = c.input.dtype;
  d.output = c.expected.dtype;
  d.q_min = c.q_min;
  d.q_max = c.q_max;
  d.profile = c.profile;
  const auto plan = DynamicRangeQuantizePlan::select(stream, d);
  if (!plan) return plan.error();

  DynamicRangeQuantizeArgs args;
  args.input = TensorRef(c.input.data, c.input.dtype, d.shape);
  args.output = TensorMut(results.output.data(), c.expected.dtype, d.shape);
  args.scales = TensorMut(results.scales.data(), c.scales.dtype, {c.scales.count});
  args.zero_points =
      TensorMut(results.zero_points.data(), c.zero_points.dtype, {c.zero_points.count});
  const WorkspaceBuffer workspace(plan->workspace_size());
  return plan->run(stream, workspace, args);
}

// A scale for each index of the first axis is a scale per token, and per group, as well.
enum class When { per_tensor, per_channel, first_axis };

struct Runner {
  std::string_view op;
  When when;
  std::string_view plan;
  Status (*run)(const Case&, const Stream&, Results&);
};

constexpr std::array runners{
    Runner{"quantize", When::per_tensor, "QuantizePerTensorPlan", run_plan<QuantizePerTensorPlan>},
    Runner{"quantize", When::per_channel, "QuantizePerChannelPlan",
           run_plan<QuantizePerChannelPlan>},
    Runner{"quantize", When::first_axis, "QuantizePerTokenPlan", run_plan<QuantizePerTokenPlan>},
    Runner{"quantize", When::first_axis, "QuantizePerGroupPlan", run_plan<QuantizePerGroupPlan>},
    Runner{"dequantize", When::per_tensor, "DequantizePerTensorPlan",
           run_plan<DequantizePerTensorPlan>},
    Runner{"dequantize", When::per_channel, "DequantizePerChannelPlan",
           run_plan<DequantizePerChannelPlan>},
    Runner{"dequantize", When::first_axis, "DequantizePerTokenPlan",
           run_plan<DequantizePerTokenPlan>},
    Runner{"dequantize", When::first_axis, "DequantizePerGroupPlan",
           run_plan<DequantizePerGroupPlan>},
    Runner{"fake_quantize", When::per_tensor, "FakeQuantizePlan", run_plan<FakeQuantizePlan>},
    Runner{"fake_quantize", When::per_channel, "FakeQuantizePerChannelPlan",
           run_plan<FakeQuantizePerChannelPlan>},
    Runner{"fake_quantize", When::first_axis, "FakeQuantizePerTokenPlan",
           run_plan<FakeQuantizePerTokenPlan>},
    Runner{"fake_quantize", When::first_axis, "FakeQuantizePerGroupPlan",
           run_plan<FakeQuantizePerGroupPlan>},
    Runner{"fake_quantize_backward", When::per_tensor, "FakeQuantizeBackwardPlan",
           run_plan<FakeQuantizeBackwardPlan>},
    Runner{"fake_quantize_backward", When::per_channel, "FakeQuantizePerChannelBackwardPlan",
           run_plan<FakeQuantizePerChannelBackwardPlan>},
    Runner{"fake_quantize_backward", When::first_axis, "FakeQuantizePerTokenBackwardPlan",
           run_plan<FakeQuantizePerTokenBackwardPlan>},
    Runner{"fake_quantize_backward", When::first_axis, "FakeQuantizePerGroupBackwardPlan",
           run_plan<FakeQuantizePerGroupBackwardPlan>},
    Runner{"dynamic_range_quantize", When::per_tensor, "DynamicRangeQuantizePlan per tensor",
           run_dynamic<Layout::per_tensor>},
    Runner{"dynamic_range_quantize", When::per_channel, "DynamicRangeQuantizePlan per channel",
           run_dynamic<Layout::per_channel>},
    Runner{"dynamic_range_quantize", When::first_axis, "DynamicRangeQuantizePlan per token",
           run_dynamic<Layout::per_token>},
    Runner{"dynamic_range_quantize", When::first_axis, "DynamicRangeQuantizePlan per group",
           run_dynamic<Layout::per_group>},
};

bool applies(const Runner& runner, const Case& c) {
  if (runner.op != c.op) return false;
  if (runner.when == When::per_tensor) return !c.axis;
  return c.axis && (runner.when == When::per_channel || *c.axis == 0);
}

// The same bits; or, if the case says so, the same number. All NaNs are one.
bool equal(const Case& c, const std::byte* got, std::int64_t i) {
  const Tensor& e = c.expected;
  if (bits_at(e.data, e.dtype, i) == bits_at(got, e.dtype, i)) return true;
  const double a = value_at(e.data, e.dtype, i);
  const double b = value_at(got, e.dtype, i);
  return (std::isnan(a) && std::isnan(b)) || (c.as_numbers && a == b);
}

// Which scale and zero point element `i` has.
std::int64_t parameter_of(const Case& c, std::int64_t i) {
  if (!c.axis) return 0;
  for (int d = c.shape.rank() - 1; d > *c.axis; --d) i /= c.shape[d];
  return i % c.shape[*c.axis];
}

std::string explain(const Case& c, const std::byte* got, std::int64_t i) {
  const std::int64_t p = parameter_of(c, i);
  std::string text = "element " + std::to_string(i) + " of " + std::to_string(c.input.count) +
                     ": input " + show(c.input.data, c.input.dtype, i);
  if (c.grad) text += ", gradient " + show(c.grad->data, c.grad->dtype, i);
  text += ", scale " + show(c.scales.data, c.scales.dtype, p);
  text += ", zero point " + show(c.zero_points.data, c.zero_points.dtype, p);
  text += "\n  expected " + show(c.expected.data, c.expected.dtype, i) + ", got " +
          show(got, c.expected.dtype, i);
  if (!c.torch.empty()) {
    text += "\n  PyTorch:";
    for (const std::string& result : c.torch) text += " " + result;
  }
  return text;
}

// Scales or zero points that the plan has found: the same bits.
void check_found(const char* what, const Tensor& expected, const std::byte* got) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < expected.count; ++i)
    if (bits_at(expected.data, expected.dtype, i) != bits_at(got, expected.dtype, i) &&
        wrong++ == 0)
      ADD_FAILURE() << what << " " << i << ": expected " << show(expected.data, expected.dtype, i)
                    << ", got " << show(got, expected.dtype, i);
  EXPECT_EQ(wrong, 0) << what << "s differ, out of " << expected.count;
}

void check(const Case& c, const Runner& runner, const Stream& stream) {
  Results results = untouched(c);
  const Status status = runner.run(c, stream, results);
  if (c.refused) {
    EXPECT_FALSE(status) << "must be refused";
    EXPECT_TRUE(results == untouched(c)) << "the output has changed";
    return;
  }
  ASSERT_TRUE(status) << status.error().argument() << ": " << status.error().message();
  if (c.mode) {
    check_found("scale", c.scales, results.scales.data());
    check_found("zero point", c.zero_points, results.zero_points.data());
  }
  const std::byte* output = results.output.data();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < c.expected.count; ++i)
    if (!equal(c, output, i) && wrong++ == 0) ADD_FAILURE() << explain(c, output, i);
  EXPECT_EQ(wrong, 0) << "elements differ, out of " << c.expected.count;
}

class Conformance : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = oracle_missing(); !why.empty()) GTEST_SKIP() << why;
    oracle_ = read_oracle(std::getenv("OCTAVO_ORACLE_DIR"));
    RecordProperty("oracle", oracle_.made_by);
  }

  // Runs the group's cases, of which there must be `at_least` so many.
  void run(std::string_view group, std::size_t at_least) {
    const auto found = oracle_.groups.find(group);
    ASSERT_NE(found, oracle_.groups.end()) << "no cases: " << group;
    ASSERT_GE(found->second.size(), at_least) << "cases are missing: " << group;
    for (const Target target : available_targets()) {
      CpuOptions options;
      options.cap = target;
      const Stream stream = Stream::cpu(options);
      for (const Case& c : found->second) {
        check_all(c, stream, target);
        ASSERT_LT(failures(), 40) << "too many failures: the other cases were not run";
      }
    }
  }

 private:
  static int failures() {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  void check_all(const Case& c, const Stream& stream, Target target) const {
    bool ran = false;
    for (const Runner& runner : runners) {
      if (!applies(runner, c)) continue;
      SCOPED_TRACE(std::string(runner.plan) + " on " + std::string(name(target)) + " against " +
                   oracle_.made_by + "\n  case " + c.name);
      check(c, runner, stream);
      ran = true;
    }
    EXPECT_TRUE(ran) << c.name << ": no plan for " << c.op;
  }

  Oracle oracle_;
};

TEST_F(Conformance, TorchQuantize) { run("quantize", 397); }
TEST_F(Conformance, TorchDequantize) { run("dequantize", 464); }
TEST_F(Conformance, TorchFakeQuantize) { run("fake", 553); }
TEST_F(Conformance, TorchGradients) { run("gradient", 553); }
TEST_F(Conformance, DynamicRange) { run("dynamic_range", 458); }
TEST_F(Conformance, OnnxNodes) { run("onnx", 52); }
TEST_F(Conformance, TorchDifferences) { run("difference", 91); }

}  // namespace
}  // namespace octavo::conformance
