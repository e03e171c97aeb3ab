// Branches, barriers, and the loop that executes a warp and a block.
#include <algorithm>
#include <utility>

#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {
namespace {

// A warp that branches backwards this often does not end.
constexpr u64 endless = u64{1} << 25;

u32 taken_lanes(Warp& w, Ref guard) {
  if (guard == 0) return w.mask;
  const u32 on = mask_of(row<const u32>(w, guard & ~negated));
  return ((guard & negated) != 0 ? ~on : on) & w.mask;
}

u32 limit_of(const Warp& w) { return w.groups.empty() ? 0xffffffffu : w.groups.back().pc; }

void put_group(Warp& w, Group group) {
  auto at = w.groups.end();
  while (at != w.groups.begin() && (at - 1)->pc < group.pc) --at;
  if (at != w.groups.begin() && (at - 1)->pc == group.pc)
    (at - 1)->mask |= group.mask;
  else
    w.groups.insert(at, group);
  w.limit = limit_of(w);
}

// The group with the least pc executes; groups that meet are one.
void take_least(Warp& w) {
  w.limit = limit_of(w);
  if (w.pc > w.limit) {
    put_group(w, {w.pc, w.mask});
    w.pc = w.groups.back().pc;
    set_mask(w, w.groups.back().mask);
    w.groups.pop_back();
    w.limit = limit_of(w);
  }
  if (w.pc == w.limit) {
    set_mask(w, w.mask | w.groups.back().mask);
    w.groups.pop_back();
    w.limit = limit_of(w);
  }
}

// imm is the target, ref 0 the guard.
void branch(Warp& w, const Inst& i) {
  const u32 taken = taken_lanes(w, i.ref[0]);
  const u32 target = static_cast<u32>(i.imm);
  if (taken == 0) return;
  if (target < w.pc && --w.budget < 0) {
    w.ends_turn = true;
    w.limit = 0;
  }
  if (taken == w.mask) {
    w.pc = target;
    return;
  }
  const bool turn = w.ends_turn;
  put_group(w, {std::max(w.pc, target), target > w.pc ? taken : w.mask & ~taken});
  set_mask(w, target > w.pc ? w.mask & ~taken : taken);
  w.pc = std::min(w.pc, target);
  if (turn) w.limit = 0;
}

void leave(Warp& w, const Inst& i) {
  const u32 leaving = taken_lanes(w, i.ref[0]);
  w.live &= ~leaving;
  if (leaving != w.mask) {
    set_mask(w, w.mask & ~leaving);
    return;
  }
  // (Who waits for lanes that are gone looks again.)
  if (w.groups.empty())
    for (const Group& group : std::exchange(w.waiting, {})) put_group(w, group);
  if (!w.groups.empty()) {
    w.pc = w.groups.back().pc;
    set_mask(w, w.groups.back().mask);
    w.groups.pop_back();
    w.limit = limit_of(w);
  } else {
    w.state = State::done;
    w.limit = 0;
  }
}

void trap(Warp& w, const Inst&) {
  fault(illegal_instruction, "trap", static_cast<int>(__builtin_ctz(w.mask)));
}

void nothing(Warp&, const Inst&) {}

u32 uniform(Warp& w, Ref ref, const char* what) {
  const u32* v = row<const u32>(w, ref);
  const u32 first = v[__builtin_ctz(w.mask)];
  for_lanes(w.mask, [&](u32 l) {
    if (v[l] != first)
      fault(launch_failed, std::string(what) + " differs within a warp", static_cast<int>(l));
  });
  return first;
}

void whole_warp(Warp& w, const char* name) {
  if (w.mask == w.initial) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s in divergent code: the lanes 0x%08x of 0x%08x are here",
                name, w.mask, w.initial);
  fault(launch_failed, text, __builtin_ctz(w.mask));
}

// bar.sync id {, threads} and bar.arrive id, threads
template <bool Waits, bool HasCount>
void bar(Warp& w, const Inst& i) {
  whole_warp(w, "a barrier");
  const u32 id = uniform(w, i.ref[0], "the number of a barrier");
  const u32 threads = HasCount ? uniform(w, i.ref[1], "the count of a barrier") : 0;
  arrive(w, id, threads, Waits, Reduction::none, 0, 0, i.line);
  if (w.state != State::ready) w.limit = 0;
}

// d, id, p
template <Reduction R>
void bar_red(Warp& w, const Inst& i) {
  whole_warp(w, "a barrier");
  const u32 id = uniform(w, i.ref[1], "the number of a barrier");
  const u32 on = mask_of(row<const u32>(w, i.ref[2])) & w.mask;
  arrive(w, id, 0, true, R, i.ref[0], static_cast<u32>(__builtin_popcount(on)), i.line);
  if (w.state != State::ready) w.limit = 0;
}

// Rows that say which lanes of a register are written: ref 0 is the mark, the decoder puts these
// around registers that not every path writes.
void mark_written(Warp& w, const Inst& i) {
  u32* mark = row<u32>(w, i.ref[0]);
  for (u32 l = 0; l < lane_count; ++l) mark[l] |= w.lanes[l];
  --w.warp_instructions;
  w.thread_instructions -= w.active;
}

void check_written(Warp& w, const Inst& i) {
  const u32 written = mask_of(row<const u32>(w, i.ref[0]));
  if ((w.mask & ~written) != 0) {
    fault(launch_failed, "a register is read before it is written",
          __builtin_ctz(w.mask & ~written));
  }
  --w.warp_instructions;
  w.thread_instructions -= w.active;
}

void guarded(Warp& w, const Inst& i) {
  const u32 mask = w.mask;
  const u32 on = taken_lanes(w, i.guard);
  if (on == 0) return;
  if (on == mask) {
    i.run(w, i);
    return;
  }
  set_mask(w, on);
  i.run(w, i);
  set_mask(w, mask);
}

void run_warp(Warp& w) {
  const Inst* code = w.kernel->code.data();
  u64 warp_instructions = 0;
  u64 thread_instructions = 0;
  for (;;) {
    if (w.pc >= w.limit) [[unlikely]] {
      if (w.state != State::ready) break;
      take_least(w);
      if (w.ends_turn) break;
    }
    const Inst& i = code[w.pc++];
    ++warp_instructions;
    thread_instructions += w.active;
    if (i.guard == 0) [[likely]]
      i.run(w, i);
    else
      guarded(w, i);
  }
  w.warp_instructions += warp_instructions;
  w.thread_instructions += thread_instructions;
}

u64 next_random(u64& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

void add_control(Operations& t) {
  t["bra"] = {&branch, "branch"};
  t["bra.uni"] = {&branch, "branch"};
  t["ret"] = {&leave, "leave"};
  t["ret.uni"] = {&leave, "leave"};
  t["exit"] = {&leave, "leave"};
  t["trap"] = {&trap, ""};
  for (const char* name :
       {"membar.cta", "membar.gl", "membar.sys", "fence.sc.cta", "fence.sc.gpu", "fence.sc.sys",
        "fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys"}) {
    t[name] = {&nothing, ""};
  }
  t["nanosleep.u32"] = {&nothing, "w"};
  for (const char* name :
       {"bar.sync", "barrier.sync.aligned", "bar.cta.sync", "barrier.cta.sync.aligned"}) {
    t[name + std::string("/1")] = {&bar<true, false>, "w"};
    t[name + std::string("/2")] = {&bar<true, true>, "ww"};
  }
  t["bar.arrive/2"] = {&bar<false, true>, "ww"};
  t["bar.red.popc.u32"] = {&bar_red<Reduction::count>, "Wwp"};
  t["bar.red.and.pred"] = {&bar_red<Reduction::all>, "Pwp"};
  t["bar.red.or.pred"] = {&bar_red<Reduction::any>, "Pwp"};
  t[" mark"] = {&mark_written, ""};
  t[" check"] = {&check_written, ""};
  t[" nothing"] = {&nothing, ""};
}

void run_block(Block& block, u64 seed) {
  u64 random = seed * 0x9e3779b97f4a7c15u + 1;
  u32 left = static_cast<u32>(block.warps.size());
  for (Warp& w : block.warps) set_mask(w, w.mask);
  u32 turn = 0;
  while (left != 0) {
    // The next that is ready, from a random one if there is a seed.
    const u32 count = static_cast<u32>(block.warps.size());
    if (seed != 0) turn = static_cast<u32>(next_random(random) % count);
    u32 tried = 0;
    while (tried < count && block.warps[turn].state != State::ready) {
      turn = turn + 1 == count ? 0 : turn + 1;
      ++tried;
    }
    if (tried == count) deadlock(block);
    Warp& w = block.warps[turn];
    w.budget = seed != 0 ? static_cast<s64>(next_random(random) % 64) : 1 << 16;
    w.turns += static_cast<u64>(w.budget);
    w.ends_turn = false;
    w.limit = limit_of(w);
    try {
      run_warp(w);
      if (w.turns > endless) fault(launch_failed, "a loop does not end");
    } catch (const Fault& f) {
      block.warps[turn].state = State::done;
      throw f.at(w);
    }
    if (w.state == State::done) --left;
  }
}

}  // namespace standin::STANDIN_TARGET
