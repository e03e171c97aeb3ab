#include "ops/linear/cuda/values.hpp"

#include <array>
#include <bit>

#include "numerics/half.hpp"
#include "ops/linear/check.hpp"

namespace octavo::cuda {
namespace {

using detail::is_given;

constexpr std::array arguments{
    "weight_scales", "weight_zero_points", "activation_scales", "activation_zero_points",
    "scales",        "zero_points"};
enum Argument : std::uint8_t {
  weight_scales,
  weight_zero_points,
  activation_scales,
  activation_zero_points,
  group_scales,
  group_zero_points,
};

// What a refusal is worded with.
struct Detail {
  Argument argument;
  DType type;  // of the scales, or of the weights or activations whose zero points they are
  DType compute;
};
std::uint64_t detail_bits(const Detail& d) {
  return std::uint64_t{d.argument} | static_cast<std::uint64_t>(d.type) << 8U |
         static_cast<std::uint64_t>(d.compute) << 16U;
}

double value_of(std::uint64_t bits, DType type) {
  switch (type) {
    case DType::f64:
      return std::bit_cast<double>(bits);
    case DType::f16:
      return numerics::widen(f16{static_cast<std::uint16_t>(bits)});
    case DType::bf16:
      return numerics::widen(bf16{static_cast<std::uint16_t>(bits)});
    default:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  }
}

Error word(const Refusal& refusal) {
  const auto part = [&](unsigned shift) { return refusal.detail >> shift & 0xFFU; };
  const char* argument = arguments[part(0)];
  const auto type = static_cast<DType>(part(8));
  const auto compute = static_cast<DType>(part(16));
  if (part(0) % 2 == 1)
    return detail::zero_point_refusal(
        argument, static_cast<std::int32_t>(static_cast<std::uint32_t>(refusal.bits)), type,
        refusal.index());
  return detail::scale_refusal(argument, value_of(refusal.bits, type), compute, refusal.index());
}

std::int64_t count_of(const TensorRef* t) {
  if (!is_given(t)) return 0;
  std::int64_t count = 1;
  for (int i = 0; i < t->shape.rank(); ++i) count *= t->shape[i];
  return count;
}

Check check_scales(Argument argument, const TensorRef* t, DType compute) {
  Check c;
  c.count = count_of(t);
  if (c.count == 0) return c;
  c.values = t->data;
  c.type = t->dtype;
  c.compute = compute;
  c.rule = Rule::finite;
  c.word = word_by(word);
  c.detail = detail_bits({argument, t->dtype, compute});
  return c;
}

Check check_zeros(Argument argument, const TensorRef* t, DType type) {
  Check c;
  c.count = count_of(t);
  if (c.count == 0) return c;
  const IntRange range = storage_range(type);
  c.values = t->data;
  c.type = DType::s32;
  c.rule = Rule::range;
  c.low = range.min;
  c.high = range.max;
  c.word = word_by(word);
  c.detail = detail_bits({argument, type, DType::f32});
  return c;
}

Result<const Refusal*> check(CudaStream& stream, const std::array<Check, 4>& checks) {
  bool any = false;
  for (const Check& c : checks) any |= c.count > 0;
  if (!any) return static_cast<const Refusal*>(nullptr);
  if (Status s = stream.check_values({checks[0], checks[1], checks[2], checks[3]}); !s)
    return s.error();
  return stream.latest();
}

}  // namespace

Result<const Refusal*> check_linear_values(CudaStream& stream, const detail::LinearProblem& p,
                                           const detail::LinearOperands& o) {
  const DType compute = detail::compute_type(p);
  std::array<Check, 4> checks;
  const bool scales = p.output != DType::s32;
  if (scales) checks[0] = check_scales(weight_scales, o.weight_scales, compute);
  if (p.weight_zero_points)
    checks[1] = check_zeros(weight_zero_points, o.weight_zero_points, p.weight);
  if (p.op == Op::quantized_matmul) {
    if (scales) checks[2] = check_scales(activation_scales, o.activation_scales, compute);
    if (p.activation_zero_points)
      checks[3] = check_zeros(activation_zero_points, o.activation_zero_points, p.activation);
  }
  return check(stream, checks);
}

Result<const Refusal*> check_group_values(CudaStream& stream, DType weight, const TensorRef& scales,
                                          const TensorRef& zero_points) {
  std::array<Check, 4> checks;
  checks[0] = check_scales(group_scales, &scales, DType::f32);
  checks[1] = check_zeros(group_zero_points, &zero_points, weight);
  return check(stream, checks);
}

}  // namespace octavo::cuda
