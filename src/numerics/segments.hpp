// Sums of floats, whose order is part of the result: cut in segments, each added up from +0 in
// ascending order, and the segments added as a tree.
//
//     y = ((y0 + y1) + (y2 + y3)) + ((y4 + y5) + (y6 + y7))          of eight
//
// A segment is at least 512 long, so the tree costs next to nothing; and work on one sum can be
// shared out by segments.
#pragma once

#include <cstdint>

namespace octavo::numerics {

inline constexpr int max_segments = 8;

/// How many: the largest power of two that is at most k / 512, from 1 to max_segments.
constexpr int segments_of(std::int64_t k) {
  int count = 1;
  while (count < max_segments && k / 512 >= 2 * std::int64_t{count}) count *= 2;
  return count;
}

/// Segment j of `length` terms begins here, and ends where the next one does.
constexpr std::int64_t segment_begin(std::int64_t length, int segments, int j) {
  // (length * j / segments, without overflow; segments is a power of two.)
  return length / segments * j + length % segments * j / segments;
}

/// How often the sum of segment j is added to one before it that waits, for the tree to grow: every
/// second segment once, every fourth twice.
constexpr int merges_after(int j) {
  int merges = 0;
  for (auto full = static_cast<unsigned>(j); (full & 1U) != 0; full >>= 1U) ++merges;
  return merges;
}

/// Adds the sums of segments, one after another, as the tree.
template <class C>
class SegmentTree {
 public:
  /// After the last one, `result` is the sum.
  void add(C sum) {
    for (int i = merges_after(count_++); i > 0; --i) sum = pending_[--levels_] + sum;
    pending_[levels_++] = sum;
  }
  [[nodiscard]] C result() const { return pending_[0]; }

 private:
  C pending_[4] = {};
  int levels_ = 0;
  int count_ = 0;
};

}  // namespace octavo::numerics
