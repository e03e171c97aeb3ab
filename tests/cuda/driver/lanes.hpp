// Helpers of the files that execute. These files are compiled once for each instruction set of the
// host, in a namespace of its own, and so is this header.
#pragma once

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda/driver/warp.hpp"

// Before a loop over lanes: rows are the same or do not overlap. (clang's word for it is an order,
// and it complains of loops that it cannot vectorise.)
#ifdef __clang__
#define STANDIN_NO_OVERLAP
#else
#define STANDIN_NO_OVERLAP _Pragma("GCC ivdep")
#endif

namespace standin::STANDIN_TARGET {

// All bits of a predicate are the same.
struct Pred {
  u32 bits;
};

template <class T>
[[gnu::always_inline]] inline T* row(Warp& w, Ref ref) {
  return reinterpret_cast<T*>(w.base[ref & 1] + (ref & ~Ref{1}));
}

template <class T>
struct Lane {
  [[gnu::always_inline]] static T get(T v) { return v; }
  [[gnu::always_inline]] static T put(T v) { return v; }
};
template <>
struct Lane<Pred> {
  [[gnu::always_inline]] static bool get(Pred p) { return p.bits != 0; }
  [[gnu::always_inline]] static Pred put(bool b) { return {b ? 0xffffffffu : 0u}; }
};

// What was computed for all lanes goes to those that are active.
template <class T>
[[gnu::noinline]] void blend(T* d, const T* computed, const u32* lanes) {
  STANDIN_NO_OVERLAP
  for (u32 l = 0; l < lane_count; ++l) d[l] = lanes[l] != 0 ? computed[l] : d[l];
}

// Arithmetic in f64 is counted: a GPU has few units for it.
template <class... T>
[[gnu::always_inline]] inline void count_double(Warp& w) {
  if constexpr ((std::is_same_v<T, double> || ...)) ++w.block->counters->double_instructions;
}

// Op::f for each lane, of all lanes at once. Rows are the same or do not overlap.
template <class Op, class D, class... S>
struct Each {
  template <std::size_t... I>
  [[gnu::always_inline]] static void go(Warp& w, const Inst& i, std::index_sequence<I...>) {
    using Bits =
        std::conditional_t<sizeof(D) == 2, u16, std::conditional_t<sizeof(D) == 4, u32, u64>>;
    alignas(64) D computed[lane_count];
    const bool all = w.mask == all_lanes;
    D* d = all ? row<D>(w, i.ref[0]) : computed;
    auto sources = std::tuple<const S*...>(row<const S>(w, i.ref[I + 1])...);
    STANDIN_NO_OVERLAP
    for (u32 l = 0; l < lane_count; ++l) {
      d[l] = Lane<D>::put(Op::f(Lane<S>::get(std::get<I>(sources)[l])...));
    }
    if (!all) blend(row<Bits>(w, i.ref[0]), reinterpret_cast<const Bits*>(computed), w.lanes);
  }
  static void run(Warp& w, const Inst& i) {
    count_double<D, S...>(w);
    go(w, i, std::index_sequence_for<S...>());
  }
};

// Op::f lane by lane, for what is rare: less code.
template <class Op, class D, class... S>
struct Singly {
  template <std::size_t... I>
  static void go(Warp& w, const Inst& i, std::index_sequence<I...>) {
    D* d = row<D>(w, i.ref[0]);
    auto sources = std::tuple<const S*...>(row<const S>(w, i.ref[I + 1])...);
    for (u32 left = w.mask; left != 0; left &= left - 1) {
      const u32 l = static_cast<u32>(__builtin_ctz(left));
      d[l] = Lane<D>::put(Op::f(Lane<S>::get(std::get<I>(sources)[l])...));
    }
  }
  static void run(Warp& w, const Inst& i) {
    count_double<D, S...>(w);
    go(w, i, std::index_sequence_for<S...>());
  }
};

template <class T>
constexpr char letter() {
  return std::is_same_v<T, Pred> ? 'p' : sizeof(T) == 2 ? 'h' : sizeof(T) == 4 ? 'w' : 'd';
}

// The operands of an operation, as in Operation::operands.
template <class D, class... S>
struct Letters {
  static constexpr char text[] = {static_cast<char>(letter<D>() - 32), letter<S>()..., 0};
};

void put(Operations& table, const std::string& name, Run run, const char* operands);

template <class Op, class D, class... S>
void add(Operations& table, const std::string& name) {
  put(table, name, &Each<Op, D, S...>::run, Letters<D, S...>::text);
}

template <class Op, class D, class... S>
void add_rare(Operations& table, const std::string& name) {
  put(table, name, &Singly<Op, D, S...>::run, Letters<D, S...>::text);
}

inline void set_mask(Warp& w, u32 mask) {
  w.mask = mask;
  w.active = static_cast<u32>(__builtin_popcount(mask));
  for (u32 l = 0; l < lane_count; ++l) w.lanes[l] = 0u - ((mask >> l) & 1);
}

inline u32 mask_of(const u32* pred) {
  u32 mask = 0;
  for (u32 l = 0; l < lane_count; ++l) mask |= pred[l] & (1u << l);
  return mask;
}

// Calls f(lane) for each lane of the mask.
template <class F>
[[gnu::always_inline]] inline void for_lanes(u32 mask, F&& f) {
  while (mask != 0) {
    f(static_cast<u32>(__builtin_ctz(mask)));
    mask &= mask - 1;
  }
}

// The parts of the table.
void add_integer(Operations& table);
void add_float(Operations& table);
void add_convert(Operations& table);
void add_memory(Operations& table);
void add_control(Operations& table);
void add_exchange(Operations& table);
void add_matrix(Operations& table);

// Executes one block to its end.
void run_block(Block& block, u64 seed);

}  // namespace standin::STANDIN_TARGET
