#include "tests/cuda/driver/count.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace standin {
namespace {

constexpr u32 sector = 32;

// Sectors that a launch reads and writes, as bits of pages of 64 sectors.
std::unordered_map<u64, u64> touched[2];

void touch(u64 first, u64 last, bool writes) {
  for (u64 s = first; s <= last; ++s) touched[writes ? 1 : 0][s / 64] |= u64{1} << (s % 64);
}

}  // namespace

void begin_counting() {
  touched[0].clear();
  touched[1].clear();
}

void end_counting(Counters& counters) {
  u64 sums[2] = {};
  for (int k = 0; k < 2; ++k) {
    for (const auto& [page, bits] : touched[k])
      sums[k] += static_cast<u64>(std::popcount(bits)) * sector;
  }
  counters.touched_bytes_read += sums[0];
  counters.touched_bytes_written += sums[1];
}

void count_global(Block& block, const u64* address, u32 mask, u32 bytes, bool writes) {
  Counters& c = *block.counters;
  ++c.global_requests;
  const u64 lanes = static_cast<u64>(std::popcount(mask));
  (writes ? c.global_bytes_written : c.global_bytes_read) += lanes * bytes;
  u64 sorted[lane_count];
  u32 n = 0;
  for (u32 left = mask; left != 0; left &= left - 1) sorted[n++] = address[std::countr_zero(left)];
  if (!std::is_sorted(sorted, sorted + n)) std::sort(sorted, sorted + n);
  u64 sectors = 0;
  u64 distinct = 0;
  u64 next_sector = 0;  // the first that is not counted yet
  u64 next_byte = 0;
  for (u32 i = 0; i < n; ++i) {
    const u64 first = std::max(sorted[i] / sector, next_sector);
    const u64 last = (sorted[i] + bytes - 1) / sector;
    if (first <= last) {
      sectors += last - first + 1;
      next_sector = last + 1;
      touch(first, last, writes);
    }
    const u64 begin = std::max(sorted[i], next_byte);
    const u64 end = sorted[i] + bytes;
    if (begin < end) {
      distinct += end - begin;
      next_byte = end;
    }
  }
  c.sectors += sectors;
  c.ideal_sectors += (distinct + sector - 1) / sector;
}

// 32 banks of 4 bytes. Lanes that want the same word are served together; 8 bytes a lane go by half
// warps, 16 by quarters.
void count_shared(Block& block, const u64* offset, u32 mask, u32 bytes) {
  Counters& c = *block.counters;
  ++c.shared_requests;
  const u32 lanes = bytes <= 4 ? 32 : 128 / bytes;
  for (u32 first = 0; first < lane_count; first += lanes) {
    u64 words[lane_count * 4];
    u32 n = 0;
    for (u32 l = first; l < first + lanes; ++l) {
      if ((mask >> l & 1) == 0) continue;
      for (u64 word = offset[l] / 4; word <= (offset[l] + bytes - 1) / 4; ++word) words[n++] = word;
    }
    std::sort(words, words + n);
    n = static_cast<u32>(std::unique(words, words + n) - words);
    u32 wanted[32] = {};
    u32 most = 0;
    for (u32 i = 0; i < n; ++i) most = std::max(most, ++wanted[words[i] % 32]);
    c.shared_conflicts += most > 1 ? most - 1 : 0;
  }
}

}  // namespace standin
