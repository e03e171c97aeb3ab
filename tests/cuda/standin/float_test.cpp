// Floating-point operations and conversions against the same by other means: the host's own
// arithmetic, its rounding modes, and a search among all numbers of the small formats.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/cuda/standin/operations.hpp"

namespace standin_test {
namespace {

template <class To, class From>
To cast(From v) {
  To to;
  static_assert(sizeof to == sizeof v);
  std::memcpy(&to, &v, sizeof to);
  return to;
}
float f32(u64 bits) { return cast<float>(static_cast<u32>(bits)); }
double f64(u64 bits) { return cast<double>(bits); }
u64 bits_of(float v) { return std::isnan(v) ? 0x7fffffff : cast<u32>(v); }
u64 bits_of(double v) { return std::isnan(v) ? 0x7fffffffffffffff : cast<u64>(v); }

class Floats : public OperationTest {};

TEST_F(Floats, Arithmetic) {
  std::vector<Operation> ops;
  const auto both = [&](const std::string& name, int operands, auto f) {
    ops.push_back({name + ".f32", std::string(static_cast<std::size_t>(operands) + 1, 'w'),
                   [=](u64 a, u64 b, u64 c) { return bits_of(f(f32(a), f32(b), f32(c))); }});
    ops.push_back({name + ".f64", std::string(static_cast<std::size_t>(operands) + 1, 'd'),
                   [=](u64 a, u64 b, u64 c) { return bits_of(f(f64(a), f64(b), f64(c))); }});
  };
  both("add.rn", 2, [](auto a, auto b, auto) { return a + b; });
  both("sub.rn", 2, [](auto a, auto b, auto) { return a - b; });
  both("mul.rn", 2, [](auto a, auto b, auto) { return a * b; });
  both("div.rn", 2, [](auto a, auto b, auto) { return a / b; });
  both("rcp.rn", 1, [](auto a, auto, auto) { return 1 / a; });
  both("sqrt.rn", 1, [](auto a, auto, auto) { return std::sqrt(a); });
  ops.push_back({"fma.rn.f32", "wwww",
                 [](u64 a, u64 b, u64 c) { return bits_of(std::fma(f32(a), f32(b), f32(c))); }});
  ops.push_back({"neg.f32", "ww", [](u64 a, u64, u64) { return a ^ 0x80000000; }});
  ops.push_back({"abs.f32", "ww", [](u64 a, u64, u64) { return a & 0x7fffffff; }});
  ops.push_back({"neg.f64", "dd", [](u64 a, u64, u64) { return a ^ u64 { 1 } << 63; }});
  ops.push_back({"abs.f64", "dd", [](u64 a, u64, u64) { return a & ~(u64{1} << 63); }});
  ops.push_back({"copysign.f32", "www",
                 [](u64 a, u64 b, u64) { return (a & 0x80000000) | (b & 0x7fffffff); }});
  check(ops);
}

TEST_F(Floats, LeastAndGreatest) {
  const auto pick = [](u64 a, u64 b, bool max, bool nan) -> u64 {
    const float x = f32(a);
    const float y = f32(b);
    if (nan && (std::isnan(x) || std::isnan(y))) return 0x7fffffff;
    if (std::isnan(x)) return std::isnan(y) ? 0x7fffffff : b;
    if (std::isnan(y)) return a;
    if (x == 0 && y == 0) return max ? a & b : a | b;  // +0 is above -0
    return (x < y) != max ? a : b;
  };
  check({{"min.f32", "www", [=](u64 a, u64 b, u64) { return pick(a, b, false, false); }},
         {"max.f32", "www", [=](u64 a, u64 b, u64) { return pick(a, b, true, false); }},
         {"min.NaN.f32", "www", [=](u64 a, u64 b, u64) { return pick(a, b, false, true); }},
         {"max.NaN.f32", "www", [=](u64 a, u64 b, u64) { return pick(a, b, true, true); }}});
}

TEST_F(Floats, Comparisons) {
  std::vector<Operation> ops;
  const std::pair<const char*, bool (*)(double, double)> compares[] = {
      {"eq", [](double a, double b) { return a == b; }},
      {"lt", [](double a, double b) { return a < b; }},
      {"le", [](double a, double b) { return a <= b; }},
      {"gt", [](double a, double b) { return a > b; }},
      {"ge", [](double a, double b) { return a >= b; }},
      {"ne", [](double a, double b) { return a < b || a > b; }},
      {"num", [](double a, double b) { return !std::isnan(a) && !std::isnan(b); }}};
  for (const auto& [name, compare] : compares) {
    const auto f = compare;
    const std::string n = name;
    ops.push_back(
        {"setp." + n + ".f32", "pww", [=](u64 a, u64 b, u64) { return u64{f(f32(a), f32(b))}; }});
    ops.push_back(
        {"setp." + n + ".f64", "pdd", [=](u64 a, u64 b, u64) { return u64{f(f64(a), f64(b))}; }});
    const auto unordered = [=](double a, double b) {
      return u64{std::isnan(a) || std::isnan(b) || f(a, b)};
    };
    const std::string u = n == "num" ? "nan" : n + "u";
    if (n == "num") {
      ops.push_back(
          {"setp.nan.f32", "pww", [=](u64 a, u64 b, u64) { return u64{!f(f32(a), f32(b))}; }});
    } else {
      ops.push_back({"setp." + u + ".f32", "pww",
                     [=](u64 a, u64 b, u64) { return unordered(f32(a), f32(b)); }});
      ops.push_back({"setp." + u + ".f64", "pdd",
                     [=](u64 a, u64 b, u64) { return unordered(f64(a), f64(b)); }});
    }
    ops.push_back({"setp." + n + ".and.f32", "pwwp",
                   [=](u64 a, u64 b, u64 c) { return u64{f(f32(a), f32(b)) && c != 0}; }});
  }
  ops.push_back(
      {"testp.finite.f32", "pw", [](u64 a, u64, u64) { return u64{std::isfinite(f32(a))}; }});
  ops.push_back(
      {"testp.infinite.f32", "pw", [](u64 a, u64, u64) { return u64{std::isinf(f32(a))}; }});
  ops.push_back(
      {"testp.number.f32", "pw", [](u64 a, u64, u64) { return u64{!std::isnan(f32(a))}; }});
  ops.push_back(
      {"testp.notanumber.f32", "pw", [](u64 a, u64, u64) { return u64{std::isnan(f32(a))}; }});
  ops.push_back(
      {"testp.normal.f32", "pw", [](u64 a, u64, u64) { return u64{std::isnormal(f32(a))}; }});
  ops.push_back({"testp.subnormal.f32", "pw",
                 [](u64 a, u64, u64) { return u64{std::fpclassify(f32(a)) == FP_SUBNORMAL}; }});
  check(ops);
}

constexpr std::pair<const char*, int> modes[] = {
    {"n", FE_TONEAREST}, {"z", FE_TOWARDZERO}, {"m", FE_DOWNWARD}, {"p", FE_UPWARD}};

template <class F>
auto rounded(int mode, F f) {
  std::fesetround(mode);
  const volatile auto r = f();
  std::fesetround(FE_TONEAREST);
  return r;
}

template <class T>
u64 to_integer(T v, bool from_f64, int bits, bool is_signed, int mode) {
  if (std::isnan(v))
    return !from_f64 && bits != 64 ? 0 : is_signed ? ~u64{0} << (bits - 1) : u64{1} << (bits - 1);
  const volatile double in = v;
  const double r = rounded(mode, [&] { return std::nearbyint(in); });
  const double top = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  if (r >= top)
    return is_signed ? (u64{1} << (bits - 1)) - 1 : bits == 64 ? u64(-1) : (u64{1} << bits) - 1;
  if (is_signed) return r < -top ? ~u64{0} << (bits - 1) : static_cast<u64>(static_cast<s64>(r));
  return r < 0 ? 0 : static_cast<u64>(r);
}

TEST_F(Floats, ToIntegers) {
  std::vector<Operation> ops;
  for (const auto& [m, mode] : modes) {
    const int how = mode;
    for (const int bits : {8, 16, 32, 64}) {
      for (const bool is_signed : {false, true}) {
        const std::string n =
            std::string("cvt.r") + m + "i." + (is_signed ? "s" : "u") + std::to_string(bits);
        const char letter = bits == 64 ? 'd' : bits == 32 ? 'w' : 'h';
        const int b = bits;
        const bool s = is_signed;
        ops.push_back({n + ".f32", {letter, 'w'}, [=](u64 a, u64, u64) {
                         return to_integer(f32(a), false, b, s, how);
                       }});
        ops.push_back({n + ".f64", {letter, 'd'}, [=](u64 a, u64, u64) {
                         return to_integer(f64(a), true, b, s, how);
                       }});
        if (bits == 8)
          ops.push_back({n + ".f32", "ww",
                         [=](u64 a, u64, u64) { return to_integer(f32(a), false, b, s, how); }});
      }
    }
  }
  check(ops);
}

TEST_F(Floats, FromIntegersAndToIntegrals) {
  std::vector<Operation> ops;
  for (const auto& [m, mode] : modes) {
    const int how = mode;
    const std::string head = std::string("cvt.r") + m;
    ops.push_back({head + ".f32.s32", "ww", [=](u64 a, u64, u64) {
                     const volatile s32 v = static_cast<s32>(a);
                     return bits_of(rounded(how, [&] { return static_cast<float>(v); }));
                   }});
    ops.push_back({head + ".f32.u32", "ww", [=](u64 a, u64, u64) {
                     const volatile s64 v = static_cast<s64>(a);
                     return bits_of(rounded(how, [&] { return static_cast<float>(v); }));
                   }});
    ops.push_back({head + ".f32.s64", "wd", [=](u64 a, u64, u64) {
                     const volatile s64 v = static_cast<s64>(a);
                     return bits_of(rounded(how, [&] { return static_cast<float>(v); }));
                   }});
    ops.push_back({head + ".f64.s64", "dd", [=](u64 a, u64, u64) {
                     const volatile s64 v = static_cast<s64>(a);
                     return bits_of(rounded(how, [&] { return static_cast<double>(v); }));
                   }});
    ops.push_back({head + ".f64.u32", "dw",
                   [=](u64 a, u64, u64) { return bits_of(static_cast<double>(a)); }});
    ops.push_back({head + ".f32.u64", "wd", [=](u64 a, u64, u64) {
                     const volatile long double v = static_cast<long double>(a);
                     return bits_of(rounded(how, [&] { return static_cast<float>(v); }));
                   }});
    ops.push_back({head + ".f32.s16", "wh", [=](u64 a, u64, u64) {
                     return bits_of(static_cast<float>(static_cast<s16>(a)));
                   }});
    ops.push_back({head + ".f32.f64", "wd", [=](u64 a, u64, u64) {
                     const volatile double v = f64(a);
                     return bits_of(rounded(how, [&] { return static_cast<float>(v); }));
                   }});
    ops.push_back({head + "i.f32.f32", "ww", [=](u64 a, u64, u64) {
                     const volatile float v = f32(a);
                     return bits_of(rounded(how, [&] { return std::nearbyint(v); }));
                   }});
  }
  ops.push_back({"cvt.rn.f32.u8", "wh",
                 [](u64 a, u64, u64) { return bits_of(static_cast<float>(a & 255)); }});
  ops.push_back({"cvt.rn.f32.s8", "ww",
                 [](u64 a, u64, u64) { return bits_of(static_cast<float>(static_cast<s8>(a))); }});
  ops.push_back(
      {"cvt.f64.f32", "dw", [](u64 a, u64, u64) { return bits_of(static_cast<double>(f32(a))); }});
  ops.push_back({"cvt.sat.f32.f32", "ww", [](u64 a, u64, u64) {
                   const float v = f32(a);
                   return bits_of(v > 0 ? std::min(v, 1.0f) : 0.0f);
                 }});
  check(ops);
}

// All numbers of a small format, found by what their bits mean.
struct Small {
  int precision;
  int least;
  double value(u32 bits) const {
    const u32 fraction = bits & ((1u << (precision - 1)) - 1);
    const int biased = static_cast<int>((bits & 0x7fff) >> (precision - 1));
    const double v = biased == 0 ? std::ldexp(fraction, least - precision + 1)
                                 : std::ldexp(fraction + (1u << (precision - 1)),
                                              biased - 1 + least - precision + 1);
    return (bits & 0x8000) != 0 ? -v : v;
  }
  u32 infinity() const { return 0x7fff >> (precision - 1) << (precision - 1); }
  u64 from(double v, int mode) const {
    if (std::isnan(v)) return 0x7fff;
    const u32 sign = std::signbit(v) ? 0x8000 : 0;
    const double m = std::fabs(v);
    if (std::isinf(v)) return sign | infinity();
    u32 low = 0;  // the greatest that is not above
    u32 high = infinity();
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      (value(middle) <= m ? low : high) = middle;
    }
    if (value(low) == m) return sign | low;
    const bool away = mode == FE_UPWARD ? sign == 0 : mode == FE_DOWNWARD ? sign != 0 : false;
    if (mode != FE_TONEAREST) return sign | (away ? low + 1 : low);
    // (The value of the infinity's bits is the next power of two, which is what rounding counts
    // with.)
    const double below = m - value(low);
    const double above = value(low + 1) - m;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : low + 1);
  }
};
constexpr Small half{11, -14};
constexpr Small brain{8, -126};

TEST_F(Floats, SmallFormats) {
  std::vector<Operation> ops;
  for (const auto& [m, mode] : modes) {
    const int how = mode;
    const std::string head = std::string("cvt.r") + m;
    ops.push_back(
        {head + ".f16.f32", "hw", [=](u64 a, u64, u64) { return half.from(f32(a), how); }});
    ops.push_back(
        {head + ".f16.f64", "hd", [=](u64 a, u64, u64) { return half.from(f64(a), how); }});
    ops.push_back({head + ".f16.s32", "hw",
                   [=](u64 a, u64, u64) { return half.from(static_cast<s32>(a), how); }});
    if (mode != FE_TONEAREST && mode != FE_TOWARDZERO) continue;
    ops.push_back(
        {head + ".bf16.f32", "hw", [=](u64 a, u64, u64) { return brain.from(f32(a), how); }});
    ops.push_back({head + ".f16x2.f32", "www", [=](u64 a, u64 b, u64) {
                     return half.from(f32(a), how) << 16 | half.from(f32(b), how);
                   }});
    ops.push_back({head + ".bf16x2.f32", "www", [=](u64 a, u64 b, u64) {
                     return brain.from(f32(a), how) << 16 | brain.from(f32(b), how);
                   }});
  }
  ops.push_back({"cvt.f32.f16", "wh", [](u64 a, u64, u64) {
                   if ((a & 0x7fff) > 0x7c00) return u64{0x7fffffff};
                   if ((a & 0x7fff) == 0x7c00) return (a & 0x8000) << 16 | 0x7f800000;
                   return bits_of(static_cast<float>(half.value(static_cast<u32>(a))));
                 }});
  ops.push_back({"cvt.rni.s32.f16", "wh", [](u64 a, u64, u64) {
                   if ((a & 0x7fff) > 0x7c00) return u64{0};
                   const double v = (a & 0x7fff) == 0x7c00
                                        ? ((a & 0x8000) != 0 ? -INFINITY : INFINITY)
                                        : half.value(static_cast<u32>(a));
                   return to_integer(v, false, 32, true, FE_TONEAREST);
                 }});
  check(ops);
}

// What a compiler may fuse, flush or approximate, and what is not known, is refused when it is
// loaded.
TEST_F(Floats, RefusedAtLoad) {
  for (const char* opcode :
       {"add.f32", "mul.f32", "sub.f32", "add.ftz.f32", "add.rn.ftz.f32", "div.approx.f32",
        "div.full.f32", "sqrt.approx.f32", "min.ftz.f32", "rcp.approx.ftz.f32", "add.sat.f32",
        "mul.rz.f32", "add.f64", "frobnicate.f32"}) {
    const std::string text = std::string(ptx_head) +
                             ".visible .entry k()\n{\n.reg .f32 %f<4>;\n.reg .f64 %d<4>;\nmov.f32 "
                             "%f1, 0f00000000;\nmov.f32 %f2, %f1;\n" +
                             opcode + " %f3, %f1, %f2;\nret;\n}\n";
    void* module = nullptr;
    EXPECT_EQ(cu("cuModuleLoadData", &module, static_cast<const void*>(text.c_str())), invalid_ptx)
        << opcode;
    EXPECT_THAT(control().message(), ::testing::HasSubstr("line 10")) << opcode;
  }
  for (const char* line : {"mov.u32 %r1, %clock;", "mov.u64 %rd1, %clock64;", "mov.u64 %r1, 5;",
                           "add.s32 %r1, %r2;", "add.s32 %r1, %r1, %r1, %r1;", "bra NOWHERE;",
                           "call other, ();", "ld.global.f32x %r1, [%rd1];",
                           "st.const.u32 [%rd1], %r1;", "ld.global.u32 %rd1, [%r1];junk"}) {
    const std::string text = std::string(ptx_head) +
                             ".visible .entry k()\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n" +
                             line + "\nret;\n}\n";
    void* module = nullptr;
    EXPECT_EQ(cu("cuModuleLoadData", &module, static_cast<const void*>(text.c_str())), invalid_ptx)
        << line;
  }
}

}  // namespace
}  // namespace standin_test
