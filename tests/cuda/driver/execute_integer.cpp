// Integer arithmetic, logic, comparisons, selections and moves.
#include <tuple>

#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Twice = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 2, s32, std::conditional_t<sizeof(T) == 4, s64, __int128>>,
    std::conditional_t<sizeof(T) == 2, u32,
                       std::conditional_t<sizeof(T) == 4, u64, unsigned __int128>>>;
template <class T>
constexpr u32 bits_of = 8 * sizeof(T);

struct Move {
  template <class T>
  static T f(T a) {
    return a;
  }
};
struct Add {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
// (Products of 16 bits would be done in signed int.)
struct MulLo {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(u64{static_cast<Unsigned<T>>(a)} * u64{static_cast<Unsigned<T>>(b)});
  }
};
struct MulHi {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>((Twice<T>(a) * Twice<T>(b)) >> bits_of<T>);
  }
};
struct MulWide {
  template <class T>
  static Twice<T> f(T a, T b) {
    return static_cast<Twice<T>>(Twice<T>(a) * Twice<T>(b));
  }
};
struct MadLo {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(MulLo::f(a, b), c);
  }
};
struct MadHi {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(MulHi::f(a, b), c);
  }
};
struct MadWide {
  template <class T>
  static Twice<T> f(T a, T b, Twice<T> c) {
    return Add::f(MulWide::f(a, b), c);
  }
};
struct Neg {
  template <class T>
  static T f(T a) {
    return Sub::f(T{0}, a);
  }
};
struct Abs {
  template <class T>
  static T f(T a) {
    return a < 0 ? Neg::f(a) : a;
  }
};
struct Min {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
// A divisor of 0 gives a value that the manual leaves open; a quotient that overflows wraps.
struct Div {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Neg::f(a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Sad {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(c, a < b ? Sub::f(b, a) : Sub::f(a, b));
  }
};
struct AddSat {
  static s32 f(s32 a, s32 b) {
    const s64 r = s64{a} + b;
    return static_cast<s32>(r < -0x80000000ll  ? -0x80000000ll
                            : r > 0x7fffffffll ? 0x7fffffffll
                                               : r);
  }
};
struct SubSat {
  static s32 f(s32 a, s32 b) {
    const s64 r = s64{a} - b;
    return static_cast<s32>(r < -0x80000000ll  ? -0x80000000ll
                            : r > 0x7fffffffll ? 0x7fffffffll
                                               : r);
  }
};

struct And {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return static_cast<T>(~a);
  }
  static bool f(bool a) { return !a; }
};
struct Cnot {
  template <class T>
  static T f(T a) {
    return a == 0 ? T{1} : T{0};
  }
};
struct AndP {
  static bool f(bool a, bool b) { return a & b; }
};
struct OrP {
  static bool f(bool a, bool b) { return a | b; }
};
struct XorP {
  static bool f(bool a, bool b) { return a ^ b; }
};

// Amounts beyond the width give 0, or the sign.
struct Shl {
  template <class T>
  static T f(T a, u32 n) {
    return n >= bits_of<T> ? T{0} : static_cast<T>(a << n);
  }
};
struct Shr {
  template <class T>
  static T f(T a, u32 n) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> (n >= bits_of<T> ? bits_of<T> - 1 : n));
    else
      return n >= bits_of<T> ? T{0} : static_cast<T>(a >> n);
  }
};
u64 pair_of(u32 low, u32 high) { return u64{high} << 32 | low; }
struct ShfLWrap {
  static u32 f(u32 a, u32 b, u32 n) { return static_cast<u32>(pair_of(a, b) << (n & 31) >> 32); }
};
struct ShfRWrap {
  static u32 f(u32 a, u32 b, u32 n) { return static_cast<u32>(pair_of(a, b) >> (n & 31)); }
};
struct ShfLClamp {
  static u32 f(u32 a, u32 b, u32 n) {
    return n >= 32 ? a : static_cast<u32>(pair_of(a, b) << n >> 32);
  }
};
struct ShfRClamp {
  static u32 f(u32 a, u32 b, u32 n) { return n >= 32 ? b : static_cast<u32>(pair_of(a, b) >> n); }
};

struct Popc {
  template <class T>
  static u32 f(T a) {
    return static_cast<u32>(__builtin_popcountll(a));
  }
};
struct Clz {
  template <class T>
  static u32 f(T a) {
    return a == 0 ? bits_of<T> : static_cast<u32>(__builtin_clzll(a)) - (64 - bits_of<T>);
  }
};
struct Brev {
  template <class T>
  static T f(T a) {
    T r = 0;
    for (u32 i = 0; i < bits_of<T>; ++i) r = static_cast<T>(r << 1 | (a >> i & 1));
    return r;
  }
};
// The highest bit that differs from the sign.
struct Bfind {
  template <class T>
  static u32 f(T a) {
    const auto u = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
    return u == 0 ? 0xffffffffu : 63 - static_cast<u32>(__builtin_clzll(u));
  }
};
struct BfindShift {
  template <class T>
  static u32 f(T a) {
    const u32 r = Bfind::f(a);
    return r == 0xffffffffu ? r : bits_of<T> - 1 - r;
  }
};
struct Bfe {
  template <class T>
  static T f(T a, u32 position, u32 length) {
    using U = Unsigned<T>;
    constexpr u32 bits = bits_of<T>;
    const u32 pos = position & 0xff;
    const u32 len = length & 0xff;
    U sign = 0;
    if constexpr (std::is_signed_v<T>) {
      if (len != 0)
        sign = static_cast<U>(
            static_cast<U>(a) >> (pos + len - 1 < bits ? pos + len - 1 : bits - 1) & 1);
    }
    const U field = pos >= bits ? U{0} : static_cast<U>(static_cast<U>(a) >> pos);
    const u32 kept = pos >= bits ? 0 : (len < bits - pos ? len : bits - pos);
    const U low = kept >= bits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << kept) - 1);
    return static_cast<T>(static_cast<U>((field & low) | (sign != 0 ? ~low : U{0})));
  }
};
struct Bfi {
  template <class T>
  static T f(T a, T b, u32 position, u32 length) {
    constexpr u32 bits = bits_of<T>;
    const u32 pos = position & 0xff;
    const u32 len = length & 0xff;
    if (pos >= bits || len == 0) return b;
    const T ones = len >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << len) - 1);
    const T field = static_cast<T>(ones << pos);
    return static_cast<T>((b & ~field) | (static_cast<T>(a << pos) & field));
  }
};
struct Prmt {
  static u32 f(u32 a, u32 b, u32 selector) {
    const u64 bytes = pair_of(a, b);
    u32 r = 0;
    for (u32 i = 0; i < 4; ++i) {
      const u32 s = selector >> (4 * i) & 0xf;
      u32 byte = static_cast<u32>(bytes >> (8 * (s & 7))) & 0xff;
      byte = (s & 8) != 0 ? ((byte & 0x80) != 0 ? 0xffu : 0u) : byte;
      r |= byte << (8 * i);
    }
    return r;
  }
};
struct Lop3 {
  static u32 f(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (u32 i = 0; i < 8; ++i) {
      const u32 on = 0u - (table >> i & 1);
      r |= on & ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
    }
    return r;
  }
};
template <class A, class B>
struct Dp4a {
  static u32 f(u32 a, u32 b, u32 c) {
    for (u32 i = 0; i < 4; ++i) {
      c += static_cast<u32>(s32{static_cast<A>(a >> (8 * i))} * s32{static_cast<B>(b >> (8 * i))});
    }
    return c;
  }
};
template <class A, class B, int High>
struct Dp2a {
  static u32 f(u32 a, u32 b, u32 c) {
    for (u32 i = 0; i < 2; ++i) {
      c += static_cast<u32>(s32{static_cast<A>(a >> (16 * i))} *
                            s32{static_cast<B>(b >> (8 * i + 16 * High))});
    }
    return c;
  }
};

struct Eq {
  template <class T>
  static bool f(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static bool f(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  static bool f(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static bool f(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  static bool f(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  static bool f(T a, T b) {
    return a >= b;
  }
};
template <class C, class B>
struct With {
  template <class T>
  static bool f(T a, T b, bool c) {
    return B::f(C::f(a, b), c);
  }
};
template <class C>
struct Set {
  template <class T>
  static u32 f(T a, T b) {
    return C::f(a, b) ? 0xffffffffu : 0u;
  }
};

struct Selp {
  template <class T>
  static T f(T a, T b, bool p) {
    return p ? a : b;
  }
};
struct Slct {
  template <class T>
  static T f(T a, T b, s32 c) {
    return c >= 0 ? a : b;
  }
};
struct SlctF {
  template <class T>
  static T f(T a, T b, float c) {
    return c >= 0 ? a : b;
  }
};

template <class C, class T>
void comparison(Operations& t, const std::string& compare, const std::string& type) {
  add<C, Pred, T, T>(t, "setp." + compare + "." + type);
  add_rare<With<C, AndP>, Pred, T, T, Pred>(t, "setp." + compare + ".and." + type);
  add_rare<With<C, OrP>, Pred, T, T, Pred>(t, "setp." + compare + ".or." + type);
  add_rare<With<C, XorP>, Pred, T, T, Pred>(t, "setp." + compare + ".xor." + type);
  add_rare<Set<C>, u32, T, T>(t, "set." + compare + ".u32." + type);
  add_rare<Set<C>, u32, T, T>(t, "set." + compare + ".s32." + type);
}

template <class T>
void typed(Operations& t, const std::string& type) {
  constexpr bool wide = sizeof(T) == 8;
  add<Move, T, T>(t, "mov." + type);
  add<Add, T, T, T>(t, "add." + type);
  add<Sub, T, T, T>(t, "sub." + type);
  add<MulLo, T, T, T>(t, "mul.lo." + type);
  add<MulHi, T, T, T>(t, "mul.hi." + type);
  add<MadLo, T, T, T, T>(t, "mad.lo." + type);
  add_rare<MadHi, T, T, T, T>(t, "mad.hi." + type);
  if constexpr (!wide) {
    add<MulWide, Twice<T>, T, T>(t, "mul.wide." + type);
    add<MadWide, Twice<T>, T, T, Twice<T>>(t, "mad.wide." + type);
  }
  if constexpr (std::is_signed_v<T>) {
    add<Neg, T, T>(t, "neg." + type);
    add<Abs, T, T>(t, "abs." + type);
  }
  add<Min, T, T, T>(t, "min." + type);
  add<Max, T, T, T>(t, "max." + type);
  add_rare<Div, T, T, T>(t, "div." + type);
  add_rare<Rem, T, T, T>(t, "rem." + type);
  add_rare<Sad, T, T, T, T>(t, "sad." + type);
  add<Shr, T, T, u32>(t, "shr." + type);
  comparison<Eq, T>(t, "eq", type);
  comparison<Ne, T>(t, "ne", type);
  comparison<Lt, T>(t, "lt", type);
  comparison<Le, T>(t, "le", type);
  comparison<Gt, T>(t, "gt", type);
  comparison<Ge, T>(t, "ge", type);
  if constexpr (!std::is_signed_v<T>) {
    comparison<Lt, T>(t, "lo", type);
    comparison<Le, T>(t, "ls", type);
    comparison<Gt, T>(t, "hi", type);
    comparison<Ge, T>(t, "hs", type);
  }
  if constexpr (sizeof(T) >= 4) {
    add<Bfind, u32, T>(t, "bfind." + type);
    add_rare<BfindShift, u32, T>(t, "bfind.shiftamt." + type);
    add<Bfe, T, T, u32, u32>(t, "bfe." + type);
  }
}

template <class T>
void untyped(Operations& t, const std::string& type) {
  add<Move, T, T>(t, "mov." + type);
  add<And, T, T, T>(t, "and." + type);
  add<Or, T, T, T>(t, "or." + type);
  add<Xor, T, T, T>(t, "xor." + type);
  add<Not, T, T>(t, "not." + type);
  add_rare<Cnot, T, T>(t, "cnot." + type);
  add<Shl, T, T, u32>(t, "shl." + type);
  add<Shr, T, T, u32>(t, "shr." + type);
  comparison<Eq, T>(t, "eq", type);
  comparison<Ne, T>(t, "ne", type);
  if constexpr (sizeof(T) >= 4) {
    add<Popc, u32, T>(t, "popc." + type);
    add<Clz, u32, T>(t, "clz." + type);
    add_rare<Brev, T, T>(t, "brev." + type);
    add<Bfi, T, T, T, u32, u32>(t, "bfi." + type);
  }
}

template <class T>
void selected(Operations& t, const std::string& type) {
  add<Selp, T, T, T, Pred>(t, "selp." + type);
  add_rare<Slct, T, T, T, s32>(t, "slct." + type + ".s32");
  add_rare<SlctF, T, T, T, float>(t, "slct." + type + ".f32");
}

}  // namespace

void add_integer(Operations& t) {
  typed<u16>(t, "u16");
  typed<s16>(t, "s16");
  typed<u32>(t, "u32");
  typed<s32>(t, "s32");
  typed<u64>(t, "u64");
  typed<s64>(t, "s64");
  untyped<u16>(t, "b16");
  untyped<u32>(t, "b32");
  untyped<u64>(t, "b64");
  for (const char* s : {"b16", "u16", "s16", "f16"}) selected<u16>(t, s);
  for (const char* s : {"b32", "u32", "s32", "f32"}) selected<u32>(t, s);
  for (const char* s : {"b64", "u64", "s64", "f64"}) selected<u64>(t, s);
  add<Move, Pred, Pred>(t, "mov.pred");
  add<AndP, Pred, Pred, Pred>(t, "and.pred");
  add<OrP, Pred, Pred, Pred>(t, "or.pred");
  add<XorP, Pred, Pred, Pred>(t, "xor.pred");
  add<Not, Pred, Pred>(t, "not.pred");
  add_rare<AddSat, s32, s32, s32>(t, "add.sat.s32");
  add_rare<SubSat, s32, s32, s32>(t, "sub.sat.s32");
  add<ShfLWrap, u32, u32, u32, u32>(t, "shf.l.wrap.b32");
  add<ShfRWrap, u32, u32, u32, u32>(t, "shf.r.wrap.b32");
  add_rare<ShfLClamp, u32, u32, u32, u32>(t, "shf.l.clamp.b32");
  add_rare<ShfRClamp, u32, u32, u32, u32>(t, "shf.r.clamp.b32");
  add<Prmt, u32, u32, u32, u32>(t, "prmt.b32");
  add<Lop3, u32, u32, u32, u32, u32>(t, "lop3.b32");
  add<Dp4a<s8, s8>, u32, u32, u32, u32>(t, "dp4a.s32.s32");
  add<Dp4a<s8, u8>, u32, u32, u32, u32>(t, "dp4a.s32.u32");
  add<Dp4a<u8, s8>, u32, u32, u32, u32>(t, "dp4a.u32.s32");
  add<Dp4a<u8, u8>, u32, u32, u32, u32>(t, "dp4a.u32.u32");
  add_rare<Dp2a<s16, s8, 0>, u32, u32, u32, u32>(t, "dp2a.lo.s32.s32");
  add_rare<Dp2a<s16, u8, 0>, u32, u32, u32, u32>(t, "dp2a.lo.s32.u32");
  add_rare<Dp2a<u16, s8, 0>, u32, u32, u32, u32>(t, "dp2a.lo.u32.s32");
  add_rare<Dp2a<u16, u8, 0>, u32, u32, u32, u32>(t, "dp2a.lo.u32.u32");
  add_rare<Dp2a<s16, s8, 1>, u32, u32, u32, u32>(t, "dp2a.hi.s32.s32");
  add_rare<Dp2a<s16, u8, 1>, u32, u32, u32, u32>(t, "dp2a.hi.s32.u32");
  add_rare<Dp2a<u16, s8, 1>, u32, u32, u32, u32>(t, "dp2a.hi.u32.s32");
  add_rare<Dp2a<u16, u8, 1>, u32, u32, u32, u32>(t, "dp2a.hi.u32.u32");
}

}  // namespace standin::STANDIN_TARGET
