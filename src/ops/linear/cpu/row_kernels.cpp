// Rows of bytes, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

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

// Sums of eight bytes each, which vectors find, and then of those in a group: of a vector for each
// group most would be lost on short ones.
void SumGroups(const unsigned char* from, std::int64_t length, std::int64_t groups,
               unsigned char flip, std::int64_t off, std::int32_t* to, std::int64_t stride) {
  constexpr std::int64_t most = 512;
  if (length % 8 != 0 || length > most) {
    for (; groups > 0; --groups, from += length, to += stride)
      *to = static_cast<std::int32_t>(SumRow(from, length, flip) - off);
    return;
  }
  const Bytes d;
  const hn::Repartition<std::uint64_t, Bytes> sums;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(d, flip);
  std::uint64_t found[most / 8];
  while (groups > 0) {
    const std::int64_t together = HWY_MIN(groups, most / length);
    const std::int64_t n = together * length;
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::SumsOf8(hn::Xor(hn::LoadU(d, from + i), mask)), sums, found + i / 8);
    for (; i < n; i += 8) {
      std::uint64_t sum = 0;
      for (std::int64_t j = 0; j < 8; ++j) sum += static_cast<unsigned char>(from[i + j] ^ flip);
      found[i / 8] = sum;
    }
    const std::uint64_t* at = found;
    for (std::int64_t g = 0; g < together; ++g, to += stride) {
      std::uint64_t sum = 0;
      for (std::int64_t j = 0; j < length / 8; ++j) sum += *at++;
      *to = static_cast<std::int32_t>(static_cast<std::int64_t>(sum) - off);
    }
    groups -= together;
    from += n;
  }
}

// Four rows by four steps at a time. Where the rows are no multiple of four, some are written
// twice.
void InterleaveRows(const unsigned char* const* rows, std::int64_t count, std::int64_t n,
                    unsigned char flip, unsigned char* to) {
  const hn::CappedTag<std::uint8_t, 16> d;
  const hn::Repartition<std::uint32_t, decltype(d)> steps;
  const hn::Repartition<std::uint64_t, decltype(d)> pairs;
  const auto mask = hn::Set(d, flip);
  const std::int64_t stride = count * 4;
  std::int64_t i = 0;
  if (count >= 4)
    for (; i + 16 <= n; i += 16, to += 4 * stride)
      for (std::int64_t next = 0; next < count; next += 4) {
        const std::int64_t r = HWY_MIN(next, count - 4);
        const auto load = [&](std::int64_t row) {
          return hn::BitCast(steps, hn::Xor(hn::LoadU(d, rows[r + row] + i), mask));
        };
        const auto row0 = load(0);
        const auto row1 = load(1);
        const auto row2 = load(2);
        const auto row3 = load(3);
        const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(steps, row0, row1));
        const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(steps, row2, row3));
        const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(steps, row0, row1));
        const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(steps, row2, row3));
        unsigned char* at = to + r * 4;
        const auto store = [&](auto v, std::int64_t step) {
          hn::StoreU(hn::BitCast(d, v), d, at + step * stride);
        };
        store(hn::InterleaveLower(pairs, low01, low23), 0);
        store(hn::InterleaveUpper(pairs, low01, low23), 1);
        store(hn::InterleaveLower(pairs, high01, high23), 2);
        store(hn::InterleaveUpper(pairs, high01, high23), 3);
      }
  const std::uint32_t flips = flip * 0x01010101U;
  for (; i + 4 <= n; i += 4, to += stride)
    for (std::int64_t r = 0; r < count; ++r) {
      std::uint32_t four = 0;
      std::memcpy(&four, rows[r] + i, sizeof four);
      four ^= flips;
      std::memcpy(to + r * 4, &four, sizeof four);
    }
  if (i == n) return;
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t j = 0; j < 4; ++j)
      to[r * 4 + j] = i + j < n ? static_cast<unsigned char>(rows[r][i + j] ^ flip) : 0;
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
RowKernels row_kernels<HWY_NAMESPACE::this_target>() {
  namespace hw = HWY_NAMESPACE;
  return {hw::FlipRow, hw::WidenRow, hw::SumRow, hw::SumGroups, hw::InterleaveRows};
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

void sum_groups(const unsigned char* from, std::int64_t length, std::int64_t groups,
                unsigned char flip, std::int64_t off, std::int32_t* to, std::int64_t stride) {
  for (std::int64_t g = 0; g < groups; ++g)
    to[g * stride] = static_cast<std::int32_t>(sum_row(from + g * length, length, flip) - off);
}

void interleave_rows(const unsigned char* const* rows, std::int64_t count, std::int64_t n,
                     unsigned char flip, unsigned char* to) {
  for (std::int64_t i = 0; i < n; i += 4, to += count * 4)
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t j = 0; j < 4; ++j)
        to[r * 4 + j] = i + j < n ? static_cast<unsigned char>(rows[r][i + j] ^ flip) : 0;
}

}  // namespace

template <>
RowKernels row_kernels<Target::scalar>() {
  return {flip_row, widen_row, sum_row, sum_groups, interleave_rows};
}

}  // namespace octavo::detail
#endif  // HWY_ONCE
