// What the linear plans share. Users include quantized_matmul.hpp, quantized_linear.hpp and
// smoothquant_linear.hpp.
//
//     acc[m,n] = sum over k of (a[m,k] - zp_a[m]) * (w[n,k] - zp_w[n])         exact, for any k
//     y[m,n]   = C(acc) * (s_a[m] * s_w[n])         or, with a bias,
//                fma(C(acc), s_a[m] * s_w[n], bias[n])
//     y        = y + residual[m,n];   y = y < 0 ? +0 : y (ReLU)                 where asked for
//
// and then y is rounded to the output type, or quantized by the output's scale and zero point.
// C is f64 if the activations or the output are, else f32; scales and bias are rounded to it.
//
// With a scale for each group of input channels, d the exact sum over a group,
//
//     acc[m,n] = sum over the groups of C(d) * s_w[n,g]           by fma, in an order that is fixed
//     y[m,n]   = acc * s_a[m]       or, with a bias, fma(acc, s_a[m], bias[n]); and then as above
//
// numerics.md has the order. Float layers (float_linear.hpp) add floats in the same way.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "octavo/packed_weight.hpp"
#include "octavo/result.hpp"
#include "octavo/sku.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

enum class RangeMode : std::uint8_t;  // (dynamic_range_quantize.hpp)
struct QuantizedLinearDescriptor;
struct SmoothQuantLinearDescriptor;
struct QuantizedMatmulDescriptor;
struct FloatLinearDescriptor;

/// Arguments of QuantizedLinearPlan and SmoothQuantLinearPlan. `rows` is at most the plan's m and
/// may differ from run to run. Rows of every matrix may lie apart (a stride), the elements of a row
/// may not. Arrays of scales, zero points and bias are contiguous and of any shape.
struct LinearArgs {
  TensorRef input;   ///< [rows, k]
  WeightRef weight;  ///< [n, k], or a PackedWeight, as the descriptor says
  /// One per output channel, or one; or [n, k / group_size]; any float type. None for a packed
  /// weight in groups, which holds them.
  TensorRef weight_scales = {};
  TensorRef weight_zero_points = {};  ///< s32, likewise; only if the descriptor has them
  TensorRef bias = {};                ///< n of any float type; only if the epilogue has it
  TensorRef residual = {};            ///< [rows, n] of the output's type (f32 for s8 and u8);
                                      ///< may be the output itself
  double output_scale = 1.0;          ///< of an s8 or u8 output
  std::int32_t output_zero_point = 0;
  TensorMut output;  ///< [rows, n]
};

namespace detail {

// A double that equals itself alone: -0 is not 0, with which results differ.
struct ExactDouble {
  ExactDouble(double v) : value(v) {}
  operator double() const { return value; }
  friend bool operator==(ExactDouble a, ExactDouble b) {
    return std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
  }
  double value;
};

// Any descriptor, in one form.
struct LinearProblem {
  Op op = Op::quantized_matmul;  // or quantized_linear, in either mode, or another linear
  std::int64_t m = 0, n = 0, k = 0;
  DType activation = DType::s8;  // as given: float types are quantized first
  DType quantized = DType::s8;   // to this
  DType weight = DType::s8;
  DType output = DType::f32;
  RangeMode mode{};  // of activations that are quantized here
  bool activation_zero_points = false;
  bool weight_zero_points = false;
  bool packed_weight = false;
  Epilogue epilogue = Epilogue::none;
  Profile profile = Profile::torch;
  ExactDouble act_scale = 1.0;  // of smoothquant_linear, with its zero point
  std::int32_t act_zero_point = 0;
  std::int64_t group = 0;           // weights that share a scale; 0: all of a row
  DType weight_scale = DType::f32;  // of groups, where the pack holds them

  friend bool operator==(const LinearProblem&, const LinearProblem&) = default;
};

// Any arguments, in one form.
struct LinearOperands {
  const TensorRef* input = nullptr;
  const WeightRef* weight = nullptr;
  const TensorRef* weight_scales = nullptr;
  const TensorRef* weight_zero_points = nullptr;
  const TensorRef* bias = nullptr;
  const TensorRef* residual = nullptr;
  double output_scale = 1.0;
  std::int32_t output_zero_point = 0;
  const TensorMut* output = nullptr;
  const TensorRef* activation_scales = nullptr;  // null: found here, or the descriptor's
  const TensorRef* activation_zero_points = nullptr;
};

class LinearImpl;

// The plan behind all of the names: it holds the implementation that was chosen for it.
class OCTAVO_API AnyLinearPlan {
 public:
  static Result<AnyLinearPlan> select(const Stream& stream, const LinearProblem& problem,
                                      const PlanPreference& preference);
  AnyLinearPlan(const AnyLinearPlan&) = default;  // (and no move, which would leave an empty one)
  AnyLinearPlan& operator=(const AnyLinearPlan&) = default;
  ~AnyLinearPlan() = default;

  [[nodiscard]] Status can_implement(const LinearOperands& operands) const;
  [[nodiscard]] std::size_t workspace_size() const noexcept;
  Status run(const Stream& stream, Workspace workspace, const LinearOperands& operands) const;
  [[nodiscard]] const KernelSku& sku() const noexcept;

 private:
  friend struct LinearAccess;
  explicit AnyLinearPlan(std::shared_ptr<const LinearImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const LinearImpl> impl_;
};

OCTAVO_API LinearProblem linear_problem(const QuantizedLinearDescriptor& descriptor);
OCTAVO_API LinearProblem linear_problem(const SmoothQuantLinearDescriptor& descriptor);
OCTAVO_API LinearProblem linear_problem(const QuantizedMatmulDescriptor& descriptor);
OCTAVO_API LinearProblem linear_problem(const FloatLinearDescriptor& descriptor);

}  // namespace detail

/// QuantizedLinearPlan, SmoothQuantLinearPlan, QuantizedMatmulPlan and FloatLinearPlan, by what
/// describes them.
template <class D, class A>
class LinearPlan {
 public:
  using Descriptor = D;
  using Args = A;

  /// Chooses a kernel, and refuses what no kernel can do.
  static Result<LinearPlan> select(const Stream& stream, const Descriptor& descriptor,
                                   const PlanPreference& preference = {}) {
    const auto plan =
        detail::AnyLinearPlan::select(stream, detail::linear_problem(descriptor), preference);
    if (!plan) return plan.error();
    return LinearPlan(*plan);
  }
  /// The same, with the types taken from C++: `select<float, std::int8_t, float>(...)`.
  template <Element Activation, Element Weight, Element Output>
  static Result<LinearPlan> select(const Stream& stream, Descriptor descriptor,
                                   const PlanPreference& preference = {}) {
    descriptor.activation = dtype_of<Activation>;
    descriptor.weight = dtype_of<Weight>;
    descriptor.output = dtype_of<Output>;
    return select(stream, std::as_const(descriptor), preference);
  }

  /// Whether `run` would accept these arguments, and if not, why. On the CPU it reads scales and
  /// zero points; where work is queued, Stream::synchronize tells of them.
  [[nodiscard]] Status can_implement(const Args& args) const {
    return plan_.can_implement(operands(args));
  }
  /// Bytes of workspace that `run` needs.
  [[nodiscard]] std::size_t workspace_size() const noexcept { return plan_.workspace_size(); }
  /// Does the work, on a stream of the plan's backend; on the CPU it is done when this returns.
  /// Allocates nothing.
  Status run(const Stream& stream, Workspace workspace, const Args& args) const {
    return plan_.run(stream, workspace, operands(args));
  }
  [[nodiscard]] const KernelSku& sku() const noexcept { return plan_.sku(); }
  [[nodiscard]] const PrecisionGuarantee& precision_guarantee() const noexcept {
    return sku().guarantee;
  }

 private:
  explicit LinearPlan(const detail::AnyLinearPlan& plan) : plan_(plan) {}
  static detail::LinearOperands operands(const Args& args) {
    detail::LinearOperands o;
    o.input = &args.input;
    o.weight = &args.weight;
    if constexpr (requires { args.weight_scales; }) {
      o.weight_scales = &args.weight_scales;
      o.weight_zero_points = &args.weight_zero_points;
    }
    o.bias = &args.bias;
    o.residual = &args.residual;
    o.output_scale = args.output_scale;
    o.output_zero_point = args.output_zero_point;
    o.output = &args.output;
    if constexpr (requires { args.activation_scales; }) {
      o.activation_scales = &args.activation_scales;
      o.activation_zero_points = &args.activation_zero_points;
    }
    return o;
  }
  detail::AnyLinearPlan plan_;
};

}  // namespace octavo
