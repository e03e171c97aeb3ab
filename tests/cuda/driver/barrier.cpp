// Barriers, and what they order: each warp knows up to which generation of the block the accesses
// of each other warp are before its own. A barrier that is complete begins a generation; those who
// took part in it know of each other what each of them knew. (A barrier of the whole block makes
// all know everything; a named barrier of some warps does not.)
#include <algorithm>
#include <bit>

#include "tests/cuda/driver/warp.hpp"

namespace standin {
namespace {

std::string names(u32 warps) {
  std::string text;
  for (u32 v = 0; v < 32; ++v) {
    if ((warps >> v & 1) != 0) text += (text.empty() ? "" : ", ") + std::to_string(v);
  }
  return text;
}

void complete(Block& block, Barrier& b) {
  ++block.generation;
  const std::size_t count = block.warps.size();
  std::vector<u32> seen(count, 0);
  for (u32 left = b.warps; left != 0; left &= left - 1) {
    const Warp& v = block.warps[static_cast<u32>(std::countr_zero(left))];
    for (std::size_t k = 0; k < count; ++k) seen[k] = std::max(seen[k], v.seen[k]);
  }
  for (u32 left = b.warps; left != 0; left &= left - 1) {
    seen[static_cast<u32>(std::countr_zero(left))] = block.generation;
  }
  for (u32 left = b.waiting; left != 0; left &= left - 1) {
    Warp& v = block.warps[static_cast<u32>(std::countr_zero(left))];
    v.seen = seen;
    v.state = State::ready;
    const auto kind = static_cast<Reduction>(v.reduction);
    if (kind != Reduction::none) {
      u32* row = reinterpret_cast<u32*>(v.base[0] + v.barrier_result);
      const bool on = kind == Reduction::all ? b.count == b.arrived : b.count != 0;
      const u32 value = kind == Reduction::count ? b.count : on ? 0xffffffffu : 0u;
      for (u32 l = 0; l < lane_count; ++l) row[l] = value;
    }
  }
  b = Barrier{};
}

}  // namespace

void arrive(Warp& w, u32 id, u32 threads, bool waits, Reduction kind, Ref result, u32 count,
            u32 line) {
  Block& block = *w.block;
  if (id >= 16) fault(launch_failed, "the barrier " + std::to_string(id));
  if (threads % lane_count != 0 || threads > (block.threads + 31) / 32 * 32) {
    fault(launch_failed, "a barrier of " + std::to_string(threads) + " threads in a block of " +
                             std::to_string(block.threads));
  }
  const u32 expected = threads != 0 ? threads : (block.threads + 31) / 32 * 32;
  Barrier& b = block.barriers[id];
  if (b.warps == 0) {
    b.expected = expected;
    b.line = line;
  } else if (b.expected != expected) {
    fault(launch_failed, "a barrier with two counts of threads: " + std::to_string(b.expected) +
                             " and " + std::to_string(expected));
  } else if (threads == 0 && b.line != line) {
    fault(launch_failed, "warps " + names(b.warps) + " wait at the barrier of line " +
                             std::to_string(b.line) + ", this one comes to another");
  }
  if ((b.warps >> w.index & 1) != 0) fault(launch_failed, "a warp comes to a barrier twice");
  b.warps |= 1u << w.index;
  b.arrived += static_cast<u32>(std::popcount(w.initial));
  b.count += count;
  w.barrier = id;
  w.reduction = static_cast<u8>(kind);
  w.barrier_result = result;
  if (waits) {
    b.waiting |= 1u << w.index;
    w.state = State::waits;
  }
  if (static_cast<u32>(std::popcount(b.warps)) * lane_count >= b.expected) complete(block, b);
}

void deadlock(Block& block) {
  u32 gone = 0;
  const Warp* waiting = nullptr;
  for (const Warp& w : block.warps) {
    if (w.state == State::done)
      gone |= 1u << w.index;
    else
      waiting = &w;
  }
  const Barrier& b = block.barriers[waiting->barrier];
  throw Fault(launch_failed, "the barrier of line " + std::to_string(b.line) +
                                 " is reached by the warps " + names(b.waiting) +
                                 " and never by the others" +
                                 (gone != 0 ? "; the warps " + names(gone) + " have ended" : ""))
      .at(*waiting);
}

}  // namespace standin
