// Linear layers against PyTorch's and ONNX's integer matrix products, and against the formula in
// exact arithmetic, on every target this machine has, with weights as they are and packed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "oracle.hpp"

namespace octavo::conformance {
namespace {

TensorRef array_of(const std::optional<Tensor>& t) {
  return t ? TensorRef(t->data, t->dtype, {t->count}) : TensorRef();
}

template <class Plan>
typename Plan::Descriptor descriptor_of(const LinearCase& c, bool packed) {
  typename Plan::Descriptor d;
  d.m = c.m;
  d.n = c.n;
  d.k = c.k;
  d.activation = c.input.dtype;
  d.weight = c.weight.dtype;
  d.output = c.expected.dtype;
  d.weight_zero_points = c.weight_zero_points.has_value();
  d.packed_weight = packed;
  d.profile = c.profile;
  if (c.bias) d.epilogue = d.epilogue | Epilogue::bias;
  if (c.residual) d.epilogue = d.epilogue | Epilogue::residual;
  if (c.relu) d.epilogue = d.epilogue | Epilogue::relu;
  if constexpr (requires { d.activation_zero_points; })
    d.activation_zero_points = c.activation_zero_points.has_value();
  if constexpr (requires { d.mode; }) {
    d.mode = c.mode;
    d.quantized = c.quantized;
  }
  if constexpr (requires { d.act_scale; }) {
    d.act_scale = c.act_scale;
    d.act_zero_point = c.act_zero_point;
  }
  return d;
}

template <class Plan>
Status run(const LinearCase& c, const Stream& stream, bool packed, std::vector<std::byte>& out) {
  const auto plan = Plan::select(stream, descriptor_of<Plan>(c, packed));
  if (!plan) return plan.error();
  const TensorRef rows(c.weight.data, c.weight.dtype, {c.n, c.k});
  const Result<PackedWeight> held = pack(stream, rows);
  if (!held) return held.error();
  typename Plan::Args args;
  args.input = TensorRef(c.input.data, c.input.dtype, {c.m, c.k});
  args.weight = packed ? WeightRef(*held) : WeightRef(rows);
  args.weight_scales = array_of(c.weight_scales);
  args.weight_zero_points = array_of(c.weight_zero_points);
  args.bias = array_of(c.bias);
  if (c.residual) args.residual = TensorRef(c.residual->data, c.residual->dtype, {c.m, c.n});
  args.output_scale = c.output_scale;
  args.output_zero_point = c.output_zero_point;
  if constexpr (requires { args.activation_scales; }) {
    args.activation_scales = array_of(c.activation_scales);
    args.activation_zero_points = array_of(c.activation_zero_points);
  }
  args.output = TensorMut(out.data(), c.expected.dtype, {c.m, c.n});
  const WorkspaceBuffer workspace(plan->workspace_size());
  return plan->run(stream, workspace, args);
}

Status run_any(const LinearCase& c, const Stream& stream, bool packed,
               std::vector<std::byte>& out) {
  if (c.op == "quantized_linear") return run<QuantizedLinearPlan>(c, stream, packed, out);
  if (c.op == "smoothquant_linear") return run<SmoothQuantLinearPlan>(c, stream, packed, out);
  return run<QuantizedMatmulPlan>(c, stream, packed, out);
}

void check(const LinearCase& c, const Stream& stream, bool packed) {
  const DType type = c.expected.dtype;
  std::vector<std::byte> out(static_cast<std::size_t>(bytes_for(type, c.m * c.n)), std::byte{0xA5});
  const Status status = run_any(c, stream, packed, out);
  ASSERT_TRUE(status) << status.error().argument() << ": " << status.error().message();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < c.expected.count; ++i) {
    const auto at =
        c.cells ? static_cast<std::int64_t>(value_at(c.cells->data, c.cells->dtype, i)) : i;
    if (bits_at(c.expected.data, type, i) != bits_at(out.data(), type, at) && wrong++ == 0)
      ADD_FAILURE() << "[" << at / c.n << ", " << at % c.n << "]: expected "
                    << show(c.expected.data, type, i) << ", got " << show(out.data(), type, at);
  }
  EXPECT_EQ(wrong, 0) << "elements differ, out of " << c.expected.count;
}

class LinearConformance : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = oracle_missing(); !why.empty()) GTEST_SKIP() << why;
    oracle_ = read_oracle(std::getenv("OCTAVO_ORACLE_DIR"));
    RecordProperty("oracle", oracle_.made_by);
  }

  // Runs the group's cases, of which there must be `at_least` so many.
  void run_group(std::string_view group, std::size_t at_least) {
    const auto found = oracle_.linear.find(group);
    ASSERT_NE(found, oracle_.linear.end()) << "no cases: " << group;
    ASSERT_GE(found->second.size(), at_least) << "cases are missing: " << group;
    for (const Target target : available_targets()) {
      const Stream stream = Stream::cpu({.cap = target});
      for (const LinearCase& c : found->second)
        for (const bool packed : {false, true}) {
          SCOPED_TRACE(c.name + " on " + std::string(name(target)) + (packed ? ", packed" : "") +
                       " against " + oracle_.made_by);
          check(c, stream, packed);
          ASSERT_FALSE(HasFailure()) << "the other cases were not run";
        }
    }
  }

 private:
  Oracle oracle_;
};

TEST_F(LinearConformance, TorchMatmul) { run_group("linear_torch", 96); }
TEST_F(LinearConformance, OnnxNodes) { run_group("linear_onnx", 4); }
TEST_F(LinearConformance, ExactFormula) { run_group("linear_exact", 768); }

}  // namespace
}  // namespace octavo::conformance
