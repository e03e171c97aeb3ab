#include "ops/linear/cpu/values.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "numerics/affine.hpp"
#include "ops/linear/check.hpp"

namespace octavo::detail {
namespace {

std::int64_t count_of(const TensorRef* t) {
  if (!is_given(t)) return 0;
  std::int64_t count = 1;
  for (int i = 0; i < t->shape.rank(); ++i) count *= t->shape[i];
  return count;
}

// Whether all of so many floats of 16 bits are, whose exponents are these bits.
bool are_finite(const void* values, std::int64_t count, std::uint16_t exponent) {
  const auto* from = static_cast<const std::uint16_t*>(values);
  int infinite = 0;
  for (std::int64_t i = 0; i < count; ++i)
    infinite |= static_cast<int>((from[i] & exponent) == exponent);
  return infinite == 0;
}

// The index of the first scale that is not finite, and it; or -1.
template <class C>
std::int64_t find_infinite(const TensorRef& t, std::int64_t count, ScanFunction scan, C& found) {
  constexpr std::int32_t last = 0x7F7FFFFF;
  if (t.dtype == DType::f32 && scan(t.data, count, INT32_MAX).most <= last) return -1;
  if (t.dtype == DType::f16 && are_finite(t.data, count, 0x7C00)) return -1;
  if (t.dtype == DType::bf16 && are_finite(t.data, count, 0x7F80)) return -1;
  const FpEnvironment environment;  // (f64 may be rounded)
  constexpr std::int64_t piece = 256;
  C values[piece];
  for (std::int64_t first = 0; first < count; first += piece) {
    const std::int64_t n = std::min(piece, count - first);
    load_floats(t.data, t.dtype, false, first, n, values);
    for (std::int64_t i = 0; i < n; ++i)
      if (!numerics::is_finite(values[i])) {
        found = values[i];
        return first + i;
      }
  }
  return -1;
}

template <class C>
Status check_finite(const char* argument, const TensorRef* t, ScanFunction scan) {
  const std::int64_t count = count_of(t);
  if (count == 0) return {};
  C found = 0;
  const std::int64_t at = find_infinite(*t, count, scan, found);
  if (at < 0) return {};
  return scale_refusal(argument, static_cast<double>(found), dtype_of<C>, at);
}

Status check_scales(const char* argument, const TensorRef* t, DType compute, ScanFunction scan) {
  return compute == DType::f64 ? check_finite<double>(argument, t, scan)
                               : check_finite<float>(argument, t, scan);
}

Status check_zero_points(const char* argument, const TensorRef* t, DType type, ScanFunction scan) {
  const std::int64_t count = count_of(t);
  if (count == 0) return {};
  const Extremes found = scan(t->data, count, -1);
  const IntRange range = storage_range(type);
  if (found.least >= range.min && found.most <= range.max) return {};
  const auto* values = static_cast<const std::int32_t*>(t->data);
  std::int64_t i = 0;
  while (values[i] >= range.min && values[i] <= range.max) ++i;
  return zero_point_refusal(argument, values[i], type, i);
}

template <class C, DType type>
void load_as(const void* from, bool single, std::int64_t first, std::int64_t n, C* to) {
  using T = numerics::Type<type>;
  if (single) {
    std::fill_n(to, n, static_cast<C>(T::read(from, 0)));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(T::read(from, first + i));
  }
}

}  // namespace

bool are_finite_scales(const void* scales, DType type, std::int64_t count) {
  const FpEnvironment environment;
  bool finite = true;
  numerics::with_type(LinearFloats(), type, [&]<DType t>() {
    for (std::int64_t i = 0; i < count; ++i)
      finite &= numerics::is_finite(static_cast<float>(numerics::Type<t>::read(scales, i)));
  });
  return finite;
}

Status check_group_values(DType weight, const TensorRef& scales, const TensorRef& zero_points) {
  if (Status s = check_finite<float>("scales", &scales, scan<Target::scalar>); !s) return s;
  return check_zero_points("zero_points", &zero_points, weight, scan<Target::scalar>);
}

template <class C>
void load_floats(const void* from, DType type, bool single, std::int64_t first, std::int64_t n,
                 C* to) {
  numerics::with_type(LinearFloats(), type,
                      [&]<DType t>() { load_as<C, t>(from, single, first, n, to); });
}
template void load_floats(const void*, DType, bool, std::int64_t, std::int64_t, float*);
template void load_floats(const void*, DType, bool, std::int64_t, std::int64_t, double*);

Status check_linear_values(const LinearProblem& p, ScanFunction scan, const LinearOperands& o) {
  const DType compute = compute_type(p);
  const bool scales = p.output != DType::s32;
  if (scales)
    if (Status s = check_scales("weight_scales", o.weight_scales, compute, scan); !s) return s;
  if (p.weight_zero_points)
    if (Status s = check_zero_points("weight_zero_points", o.weight_zero_points, p.weight, scan);
        !s)
      return s;
  if (p.op != Op::quantized_matmul) return {};
  if (scales)
    if (Status s = check_scales("activation_scales", o.activation_scales, compute, scan); !s)
      return s;
  if (!p.activation_zero_points) return {};
  return check_zero_points("activation_zero_points", o.activation_zero_points, p.activation, scan);
}

}  // namespace octavo::detail
