// Loads, stores, atomic operations and conversions of addresses. An instruction finds where each
// lane's bytes are for the driver, which checks them, and then moves them.
#include <cmath>

#include "tests/cuda/driver/lanes.hpp"
#include "tests/cuda/driver/locate.hpp"

namespace standin::STANDIN_TARGET {
namespace {

template <class T>
T read(const void* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// M in memory, R in registers, N of them. (A signed byte is a number: + makes it an int.)
template <class M, class R, int N>
void load(Warp& w, const Inst& i) {
  Located at;
  locate(w, i, i.ref[N], 0, sizeof(M) * N, Access::read, at);
  R* rows[N];
  for (int n = 0; n < N; ++n) rows[n] = row<R>(w, i.ref[n]);
  if constexpr (N == 1 && sizeof(M) == sizeof(R)) {
    if (at.contiguous) {
      std::memcpy(rows[0], at_address<const void>(at.host[0]), lane_count * sizeof(M));
      return;
    }
  }
  if (at.uniform) {
    for (int n = 0; n < N; ++n) {
      const R v = static_cast<R>(+read<M>(at_address<const M>(at.host[0]) + n));
      for (u32 l = 0; l < lane_count; ++l) rows[n][l] = v;
    }
    return;
  }
  for_lanes(w.mask, [&](u32 l) {
    const u8* from = at_address<const u8>(at.host[l]);
    for (int n = 0; n < N; ++n) rows[n][l] = static_cast<R>(+read<M>(from + n * sizeof(M)));
  });
}

template <class M, class R, int N>
void store(Warp& w, const Inst& i) {
  Located at;
  locate(w, i, i.ref[0], 0, sizeof(M) * N, Access::write, at);
  const R* rows[N];
  for (int n = 0; n < N; ++n) rows[n] = row<const R>(w, i.ref[n + 1]);
  if constexpr (N == 1 && sizeof(M) == sizeof(R)) {
    if (at.contiguous) {
      std::memcpy(at_address<void>(at.host[0]), rows[0], lane_count * sizeof(M));
      return;
    }
  }
  for_lanes(w.mask, [&](u32 l) {
    u8* to = at_address<u8>(at.host[l]);
    for (int n = 0; n < N; ++n) {
      const M v = static_cast<M>(rows[n][l]);
      std::memcpy(to + n * sizeof(M), &v, sizeof(M));
    }
  });
}

// ---- atomic operations: ref 0 the old value (atom), then the address and one or two operands ----

struct AtomAdd {
  template <class T>
  static T f(T a, T b, T) {
    return static_cast<T>(a + b);
  }
};
struct AtomMin {
  template <class T>
  static T f(T a, T b, T) {
    return a < b ? a : b;
  }
};
struct AtomMax {
  template <class T>
  static T f(T a, T b, T) {
    return a > b ? a : b;
  }
};
struct AtomAnd {
  template <class T>
  static T f(T a, T b, T) {
    return a & b;
  }
};
struct AtomOr {
  template <class T>
  static T f(T a, T b, T) {
    return a | b;
  }
};
struct AtomXor {
  template <class T>
  static T f(T a, T b, T) {
    return a ^ b;
  }
};
struct AtomExch {
  template <class T>
  static T f(T, T b, T) {
    return b;
  }
};
struct AtomCas {
  template <class T>
  static T f(T a, T b, T c) {
    return a == b ? c : a;
  }
};
struct AtomInc {
  template <class T>
  static T f(T a, T b, T) {
    return a >= b ? T{0} : a + 1;
  }
};
struct AtomDec {
  template <class T>
  static T f(T a, T b, T) {
    return a == 0 || a > b ? b : a - 1;
  }
};

template <class Op, class T, bool Returns, int Operands>
void atomic(Warp& w, const Inst& i) {
  constexpr int first = Returns ? 1 : 0;
  Located at;
  locate(w, i, i.ref[first], 0, sizeof(T), Access::atomic, at);
  const T* b = row<const T>(w, i.ref[first + 1]);
  const T* c = row<const T>(w, i.ref[first + Operands]);
  T* d = Returns ? row<T>(w, i.ref[0]) : nullptr;
  w.block->counters->atomics += w.active;
  for_lanes(w.mask, [&](u32 l) {
    void* p = at_address<void>(at.host[l]);
    const T old = read<T>(p);
    T now = Op::f(old, b[l], c[l]);
    if constexpr (std::is_same_v<T, float>) {
      if (std::isnan(now)) {
        const u32 canonical = 0x7fffffffu;
        std::memcpy(&now, &canonical, 4);
      }
    }
    std::memcpy(p, &now, sizeof now);
    if (Returns) d[l] = old;
  });
}

template <class Op, class T>
void add_atomic(Operations& t, const std::string& name, int operands = 1) {
  const char type = letter<T>();
  std::string sources(static_cast<std::size_t>(operands), type);
  const std::string atom = static_cast<char>(type - 32) + ("[" + sources);
  if (operands == 1) {
    t["atom." + name] = {&atomic<Op, T, true, 1>, atom};
    t["red." + name] = {&atomic<Op, T, false, 1>, "[" + sources};
  } else {
    t["atom." + name] = {&atomic<Op, T, true, 2>, atom};
  }
}

// ---- addresses ----

template <Space S>
u64 window() {
  return S == Space::shared     ? windows.shared
         : S == Space::local    ? windows.local
         : S == Space::constant ? windows.constant
                                : 0;
}
template <Space S>
struct ToGeneric {
  static u64 f(u64 a) { return a + window<S>(); }
};
template <Space S>
struct FromGeneric {
  static u64 f(u64 a) { return a - window<S>(); }
};
template <Space S>
struct IsSpace {
  static bool f(u64 a) {
    const bool inside[] = {a - windows.shared < window_bytes, a - windows.local < window_bytes,
                           a - windows.constant < window_bytes};
    return S == Space::shared     ? inside[0]
           : S == Space::local    ? inside[1]
           : S == Space::constant ? inside[2]
                                  : !(inside[0] || inside[1] || inside[2]);
  }
};

template <Space S>
void add_space(Operations& t, const std::string& name) {
  add<ToGeneric<S>, u64, u64>(t, "cvta." + name + ".u64");
  add<FromGeneric<S>, u64, u64>(t, "cvta.to." + name + ".u64");
  add<IsSpace<S>, Pred, u64>(t, "isspacep." + name);
}

template <class M, class R>
void add_move(Operations& t, const std::string& type) {
  const char r = letter<R>();
  const std::string in(1, r);
  const std::string out(1, static_cast<char>(r - 32));
  using Stored = std::conditional_t<std::is_signed_v<M>, std::make_unsigned_t<M>, M>;
  t["ld." + type + "/" + r] = {&load<M, R, 1>, out + "["};
  t["ld.v2." + type + "/" + r] = {&load<M, R, 2>, "{" + out + out + "}["};
  t["st." + type + "/" + r] = {&store<Stored, R, 1>, "[" + in};
  t["st.v2." + type + "/" + r] = {&store<Stored, R, 2>, "[{" + in + in + "}"};
  if constexpr (sizeof(M) <= 4) {
    t["ld.v4." + type + "/" + r] = {&load<M, R, 4>, "{" + out + out + out + out + "}["};
    t["st.v4." + type + "/" + r] = {&store<Stored, R, 4>, "[{" + in + in + in + in + "}"};
  }
}

}  // namespace

void add_memory(Operations& t) {
  for (const char* type : {"u8", "b8"}) {
    add_move<u8, u16>(t, type);
    add_move<u8, u32>(t, type);
    add_move<u8, u64>(t, type);
  }
  add_move<s8, u16>(t, "s8");
  add_move<s8, u32>(t, "s8");
  add_move<s8, u64>(t, "s8");
  for (const char* type : {"u16", "b16"}) {
    add_move<u16, u16>(t, type);
    add_move<u16, u32>(t, type);
    add_move<u16, u64>(t, type);
  }
  add_move<u16, u16>(t, "f16");
  add_move<s16, u16>(t, "s16");
  add_move<s16, u32>(t, "s16");
  add_move<s16, u64>(t, "s16");
  for (const char* type : {"u32", "b32"}) {
    add_move<u32, u32>(t, type);
    add_move<u32, u64>(t, type);
  }
  add_move<u32, u32>(t, "f32");
  add_move<u32, u32>(t, "s32");
  add_move<s32, u64>(t, "s32");
  for (const char* type : {"u64", "b64", "s64", "f64"}) add_move<u64, u64>(t, type);

  for (const char* type : {"u32", "s32"}) add_atomic<AtomAdd, u32>(t, std::string("add.") + type);
  add_atomic<AtomAdd, u64>(t, "add.u64");
  add_atomic<AtomAdd, float>(t, "add.f32");
  add_atomic<AtomAdd, double>(t, "add.f64");
  add_atomic<AtomMin, u32>(t, "min.u32");
  add_atomic<AtomMin, s32>(t, "min.s32");
  add_atomic<AtomMin, u64>(t, "min.u64");
  add_atomic<AtomMin, s64>(t, "min.s64");
  add_atomic<AtomMax, u32>(t, "max.u32");
  add_atomic<AtomMax, s32>(t, "max.s32");
  add_atomic<AtomMax, u64>(t, "max.u64");
  add_atomic<AtomMax, s64>(t, "max.s64");
  add_atomic<AtomAnd, u32>(t, "and.b32");
  add_atomic<AtomAnd, u64>(t, "and.b64");
  add_atomic<AtomOr, u32>(t, "or.b32");
  add_atomic<AtomOr, u64>(t, "or.b64");
  add_atomic<AtomXor, u32>(t, "xor.b32");
  add_atomic<AtomXor, u64>(t, "xor.b64");
  add_atomic<AtomExch, u32>(t, "exch.b32");
  add_atomic<AtomExch, u64>(t, "exch.b64");
  add_atomic<AtomInc, u32>(t, "inc.u32");
  add_atomic<AtomDec, u32>(t, "dec.u32");
  add_atomic<AtomCas, u32>(t, "cas.b32", 2);
  add_atomic<AtomCas, u64>(t, "cas.b64", 2);

  add_space<Space::global>(t, "global");
  add_space<Space::shared>(t, "shared");
  add_space<Space::local>(t, "local");
  add_space<Space::constant>(t, "const");
}

}  // namespace standin::STANDIN_TARGET
