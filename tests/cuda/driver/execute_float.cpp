// Floating-point arithmetic and comparisons. A result of f32 that is not a number is the canonical
// 0x7fffffff, whatever went in.
#include <cmath>

#include "tests/cuda/driver/formats.hpp"
#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {
namespace {

template <class To, class From>
To cast(From v) {
  To to;
  static_assert(sizeof to == sizeof v);
  std::memcpy(&to, &v, sizeof to);
  return to;
}

[[gnu::always_inline]] inline float canonical(float v) {
  return std::isnan(v) ? cast<float>(0x7fffffffu) : v;
}
// (Which NaN an operation of f64 gives is left open by the manual: always the same one here.)
[[gnu::always_inline]] inline double canonical(double v) {
  return std::isnan(v) ? cast<double>(0x7fffffffffffffffull) : v;
}

struct FAdd {
  template <class T>
  static T f(T a, T b) {
    return canonical(a + b);
  }
};
struct FSub {
  template <class T>
  static T f(T a, T b) {
    return canonical(a - b);
  }
};
struct FMul {
  template <class T>
  static T f(T a, T b) {
    return canonical(a * b);
  }
};
struct FDiv {
  template <class T>
  static T f(T a, T b) {
    return canonical(a / b);
  }
};
struct FRcp {
  template <class T>
  static T f(T a) {
    return canonical(T{1} / a);
  }
};
struct FSqrt {
  template <class T>
  static T f(T a) {
    return canonical(std::sqrt(a));
  }
};
struct FFma {
  static float f(float a, float b, float c) { return canonical(__builtin_fmaf(a, b, c)); }
  static double f(double a, double b, double c) { return canonical(__builtin_fma(a, b, c)); }
};
struct FNeg {
  static float f(float a) { return cast<float>(cast<u32>(a) ^ 0x80000000u); }
  static double f(double a) { return cast<double>(cast<u64>(a) ^ u64{1} << 63); }
};
struct FAbs {
  static float f(float a) { return cast<float>(cast<u32>(a) & 0x7fffffffu); }
  static double f(double a) { return cast<double>(cast<u64>(a) & ~(u64{1} << 63)); }
};
// The sign of a, the rest of b.
struct FCopysign {
  static float f(float a, float b) {
    return cast<float>((cast<u32>(a) & 0x80000000u) | (cast<u32>(b) & 0x7fffffffu));
  }
  static double f(double a, double b) {
    return cast<double>((cast<u64>(a) & u64{1} << 63) | (cast<u64>(b) & ~(u64{1} << 63)));
  }
};

template <class T>
bool negative(T a) {
  if constexpr (sizeof(T) == 4)
    return cast<s32>(a) < 0;
  else
    return cast<s64>(a) < 0;
}
// One NaN gives the other operand; +0 is above -0.
struct FMin {
  template <class T>
  static T f(T a, T b) {
    const T r = a < b ? a : a > b ? b : negative(a) ? a : b;
    return std::isnan(a) ? canonical(b) : std::isnan(b) ? a : r;
  }
};
struct FMax {
  template <class T>
  static T f(T a, T b) {
    const T r = a > b ? a : a < b ? b : negative(a) ? b : a;
    return std::isnan(a) ? canonical(b) : std::isnan(b) ? a : r;
  }
};
struct FMinNan {
  static float f(float a, float b) {
    return std::isunordered(a, b) ? cast<float>(0x7fffffffu) : FMin::f(a, b);
  }
};
struct FMaxNan {
  static float f(float a, float b) {
    return std::isunordered(a, b) ? cast<float>(0x7fffffffu) : FMax::f(a, b);
  }
};

struct Finite {
  template <class T>
  static bool f(T a) {
    return FAbs::f(a) < static_cast<T>(INFINITY);
  }
};
struct Infinite {
  template <class T>
  static bool f(T a) {
    return FAbs::f(a) == static_cast<T>(INFINITY);
  }
};
struct Number {
  template <class T>
  static bool f(T a) {
    return !std::isnan(a);
  }
};
struct Nan {
  template <class T>
  static bool f(T a) {
    return std::isnan(a);
  }
};
template <class T>
constexpr T least_normal() {
  return sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022);
}
struct Normal {
  template <class T>
  static bool f(T a) {
    return (FAbs::f(a) >= least_normal<T>()) && Finite::f(a);
  }
};
struct Subnormal {
  template <class T>
  static bool f(T a) {
    return (FAbs::f(a) < least_normal<T>()) & (a != 0);
  }
};

struct Eq {
  template <class T>
  static bool f(T a, T b) {
    return a == b;
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
struct Num {
  template <class T>
  static bool f(T a, T b) {
    return !std::isunordered(a, b);
  }
};
struct Ne {
  template <class T>
  static bool f(T a, T b) {
    return Num::f(a, b) & (a != b);
  }
};
template <class C>
struct Negation {
  template <class T>
  static bool f(T a, T b) {
    return !C::f(a, b);
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

template <class C, class T>
void comparison(Operations& t, const std::string& compare, const std::string& type) {
  add<C, Pred, T, T>(t, "setp." + compare + "." + type);
  add_rare<With<C, AndP>, Pred, T, T, Pred>(t, "setp." + compare + ".and." + type);
  add_rare<With<C, OrP>, Pred, T, T, Pred>(t, "setp." + compare + ".or." + type);
  add_rare<With<C, XorP>, Pred, T, T, Pred>(t, "setp." + compare + ".xor." + type);
  add_rare<Set<C>, u32, T, T>(t, "set." + compare + ".u32." + type);
  add_rare<Set<C>, u32, T, T>(t, "set." + compare + ".s32." + type);
}

struct Move {
  template <class T>
  static T f(T a) {
    return a;
  }
};

template <class T>
void typed(Operations& t, const std::string& type) {
  using Bits = std::conditional_t<sizeof(T) == 4, u32, u64>;
  add<Move, Bits, Bits>(t, "mov." + type);
  add<FAdd, T, T, T>(t, "add.rn." + type);
  add<FSub, T, T, T>(t, "sub.rn." + type);
  add<FMul, T, T, T>(t, "mul.rn." + type);
  add<FFma, T, T, T, T>(t, "fma.rn." + type);
  add<FDiv, T, T, T>(t, "div.rn." + type);
  add<FRcp, T, T>(t, "rcp.rn." + type);
  add<FSqrt, T, T>(t, "sqrt.rn." + type);
  add<FNeg, T, T>(t, "neg." + type);
  add<FAbs, T, T>(t, "abs." + type);
  add_rare<FCopysign, T, T, T>(t, "copysign." + type);
  add<FMin, T, T, T>(t, "min." + type);
  add<FMax, T, T, T>(t, "max." + type);
  add_rare<Finite, Pred, T>(t, "testp.finite." + type);
  add_rare<Infinite, Pred, T>(t, "testp.infinite." + type);
  add_rare<Number, Pred, T>(t, "testp.number." + type);
  add_rare<Nan, Pred, T>(t, "testp.notanumber." + type);
  add_rare<Normal, Pred, T>(t, "testp.normal." + type);
  add_rare<Subnormal, Pred, T>(t, "testp.subnormal." + type);
  comparison<Eq, T>(t, "eq", type);
  comparison<Ne, T>(t, "ne", type);
  comparison<Lt, T>(t, "lt", type);
  comparison<Le, T>(t, "le", type);
  comparison<Gt, T>(t, "gt", type);
  comparison<Ge, T>(t, "ge", type);
  comparison<Num, T>(t, "num", type);
  // The forms that are true of a NaN.
  comparison<Negation<Ne>, T>(t, "equ", type);
  comparison<Negation<Eq>, T>(t, "neu", type);
  comparison<Negation<Ge>, T>(t, "ltu", type);
  comparison<Negation<Gt>, T>(t, "leu", type);
  comparison<Negation<Le>, T>(t, "gtu", type);
  comparison<Negation<Lt>, T>(t, "geu", type);
  comparison<Negation<Num>, T>(t, "nan", type);
}

}  // namespace

void add_float(Operations& t) {
  typed<float>(t, "f32");
  typed<double>(t, "f64");
  add<FMinNan, float, float, float>(t, "min.NaN.f32");
  add<FMaxNan, float, float, float>(t, "max.NaN.f32");
  add<Move, u16, u16>(t, "mov.f16");
}

}  // namespace standin::STANDIN_TARGET
