// What lanes of a warp tell each other: shfl, vote, match, redux; and packing of registers.
#include <vector>

#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {
namespace {

// Whether the lanes that the mask of a `.sync` instruction names are all here, less those that have
// exited. If not, those that are wait here, and others go on: on a device, too, lanes wait for each
// other, and a compiler may lay out a branch so that they come at different times. A fault if
// nobody is left who could come.
bool all_here(Warp& w, const Inst& i, const u32* members, const char* name) {
  const u32 first = members[__builtin_ctz(w.mask)];
  bool same = true;
  for_lanes(w.mask, [&](u32 l) { same = same && members[l] == first; });
  const u32 wanted = first & w.live;
  const u32 pc = w.pc - 1;
  u32 here = w.mask;
  for (const Group& group : w.waiting)
    if (group.pc == pc) here |= group.mask;
  if (same && here == wanted) {
    std::erase_if(w.waiting, [&](const Group& group) { return group.pc == pc; });
    set_mask(w, here);
    return true;
  }
  if (!same || (here & ~wanted) != 0 || i.guard != 0 || w.groups.empty()) {
    char text[160];
    std::snprintf(text, sizeof text, "%s with the mask 0x%08x, executed by the lanes 0x%08x", name,
                  first, here);
    fault(launch_failed, text, __builtin_ctz(w.mask));
  }
  w.waiting.push_back({pc, w.mask});
  w.pc = w.groups.back().pc;
  set_mask(w, w.groups.back().mask);
  w.groups.pop_back();
  w.limit = w.groups.empty() ? 0xffffffffu : w.groups.back().pc;
  return false;
}

enum class Shuffle : u8 { up, down, bfly, idx };

// d, a, b, c, members; the form with a predicate has it behind d.
template <Shuffle S, bool HasPred>
void shfl(Warp& w, const Inst& i) {
  constexpr int at = HasPred ? 1 : 0;
  const Ref* list = i.list;
  const u32* a = row<const u32>(w, list[at + 1]);
  const u32* b = row<const u32>(w, list[at + 2]);
  const u32* c = row<const u32>(w, list[at + 3]);
  if (!all_here(w, i, row<const u32>(w, list[at + 4]), "shfl.sync")) return;
  u32 from[lane_count];
  u32 inside[lane_count];
  u32 missing = 0;
  for (u32 l = 0; l < lane_count; ++l) {
    const u32 bval = b[l] & 0x1f;
    const u32 cval = c[l] & 0x1f;
    const u32 segment = c[l] >> 8 & 0x1f;
    const u32 max_lane = (l & segment) | (cval & ~segment);
    // (Signed, as the lane may be below 0 or above 31.)
    const s32 j = static_cast<s32>(S == Shuffle::up     ? l - bval
                                   : S == Shuffle::down ? l + bval
                                   : S == Shuffle::bfly ? l ^ bval
                                                        : (l & segment) | (bval & ~segment));
    const bool p =
        S == Shuffle::up ? j >= static_cast<s32>(max_lane) : j <= static_cast<s32>(max_lane);
    from[l] = p ? static_cast<u32>(j) & 31 : l;
    inside[l] = p ? 0xffffffffu : 0u;
    missing |= ~(w.mask >> from[l]) & 1 & w.lanes[l];
  }
  if (missing != 0) {
    for_lanes(w.mask, [&](u32 l) {
      if ((w.mask >> from[l] & 1) != 0) return;
      fault(launch_failed,
            "shfl.sync reads from lane " + std::to_string(from[l]) + ", which is not there",
            static_cast<int>(l));
    });
  }
  u32 result[lane_count];
  for (u32 l = 0; l < lane_count; ++l) result[l] = a[from[l]];
  blend(row<u32>(w, list[0]), result, w.lanes);
  if constexpr (HasPred) blend(row<u32>(w, list[1]), inside, w.lanes);
}

enum class Vote : u8 { ballot, all, any, uni };

// d, predicate, members
template <Vote V>
void vote(Warp& w, const Inst& i) {
  if (!all_here(w, i, row<const u32>(w, i.ref[2]), "vote.sync")) return;
  const u32 on = mask_of(row<const u32>(w, i.ref[1])) & w.mask;
  const bool result = V == Vote::all   ? on == w.mask
                      : V == Vote::any ? on != 0
                                       : on == 0 || on == w.mask;
  const u32 value = V == Vote::ballot ? on : result ? 0xffffffffu : 0u;
  u32* d = row<u32>(w, i.ref[0]);
  for_lanes(w.mask, [&](u32 l) { d[l] = value; });
}

void activemask(Warp& w, const Inst& i) {
  u32* d = row<u32>(w, i.ref[0]);
  for_lanes(w.mask, [&](u32 l) { d[l] = w.mask; });
}

template <class T>
void match_any(Warp& w, const Inst& i) {
  if (!all_here(w, i, row<const u32>(w, i.ref[2]), "match.any.sync")) return;
  const T* a = row<const T>(w, i.ref[1]);
  u32 result[lane_count];
  for_lanes(w.mask, [&](u32 l) {
    result[l] = 0;
    for_lanes(w.mask, [&](u32 k) { result[l] |= a[k] == a[l] ? 1u << k : 0u; });
  });
  u32* d = row<u32>(w, i.ref[0]);
  for_lanes(w.mask, [&](u32 l) { d[l] = result[l]; });
}

struct RAdd {
  template <class T>
  static T f(T a, T b) {
    return a + b;
  }
};
struct RMin {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct RMax {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
struct RAnd {
  template <class T>
  static T f(T a, T b) {
    return a & b;
  }
};
struct ROr {
  template <class T>
  static T f(T a, T b) {
    return a | b;
  }
};
struct RXor {
  template <class T>
  static T f(T a, T b) {
    return a ^ b;
  }
};

template <class Op, class T>
void redux(Warp& w, const Inst& i) {
  if (!all_here(w, i, row<const u32>(w, i.ref[2]), "redux.sync")) return;
  const T* a = row<const T>(w, i.ref[1]);
  bool first = true;
  T r{};
  for_lanes(w.mask, [&](u32 l) {
    r = first ? a[l] : Op::f(r, a[l]);
    first = false;
  });
  T* d = row<T>(w, i.ref[0]);
  for_lanes(w.mask, [&](u32 l) { d[l] = r; });
}

void warpsync(Warp& w, const Inst& i) {
  if (!all_here(w, i, row<const u32>(w, i.ref[0]), "bar.warp.sync")) return;
}

// mov.b64 d, {a, b} and so on: the first is the lowest.
template <class Wide, class Part, int N>
void pack(Warp& w, const Inst& i) {
  Wide r[lane_count];
  for (u32 l = 0; l < lane_count; ++l) r[l] = 0;
  for (int n = 0; n < N; ++n) {
    const Part* part = row<const Part>(w, i.ref[n + 1]);
    for (u32 l = 0; l < lane_count; ++l)
      r[l] |= static_cast<Wide>(Wide{part[l]} << (8 * sizeof(Part) * n));
  }
  Wide* d = row<Wide>(w, i.ref[0]);
  for (u32 l = 0; l < lane_count; ++l) d[l] = w.lanes[l] != 0 ? r[l] : d[l];
}

template <class Wide, class Part, int N>
void unpack(Warp& w, const Inst& i) {
  Wide a[lane_count];
  std::memcpy(a, row<const Wide>(w, i.ref[N]), sizeof a);
  for (int n = 0; n < N; ++n) {
    Part* d = row<Part>(w, i.ref[n]);
    for (u32 l = 0; l < lane_count; ++l) {
      const Part v = static_cast<Part>(a[l] >> (8 * sizeof(Part) * n));
      d[l] = w.lanes[l] != 0 ? v : d[l];
    }
  }
}

template <Shuffle S>
void add_shfl(Operations& t, const std::string& name) {
  t["shfl.sync." + name + ".b32"] = {&shfl<S, false>, "Wwwww"};
  t["shfl.sync." + name + ".b32|p"] = {&shfl<S, true>, "WPwwww"};
}

}  // namespace

void add_exchange(Operations& t) {
  add_shfl<Shuffle::up>(t, "up");
  add_shfl<Shuffle::down>(t, "down");
  add_shfl<Shuffle::bfly>(t, "bfly");
  add_shfl<Shuffle::idx>(t, "idx");
  t["vote.sync.ballot.b32"] = {&vote<Vote::ballot>, "Wpw"};
  t["vote.sync.all.pred"] = {&vote<Vote::all>, "Ppw"};
  t["vote.sync.any.pred"] = {&vote<Vote::any>, "Ppw"};
  t["vote.sync.uni.pred"] = {&vote<Vote::uni>, "Ppw"};
  t["activemask.b32"] = {&activemask, "W"};
  t["match.any.sync.b32"] = {&match_any<u32>, "Www"};
  t["match.any.sync.b64"] = {&match_any<u64>, "Wdw"};
  t["redux.sync.add.u32"] = {&redux<RAdd, u32>, "Www"};
  t["redux.sync.add.s32"] = {&redux<RAdd, u32>, "Www"};
  t["redux.sync.min.u32"] = {&redux<RMin, u32>, "Www"};
  t["redux.sync.min.s32"] = {&redux<RMin, s32>, "Www"};
  t["redux.sync.max.u32"] = {&redux<RMax, u32>, "Www"};
  t["redux.sync.max.s32"] = {&redux<RMax, s32>, "Www"};
  t["redux.sync.and.b32"] = {&redux<RAnd, u32>, "Www"};
  t["redux.sync.or.b32"] = {&redux<ROr, u32>, "Www"};
  t["redux.sync.xor.b32"] = {&redux<RXor, u32>, "Www"};
  t["bar.warp.sync"] = {&warpsync, "w"};
  t["mov.b32/pack2"] = {&pack<u32, u16, 2>, "W{hh}"};
  t["mov.b64/pack2"] = {&pack<u64, u32, 2>, "D{ww}"};
  t["mov.b64/pack4"] = {&pack<u64, u16, 4>, "D{hhhh}"};
  t["mov.b32/unpack2"] = {&unpack<u32, u16, 2>, "{HH}w"};
  t["mov.b64/unpack2"] = {&unpack<u64, u32, 2>, "{WW}d"};
  t["mov.b64/unpack4"] = {&unpack<u64, u16, 4>, "{HHHH}d"};
}

}  // namespace standin::STANDIN_TARGET
