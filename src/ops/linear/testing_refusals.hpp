// A good call of any linear plan for a test to spoil, and the proof that it was refused by name and
// wrote nothing.
#pragma once

#include "ops/elementwise/testing_refusals.hpp"
#include "ops/linear/testing.hpp"

namespace octavo::testing {

inline constexpr std::array linear_kinds{LinearKind::matmul, LinearKind::dynamic,
                                         LinearKind::smoothquant};

[[nodiscard]] inline Refusal invalid(const std::string& argument,
                                     std::vector<std::string> mentions = {}) {
  return {ErrorCode::invalid_problem, {argument}, std::move(mentions)};
}
[[nodiscard]] inline Refusal unsupported(const std::string& argument,
                                         std::vector<std::string> mentions = {}) {
  return {ErrorCode::unsupported, {argument}, std::move(mentions)};
}
[[nodiscard]] inline Refusal too_small(const std::string& argument, std::int64_t needed,
                                       std::int64_t got) {
  return {ErrorCode::buffer_too_small,
          {argument},
          {std::to_string(needed), std::to_string(got)},
          needed,
          got};
}

/// The parts of a call; each has 1 KiB of its own.
enum class Part : std::uint8_t {
  input,
  activation_scales,
  activation_zero_points,
  weight,
  weight_scales,
  weight_zero_points,
  bias,
  residual,
  output,
  count
};

/// [4, 8] by [6, 8], with everything a descriptor of its kind may have.
[[nodiscard]] inline LinearCase full_case(LinearKind kind) {
  LinearCase c;
  c.kind = kind;
  c.m = 4;
  c.n = 6;
  c.k = 8;
  c.activation = kind == LinearKind::dynamic ? DType::f32 : DType::s8;
  c.mode = RangeMode::asymmetric;
  c.activation_zero_points = kind != LinearKind::dynamic;
  c.weight_zero_points = true;
  c.epilogue = Epilogue::bias | Epilogue::residual | Epilogue::relu;
  return c;
}
/// The raw sums of a matmul, with zero points.
[[nodiscard]] inline LinearCase raw_case() {
  LinearCase c = full_case(LinearKind::matmul);
  c.output = DType::s32;
  c.epilogue = Epilogue::none;
  return c;
}

class LinearAttempt {
 public:
  explicit LinearAttempt(const LinearCase& c) : c_(c), data_(make_linear(c)), memory_(total_bytes) {
    if (c.packed) packed = *octavo::pack(Stream::cpu({.threads = 1}), data_.weight.ref());
    matmul = matmul_descriptor(c);
    dynamic = dynamic_descriptor(c);
    smoothquant = smoothquant_descriptor(data_);
    place();
    lent = {base(), front_bytes};
  }
  explicit LinearAttempt(LinearKind kind) : LinearAttempt(full_case(kind)) {}
  LinearAttempt(const LinearAttempt&) = delete;
  LinearAttempt& operator=(const LinearAttempt&) = delete;
  ~LinearAttempt() = default;

  // What a test may spoil. Only the descriptor of the kind is used; `args` serve all kinds.
  QuantizedMatmulDescriptor matmul;
  QuantizedLinearDescriptor dynamic;
  SmoothQuantLinearDescriptor smoothquant;
  QuantizedMatmulArgs args;
  PackedWeight packed;
  Workspace lent;
  CpuOptions options{.threads = 1};
  PlanPreference preference;

  /// Calls f with the plan (as a std::type_identity) and the descriptor of the kind.
  template <class F>
  decltype(auto) visit(F&& f) {
    switch (c_.kind) {
      case LinearKind::matmul:
        return f(std::type_identity<QuantizedMatmulPlan>{}, matmul);
      case LinearKind::dynamic:
        return f(std::type_identity<QuantizedLinearPlan>{}, dynamic);
      default:
        return f(std::type_identity<SmoothQuantLinearPlan>{}, smoothquant);
    }
  }
  /// Changes what all descriptors have.
  template <class F>
  void describe(F&& f) {
    visit([&](auto, auto& descriptor) { f(descriptor); });
  }

  [[nodiscard]] const LinearCase& problem() const { return c_; }
  [[nodiscard]] const LinearData& data() const { return data_; }
  /// Where a part lies: `front_bytes` are free before the first one, and behind the last one.
  [[nodiscard]] std::byte* at(Part part) {
    return base() + front_bytes + static_cast<std::size_t>(part) * part_bytes;
  }
  [[nodiscard]] TensorRef& ref(Part part) {
    switch (part) {
      case Part::input:
        return args.input;
      case Part::activation_scales:
        return args.activation_scales;
      case Part::activation_zero_points:
        return args.activation_zero_points;
      case Part::weight:
        return args.weight.tensor;
      case Part::weight_scales:
        return args.weight_scales;
      case Part::weight_zero_points:
        return args.weight_zero_points;
      case Part::bias:
        return args.bias;
      default:
        return args.residual;
    }
  }
  [[nodiscard]] std::size_t workspace_size() {
    return visit([&]<class P>(std::type_identity<P>, const auto& descriptor) {
      const auto plan = P::select(Stream::cpu(options), descriptor, preference);
      EXPECT_TRUE(plan) << plan.error().message();
      return plan ? plan->workspace_size() : 0;
    });
  }

  void expect_select_refused(const Refusal& expected) {
    SCOPED_TRACE(c_.text());
    visit([&]<class P>(std::type_identity<P>, const auto& descriptor) {
      const auto plan = P::select(Stream::cpu(options), descriptor, preference);
      ASSERT_FALSE(plan) << "selected " << to_string(plan->sku());
      expect_error(plan.error(), expected);
    });
  }
  void expect_selected() {
    SCOPED_TRACE(c_.text());
    visit([&]<class P>(std::type_identity<P>, const auto& descriptor) {
      const auto plan = P::select(Stream::cpu(options), descriptor, preference);
      EXPECT_TRUE(plan) << plan.error().message();
    });
  }
  /// can_implement (unless only run can know) and run refuse, in the same words, and no byte of any
  /// operand changes.
  void expect_refused(const Refusal& expected, bool by_run_only = false) {
    SCOPED_TRACE(c_.text());
    visit([&]<class P>(std::type_identity<P>, const auto& descriptor) {
      const Stream stream = Stream::cpu(options);
      const auto plan = P::select(stream, descriptor, preference);
      ASSERT_TRUE(plan) << plan.error().message();
      const auto before = memory_;
      const auto given = arguments<typename P::Args>();
      const Status asked = plan->can_implement(given);
      EXPECT_EQ(asked.has_value(), by_run_only) << (asked ? "accepted" : asked.error().message());
      const Status ran = plan->run(stream, lent, given);
      ASSERT_FALSE(ran) << "ran";
      expect_error(ran.error(), expected);
      EXPECT_TRUE(memory_ == before) << "something was written";
      if (!asked) {
        EXPECT_EQ(ran.error().message(), asked.error().message());
      }
    });
  }
  /// The call is carried out; what it wrote is in `written()`.
  void expect_accepted() {
    SCOPED_TRACE(c_.text());
    visit([&]<class P>(std::type_identity<P>, const auto& descriptor) {
      const Stream stream = Stream::cpu(options);
      const auto plan = P::select(stream, descriptor, preference);
      ASSERT_TRUE(plan) << plan.error().message();
      const auto given = arguments<typename P::Args>();
      const Status asked = plan->can_implement(given);
      EXPECT_TRUE(asked) << asked.error().message();
      const Status ran = plan->run(stream, lent, given);
      EXPECT_TRUE(ran) << ran.error().message();
    });
  }
  [[nodiscard]] Bytes written() {
    return {at(Part::output), at(Part::output) + testing::expected(data_).bytes.size()};
  }
  void expect_oracle() {
    expect_accepted();
    EXPECT_TRUE(written() == testing::expected(data_).bytes) << c_.text() << ": the output differs";
  }

  static constexpr std::size_t part_bytes = 1024;
  static constexpr std::size_t front_bytes = std::size_t{32} << 10U;

 private:
  static constexpr std::size_t total_bytes =
      2 * front_bytes + static_cast<std::size_t>(Part::count) * part_bytes + workspace_alignment;

  [[nodiscard]] std::byte* base() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (workspace_alignment - address % workspace_alignment);
  }
  std::byte* copy(Part part, const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), at(part));
    return at(part);
  }
  void place() {
    const auto matrix = [&](Part part, const Matrix& m) {
      return TensorRef(copy(part, m.bytes), m.type, {m.rows, m.columns}, {m.stride, 1},
                       static_cast<std::int64_t>(m.bytes.size()));
    };
    const auto array = [&](Part part, const Matrix& m) {
      return TensorRef(copy(part, m.bytes), m.type, {m.columns});
    };
    const auto zeros = [&](Part part, const std::vector<std::int32_t>& z) {
      std::memcpy(at(part), z.data(), 4 * z.size());
      return TensorRef(at(part), DType::s32, {static_cast<std::int64_t>(z.size())});
    };
    std::fill(at(Part::output), at(Part::output) + part_bytes, linear_paint);
    args.input = matrix(Part::input, data_.input);
    const TensorRef rows = matrix(Part::weight, data_.weight);
    args.weight = c_.packed ? WeightRef(packed) : WeightRef(rows);
    if (c_.output != DType::s32) {
      if (c_.kind == LinearKind::matmul)
        args.activation_scales = array(Part::activation_scales, data_.activation_scales);
      args.weight_scales = array(Part::weight_scales, data_.weight_scales);
    }
    if (!data_.activation_zero_points.empty())
      args.activation_zero_points =
          zeros(Part::activation_zero_points, data_.activation_zero_points);
    if (c_.weight_zero_points)
      args.weight_zero_points = zeros(Part::weight_zero_points, data_.weight_zero_points);
    if (contains(c_.epilogue, Epilogue::bias)) args.bias = array(Part::bias, data_.bias);
    if (contains(c_.epilogue, Epilogue::residual))
      args.residual = matrix(Part::residual, data_.residual);
    args.output_scale = data_.output_scale;
    args.output_zero_point = data_.output_zero_point;
    args.output = TensorMut(at(Part::output), c_.output, {c_.m, c_.n}, {c_.n + c_.padding, 1});
  }
  template <class Args>
  [[nodiscard]] Args arguments() const {
    if constexpr (std::is_same_v<Args, QuantizedMatmulArgs>) {
      return args;
    } else {
      return {.input = args.input,
              .weight = args.weight,
              .weight_scales = args.weight_scales,
              .weight_zero_points = args.weight_zero_points,
              .bias = args.bias,
              .residual = args.residual,
              .output_scale = args.output_scale,
              .output_zero_point = args.output_zero_point,
              .output = args.output};
    }
  }

  LinearCase c_;
  LinearData data_;
  Bytes memory_;
};

/// A spoiled call of each of the kinds must be refused.
template <class F>
void refuse(const Refusal& expected, F&& spoil,
            std::initializer_list<LinearKind> kinds = {LinearKind::matmul, LinearKind::dynamic,
                                                       LinearKind::smoothquant},
            bool by_run_only = false) {
  for (const LinearKind kind : kinds) {
    LinearAttempt attempt(kind);
    spoil(attempt);
    attempt.expect_refused(expected, by_run_only);
  }
}
/// A spoiled descriptor of each of the kinds must be refused.
template <class F>
void refuse_select(const Refusal& expected, F&& spoil,
                   std::initializer_list<LinearKind> kinds = {
                       LinearKind::matmul, LinearKind::dynamic, LinearKind::smoothquant}) {
  for (const LinearKind kind : kinds) {
    LinearAttempt attempt(kind);
    attempt.describe(spoil);
    attempt.expect_select_refused(expected);
  }
}

}  // namespace octavo::testing
