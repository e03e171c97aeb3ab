// Rows of bytes, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/linear/cpu/row_kernels.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using Bytes = hn::CappedTag<std::uint8_t, detail::padded_k>;

void FlipRow(const unsigned char* from, std::int64_t n, unsigned char flip, unsigned char* to) {
  const Bytes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(d, flip);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, from + i), mask), d, to + i);
  for (; i < n; ++i) to[i] = static_cast<unsigned char>(from[i] ^ flip);
}

void WidenRow(const unsigned char* from, std::int64_t n, unsigned char flip, std::int16_t* to) {
  const hn::CappedTag<std::int16_t, detail::padded_k> d;
  const hn::Rebind<std::int8_t, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(narrow, static_cast<std::int8_t>(flip));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bytes = hn::LoadU(narrow, reinterpret_cast<const std::int8_t*>(from) + i);
    hn::StoreU(hn::PromoteTo(d, hn::Xor(bytes, mask)), d, to + i);
  }
  for (; i < n; ++i)
    to[i] = static_cast<std::int16_t>((from[i] ^ flip ^ detail::sign_flip) - detail::sign_flip);
  for (; i % detail::padded_k != 0; ++i) to[i] = 0;
}

std::int64_t SumRow(const unsigned char* from, std::int64_t n, unsigned char flip) {
  const Bytes d;
  const hn::Repartition<std::uint64_t, Bytes> sums;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(d, flip);
  auto all = hn::Zero(sums);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    all = hn::Add(all, hn::SumsOf8(hn::Xor(hn::LoadU(d, from + i), mask)));
  auto sum = static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(sums, all)));
  for (; i < n; ++i) sum += from[i] ^ flip;
  return sum;
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
RowKernels row_kernels<HWY_NAMESPACE::this_target>() {
  namespace hw = HWY_NAMESPACE;
  return {hw::FlipRow, hw::WidenRow, hw::SumRow};
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
namespace octavo::detail {
namespace {

void flip_row(const unsigned char* from, std::int64_t n, unsigned char flip, unsigned char* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(from[i] ^ flip);
}

void widen_row(const unsigned char* from, std::int64_t n, unsigned char flip, std::int16_t* to) {
  std::int64_t i = 0;
  for (; i < n; ++i) to[i] = static_cast<std::int16_t>((from[i] ^ flip ^ sign_flip) - sign_flip);
  for (; i % padded_k != 0; ++i) to[i] = 0;
}

std::int64_t sum_row(const unsigned char* from, std::int64_t n, unsigned char flip) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += from[i] ^ flip;
  return sum;
}

}  // namespace

template <>
RowKernels row_kernels<Target::scalar>() {
  return {flip_row, widen_row, sum_row};
}

}  // namespace octavo::detail
#endif  // HWY_ONCE
