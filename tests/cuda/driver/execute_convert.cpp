// cvt. Names end in the letters of the registers, which may be wider than the types.
#include <cmath>
#include <limits>

#include "tests/cuda/driver/formats.hpp"
#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {
namespace {

template <class T>
constexpr const char* name_of() {
  if constexpr (std::is_same_v<T, float>)
    return "f32";
  else if constexpr (std::is_same_v<T, double>)
    return "f64";
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1 ? "s8" : sizeof(T) == 2 ? "s16" : sizeof(T) == 4 ? "s32" : "s64";
  else
    return sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "u16" : sizeof(T) == 4 ? "u32" : "u64";
}

template <class To, class From>
To cast(From v) {
  To to;
  static_assert(sizeof to == sizeof v);
  std::memcpy(&to, &v, sizeof to);
  return to;
}

void put_cvt(Operations& t, const std::string& name, Run run, const char* operands) {
  put(t, name + "/" + static_cast<char>(operands[0] + 32) + operands[1], run, operands);
}

template <class Op, class D, class S>
void add_rare_cvt(Operations& t, const std::string& name) {
  put_cvt(t, name, &Singly<Op, D, S>::run, Letters<D, S>::text);
}

template <class Op, class D, class S>
void add_cvt(Operations& t, const std::string& name) {
  put_cvt(t, name, &Each<Op, D, S>::run, Letters<D, S>::text);
}

// The value of type D in a register R, extended as its type says.
template <class R, class D>
R widened(D v) {
  return static_cast<R>(
      static_cast<std::conditional_t<std::is_signed_v<D>, std::make_signed_t<R>, R>>(v));
}

template <class D, class S, class R>
struct Integer {
  template <class T>
  static R f(T a) {
    return widened<R>(static_cast<D>(static_cast<S>(a)));
  }
};
template <class D, class S, class R>
struct IntegerSat {
  template <class T>
  static R f(T a) {
    // (Bytes are numbers here: + makes them int first.)
    const auto v = static_cast<__int128>(+static_cast<S>(a));
    constexpr auto low = static_cast<__int128>(+std::numeric_limits<D>::min());
    constexpr auto high = static_cast<__int128>(std::numeric_limits<D>::max());
    return widened<R>(static_cast<D>(v < low ? low : v > high ? high : v));
  }
};

template <Rounding M, class T>
T to_integral(T v) {
  if constexpr (M == Rounding::nearest)
    return std::nearbyint(v);
  else if constexpr (M == Rounding::zero)
    return std::trunc(v);
  else if constexpr (M == Rounding::down)
    return std::floor(v);
  else
    return std::ceil(v);
}

// Out of range is clamped. NaN gives 0 or, from f64 or to 64 bits, the highest bit alone.
template <Rounding M, class S, class D, class R>
struct ToInteger {
  static R f(S v) {
    constexpr S high = static_cast<S>(D{1} << (std::numeric_limits<D>::digits - 1)) * 2;
    constexpr S low = static_cast<S>(std::numeric_limits<D>::min());
    const S r = to_integral<M>(v);
    const D inside = static_cast<D>(((r >= low) & (r < high)) ? r : S{0});
    D d = r >= high ? std::numeric_limits<D>::max() : inside;
    d = r < low ? std::numeric_limits<D>::min() : d;
    if constexpr (sizeof(S) == 8 || sizeof(D) == 8) {
      d = std::isnan(v)
              ? static_cast<D>(static_cast<std::make_unsigned_t<D>>(u64{1} << (8 * sizeof(D) - 1)))
              : d;
    }
    return widened<R>(d);
  }
};

template <class D, class S>
struct FromInteger {
  template <class T>
  static D f(T a) {
    return static_cast<D>(static_cast<S>(a));
  }
};
template <Rounding M, class D, class S>
struct FromIntegerRounded {
  static D f(S a) {
    const bool sign = a < 0;
    const u64 magnitude = sign ? u64{0} - static_cast<u64>(a) : static_cast<u64>(a);
    if constexpr (sizeof(D) == 4)
      return cast<D>(static_cast<u32>(packed(binary32, sign, magnitude, 0, M)));
    else
      return cast<D>(packed(binary64, sign, magnitude, 0, M));
  }
};

[[gnu::always_inline]] inline float canonical(float v) {
  return std::isnan(v) ? cast<float>(0x7fffffffu) : v;
}
[[gnu::always_inline]] inline double canonical(double v) {
  return std::isnan(v) ? cast<double>(0x7fffffffffffffffull) : v;
}

template <Rounding M>
struct Integral {
  template <class T>
  static T f(T v) {
    return canonical(to_integral<M>(v));
  }
};
// (NaN gives 0.)
template <class T>
T saturated(T v) {
  return v > 0 ? (v < 1 ? v : T{1}) : T{0};
}
template <Rounding M>
struct IntegralSat {
  template <class T>
  static T f(T v) {
    return saturated(to_integral<M>(v));
  }
};
struct Same {
  template <class T>
  static T f(T v) {
    return v;
  }
};
struct Saturate {
  template <class T>
  static T f(T v) {
    return saturated(v);
  }
};
struct Widen {
  static double f(float v) { return canonical(static_cast<double>(v)); }
};
template <Rounding M>
struct Narrow {
  static float f(double v) {
    if constexpr (M == Rounding::nearest)
      return canonical(static_cast<float>(v));
    else
      return cast<float>(static_cast<u32>(converted(binary64, binary32, cast<u64>(v), M)));
  }
};
template <Rounding M>
struct NarrowSat {
  static float f(double v) { return saturated(Narrow<M>::f(v)); }
};

template <int Which>
constexpr Format small = Which == 0 ? binary16 : bfloat16;
template <Rounding M, int Which, bool Relu>
struct ToSmall {
  static u16 f(float v) {
    const u16 r = static_cast<u16>(converted(binary32, small<Which>, cast<u32>(v), M));
    return Relu && (r & 0x8000) != 0 ? u16{0} : r;
  }
  static u16 f(double v) {
    return static_cast<u16>(converted(binary64, small<Which>, cast<u64>(v), M));
  }
};
// The first operand becomes the upper half.
template <Rounding M, int Which, bool Relu>
struct ToPair {
  static u32 f(float a, float b) {
    return u32{ToSmall<M, Which, Relu>::f(a)} << 16 | ToSmall<M, Which, Relu>::f(b);
  }
};
struct HalfToFloat {
  static float f(u16 v) {
    return cast<float>(static_cast<u32>(converted(binary16, binary32, v, Rounding::nearest)));
  }
};
struct HalfToDouble {
  static double f(u16 v) {
    return cast<double>(converted(binary16, binary64, v, Rounding::nearest));
  }
};
template <Rounding M, class D, class R>
struct HalfToInteger {
  static R f(u16 v) { return ToInteger<M, float, D, R>::f(HalfToFloat::f(v)); }
};
template <Rounding M, class S>
struct IntegerToHalf {
  static u16 f(S a) {
    const bool sign = a < 0;
    return static_cast<u16>(
        packed(binary16, sign, sign ? u64{0} - static_cast<u64>(a) : static_cast<u64>(a), 0, M));
  }
};

// Register types that hold a T: its own and wider ones.
template <class T, class F>
void for_registers(F f) {
  if constexpr (sizeof(T) <= 2) f(u16{});
  if constexpr (sizeof(T) <= 4) f(u32{});
  f(u64{});
}
template <class T, class F>
void for_written(F f) {
  if constexpr (sizeof(T) <= 2) f(u16{});
  if constexpr (sizeof(T) <= 4) f(u32{});
  if constexpr (sizeof(T) == 8) f(u64{});
}
template <class F>
void for_integers(F f) {
  f(u8{}), f(s8{}), f(u16{}), f(s16{}), f(u32{}), f(s32{}), f(u64{}), f(s64{});
}
template <class T>
using Natural =
    std::conditional_t<(sizeof(T) <= 2), u16, std::conditional_t<sizeof(T) == 4, u32, u64>>;

template <class F>
void for_roundings(F f) {
  f(std::integral_constant<Rounding, Rounding::nearest>{}, "n");
  f(std::integral_constant<Rounding, Rounding::zero>{}, "z");
  f(std::integral_constant<Rounding, Rounding::down>{}, "m");
  f(std::integral_constant<Rounding, Rounding::up>{}, "p");
}

template <class D, class S>
void integers(Operations& t) {
  const std::string types = std::string(name_of<D>()) + "." + name_of<S>();
  for_written<D>([&](auto r) {
    using R = std::decay_t<decltype(r)>;
    for_registers<S>([&](auto s) {
      using T = std::decay_t<decltype(s)>;
      if constexpr (sizeof(R) >= 4 || sizeof(T) == 4)
        add_cvt<Integer<D, S, R>, R, T>(t, "cvt." + types);
      else
        add_rare_cvt<Integer<D, S, R>, R, T>(t, "cvt." + types);
    });
    add_rare_cvt<IntegerSat<D, S, R>, R, Natural<S>>(t, "cvt.sat." + types);
  });
}

template <Rounding M, class D>
void to_integer(Operations& t, const std::string& mode) {
  for_written<D>([&](auto r) {
    using R = std::decay_t<decltype(r)>;
    for (const char* sat : {"", ".sat"}) {
      const std::string head = "cvt.r" + mode + "i" + sat + "." + name_of<D>();
      if constexpr (sizeof(R) == 4 && (M == Rounding::nearest || M == Rounding::zero)) {
        add_cvt<ToInteger<M, float, D, R>, R, float>(t, head + ".f32");
      } else {
        add_rare_cvt<ToInteger<M, float, D, R>, R, float>(t, head + ".f32");
      }
      add_rare_cvt<ToInteger<M, double, D, R>, R, double>(t, head + ".f64");
      add_rare_cvt<HalfToInteger<M, D, R>, R, u16>(t, head + ".f16");
    }
  });
}

template <class S>
void from_integer(Operations& t) {
  const std::string source = name_of<S>();
  for_registers<S>([&](auto s) {
    using T = std::decay_t<decltype(s)>;
    add_cvt<FromInteger<float, S>, float, T>(t, "cvt.rn.f32." + source);
    add_cvt<FromInteger<double, S>, double, T>(t, "cvt.rn.f64." + source);
  });
  for_roundings([&](auto m, [[maybe_unused]] const std::string& mode) {
    constexpr Rounding M = decltype(m)::value;
    if constexpr (sizeof(S) >= 2) {
      using T = std::conditional_t<std::is_signed_v<S>, std::make_signed_t<Natural<S>>, Natural<S>>;
      if constexpr (M != Rounding::nearest) {
        add_rare_cvt<FromIntegerRounded<M, float, T>, float, T>(t,
                                                                "cvt.r" + mode + ".f32." + source);
        add_rare_cvt<FromIntegerRounded<M, double, T>, double, T>(
            t, "cvt.r" + mode + ".f64." + source);
      }
      add_rare_cvt<IntegerToHalf<M, T>, u16, T>(t, "cvt.r" + mode + ".f16." + source);
    }
  });
}

template <Rounding M>
void floats(Operations& t, const std::string& mode) {
  add_cvt<Integral<M>, float, float>(t, "cvt.r" + mode + "i.f32.f32");
  add_cvt<Integral<M>, double, double>(t, "cvt.r" + mode + "i.f64.f64");
  add_rare_cvt<IntegralSat<M>, float, float>(t, "cvt.r" + mode + "i.sat.f32.f32");
  add_cvt<Narrow<M>, float, double>(t, "cvt.r" + mode + ".f32.f64");
  add_rare_cvt<NarrowSat<M>, float, double>(t, "cvt.r" + mode + ".sat.f32.f64");
  add_rare_cvt<ToSmall<M, 0, false>, u16, float>(t, "cvt.r" + mode + ".f16.f32");
  add_rare_cvt<ToSmall<M, 0, false>, u16, double>(t, "cvt.r" + mode + ".f16.f64");
  if constexpr (M == Rounding::nearest || M == Rounding::zero) {
    add_rare_cvt<ToSmall<M, 0, true>, u16, float>(t, "cvt.r" + mode + ".relu.f16.f32");
    add_rare_cvt<ToSmall<M, 1, false>, u16, float>(t, "cvt.r" + mode + ".bf16.f32");
    add_rare_cvt<ToSmall<M, 1, true>, u16, float>(t, "cvt.r" + mode + ".relu.bf16.f32");
    add_rare<ToPair<M, 0, false>, u32, float, float>(t, "cvt.r" + mode + ".f16x2.f32/www");
    add_rare<ToPair<M, 0, true>, u32, float, float>(t, "cvt.r" + mode + ".relu.f16x2.f32/www");
    add_rare<ToPair<M, 1, false>, u32, float, float>(t, "cvt.r" + mode + ".bf16x2.f32/www");
    add_rare<ToPair<M, 1, true>, u32, float, float>(t, "cvt.r" + mode + ".relu.bf16x2.f32/www");
  }
}

}  // namespace

void add_convert(Operations& t) {
  for_integers([&](auto d) {
    using D = decltype(d);
    for_integers([&](auto s) {
      if constexpr (!std::is_same_v<D, decltype(s)>) integers<D, decltype(s)>(t);
    });
    for_roundings(
        [&](auto m, const std::string& mode) { to_integer<decltype(m)::value, D>(t, mode); });
    from_integer<D>(t);
  });
  for_roundings([&](auto m, const std::string& mode) { floats<decltype(m)::value>(t, mode); });
  add_cvt<Widen, double, float>(t, "cvt.f64.f32");
  add_cvt<Same, float, float>(t, "cvt.f32.f32");
  add_cvt<Same, double, double>(t, "cvt.f64.f64");
  add_rare_cvt<Saturate, float, float>(t, "cvt.sat.f32.f32");
  add_rare_cvt<Saturate, double, double>(t, "cvt.sat.f64.f64");
  add_cvt<HalfToFloat, float, u16>(t, "cvt.f32.f16");
  add_rare_cvt<HalfToDouble, double, u16>(t, "cvt.f64.f16");
}

}  // namespace standin::STANDIN_TARGET
