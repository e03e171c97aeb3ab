// Integer operations against the same, written out at length.
#include <cmath>

#include "tests/cuda/standin/operations.hpp"

namespace standin_test {
namespace {

s64 sign_extended(u64 v, int bits) { return static_cast<s64>(v << (64 - bits)) >> (64 - bits); }

struct Type {
  const char* name;
  char letter;
  int bits;
  bool is_signed;
};
constexpr Type types[] = {{"u16", 'h', 16, false}, {"s16", 'h', 16, true},  {"u32", 'w', 32, false},
                          {"s32", 'w', 32, true},  {"u64", 'd', 64, false}, {"s64", 'd', 64, true}};

using Wide = __int128;
Wide value(u64 bits, const Type& t) {
  return t.is_signed ? Wide{sign_extended(bits, t.bits)} : Wide{bits};
}

std::string letters(const Type& t, const char* pattern) {
  std::string text = pattern;
  for (char& c : text) c = c == 'x' ? t.letter : c;
  return text;
}

class Integers : public OperationTest {};

TEST_F(Integers, Arithmetic) {
  std::vector<Operation> ops;
  for (const Type& t : types) {
    const auto v = [t](u64 bits) { return value(bits, t); };
    const std::string n = std::string(".") + t.name;
    const auto add = [&](const std::string& name, const char* pattern, auto f) {
      ops.push_back({name + n, letters(t, pattern),
                     [f](u64 a, u64 b, u64 c) { return static_cast<u64>(f(a, b, c)); }});
    };
    add("add", "xxx", [=](u64 a, u64 b, u64) { return v(a) + v(b); });
    add("sub", "xxx", [=](u64 a, u64 b, u64) { return v(a) - v(b); });
    add("mul.lo", "xxx", [=](u64 a, u64 b, u64) {
      return static_cast<unsigned __int128>(v(a)) * static_cast<unsigned __int128>(v(b));
    });
    add("mul.hi", "xxx", [=](u64 a, u64 b, u64) {
      if (t.bits == 64 && !t.is_signed)
        return static_cast<Wide>((static_cast<unsigned __int128>(a) * b) >> 64);
      return v(a) * v(b) >> t.bits;
    });
    add("mad.lo", "xxxx", [=](u64 a, u64 b, u64 c) {
      return static_cast<u64>(static_cast<unsigned __int128>(v(a)) *
                              static_cast<unsigned __int128>(v(b))) +
             c;
    });
    if (t.bits < 64) {
      const Type wide{"", t.bits == 16 ? 'w' : 'd', 2 * t.bits, t.is_signed};
      const std::string two{wide.letter, t.letter, t.letter};
      ops.push_back(
          {"mul.wide" + n, two, [=](u64 a, u64 b, u64) { return static_cast<u64>(v(a) * v(b)); }});
      ops.push_back({"mad.wide" + n, two + wide.letter,
                     [=](u64 a, u64 b, u64 c) { return static_cast<u64>(v(a) * v(b)) + c; }});
    }
    add("min", "xxx", [=](u64 a, u64 b, u64) { return v(a) < v(b) ? a : b; });
    add("max", "xxx", [=](u64 a, u64 b, u64) { return v(a) > v(b) ? a : b; });
    add("sad", "xxxx", [=](u64 a, u64 b, u64 c) {
      return c + static_cast<u64>(v(a) < v(b) ? v(b) - v(a) : v(a) - v(b));
    });
    if (t.is_signed) {
      add("neg", "xx", [=](u64 a, u64, u64) { return -v(a); });
      add("abs", "xx", [=](u64 a, u64, u64) { return v(a) < 0 ? -v(a) : v(a); });
    }
    add("div", "xxx", [=](u64 a, u64 b, u64) { return v(b) == 0 ? Wide{-1} : v(a) / v(b); });
    add("rem", "xxx", [=](u64 a, u64 b, u64) { return v(b) == 0 ? v(a) : v(a) % v(b); });
    add("shr", "xxw", [=](u64 a, u64 b, u64) {
      const s64 wide = t.is_signed ? sign_extended(a, t.bits) : 0;
      return b >= static_cast<u64>(t.bits) ? (wide < 0 ? u64(-1) : 0)
             : t.is_signed                 ? static_cast<u64>(wide >> b)
                                           : a >> b;
    });
    const std::pair<const char*, bool (*)(Wide, Wide)> compares[] = {
        {"eq", [](Wide a, Wide b) { return a == b; }},
        {"ne", [](Wide a, Wide b) { return a != b; }},
        {"lt", [](Wide a, Wide b) { return a < b; }},
        {"le", [](Wide a, Wide b) { return a <= b; }},
        {"gt", [](Wide a, Wide b) { return a > b; }},
        {"ge", [](Wide a, Wide b) { return a >= b; }}};
    for (const auto& [name, compare] : compares) {
      const auto f = compare;
      const std::string head = std::string("setp.") + name;
      ops.push_back(
          {head + n, letters(t, "pxx"), [=](u64 a, u64 b, u64) { return u64{f(v(a), v(b))}; }});
      ops.push_back({joined({head, ".and", n}), letters(t, "pxxp"),
                     [=](u64 a, u64 b, u64 c) { return u64{f(v(a), v(b)) && c}; }});
      ops.push_back({joined({head, ".or", n}), letters(t, "pxxp"),
                     [=](u64 a, u64 b, u64 c) { return u64{f(v(a), v(b)) || c}; }});
      ops.push_back({joined({head, ".xor", n}), letters(t, "pxxp"),
                     [=](u64 a, u64 b, u64 c) { return u64{f(v(a), v(b)) != (c != 0)}; }});
    }
  }
  check(ops);
}

TEST_F(Integers, Bits) {
  std::vector<Operation> ops;
  const auto nibbles = [](u64 v, int bits, auto f) {
    u64 r = 0;
    for (int i = 0; i < bits; ++i) r |= u64{f(i, v)} << i;
    return r;
  };
  for (const auto& [n, letter, bits] :
       {std::tuple(".b16", "h", 16), std::tuple(".b32", "w", 32), std::tuple(".b64", "d", 64)}) {
    const std::string x = letter;
    const std::string xxx(3, *letter);
    const int width = bits;
    ops.push_back({std::string("and") + n, xxx, [](u64 a, u64 b, u64) { return a & b; }});
    ops.push_back({std::string("or") + n, xxx, [](u64 a, u64 b, u64) { return a | b; }});
    ops.push_back({std::string("xor") + n, xxx, [](u64 a, u64 b, u64) { return a ^ b; }});
    ops.push_back({std::string("not") + n, x + x, [](u64 a, u64, u64) { return ~a; }});
    ops.push_back({std::string("cnot") + n, x + x, [](u64 a, u64, u64) { return u64{a == 0}; }});
    ops.push_back({std::string("shl") + n, x + x + "w",
                   [=](u64 a, u64 b, u64) { return b >= static_cast<u64>(width) ? 0 : a << b; }});
    ops.push_back(
        {std::string("selp") + n, xxx + "p", [](u64 a, u64 b, u64 c) { return c != 0 ? a : b; }});
    if (bits == 16) continue;
    ops.push_back({std::string("popc") + n, "w" + x, [=](u64 a, u64, u64) {
                     u64 r = 0;
                     for (int i = 0; i < width; ++i) r += a >> i & 1;
                     return r;
                   }});
    ops.push_back({std::string("clz") + n, "w" + x, [=](u64 a, u64, u64) {
                     u64 r = 0;
                     while (r < static_cast<u64>(width) &&
                            (a >> (width - 1 - static_cast<int>(r)) & 1) == 0)
                       ++r;
                     return r;
                   }});
    ops.push_back({std::string("brev") + n, x + x, [=](u64 a, u64, u64) {
                     return nibbles(a, width,
                                    [=](int i, u64 v) { return (v >> (width - 1 - i) & 1) != 0; });
                   }});
    ops.push_back({std::string("slct") + n + ".s32", xxx + "w",
                   [](u64 a, u64 b, u64 c) { return static_cast<s32>(c) >= 0 ? a : b; }});
  }
  for (const Type& t : types) {
    if (t.bits == 16) continue;
    const std::string n = std::string(".") + t.name;
    const int bits = t.bits;
    ops.push_back({"bfind" + n, letters(t, "wx"), [=](u64 a, u64, u64) {
                     const bool negative = t.is_signed && (a >> (bits - 1) & 1) != 0;
                     for (int i = bits - 1; i >= 0; --i) {
                       if ((a >> i & 1) != (negative ? 1 : 0)) return static_cast<u64>(i);
                     }
                     return u64{0xffffffff};
                   }});
    // As the manual's loop says.
    ops.push_back({"bfe" + n, letters(t, "xxww"), [=](u64 a, u64 b, u64 c) {
                     const int pos = static_cast<int>(b & 0xff);
                     const int len = static_cast<int>(c & 0xff);
                     const int msb = bits - 1;
                     const bool sign =
                         t.is_signed && len != 0 && (a >> std::min(pos + len - 1, msb) & 1) != 0;
                     return nibbles(a, bits, [=](int i, u64 v) {
                       return i < len && pos + i <= msb ? (v >> (pos + i) & 1) != 0 : sign;
                     });
                   }});
  }
  for (int pos : {0, 3, 8, 31, 40}) {
    for (int len : {0, 1, 8, 32, 64}) {
      for (const auto& [n, letter, bits] :
           {std::tuple(".b32", "w", 32), std::tuple(".b64", "d", 64)}) {
        const std::string xxx(3, *letter);
        const int width = bits;
        ops.push_back({std::string("bfi") + n, xxx,
                       [=](u64 a, u64 b, u64) {
                         u64 r = b;
                         for (int i = 0; i < len && pos + i < width; ++i)
                           r = (r & ~(u64{1} << (pos + i))) | (a >> i & 1) << (pos + i);
                         return r;
                       },
                       ", " + std::to_string(pos) + ", " + std::to_string(len)});
      }
    }
  }
  ops.push_back({"prmt.b32", "wwww", [](u64 a, u64 b, u64 c) {
                   const u64 both = b << 32 | a;
                   u64 r = 0;
                   for (int i = 0; i < 4; ++i) {
                     const int s = static_cast<int>(c >> (4 * i) & 15);
                     u64 byte = both >> (8 * (s & 7)) & 255;
                     if (s >= 8) byte = byte >= 128 ? 255 : 0;
                     r |= byte << (8 * i);
                   }
                   return r;
                 }});
  for (int table : {0x00, 0x80, 0xe8, 0x96, 0xca, 0xf0, 0xcc, 0xaa, 0x01, 0xff}) {
    ops.push_back({"lop3.b32", "wwww",
                   [=](u64 a, u64 b, u64 c) {
                     return nibbles(0, 32, [=](int i, u64) {
                       return (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) !=
                              0;
                     });
                   },
                   ", " + std::to_string(table)});
  }
  ops.push_back({"shf.l.wrap.b32", "wwww", [](u64 a, u64 b, u64 c) {
                   return c % 32 == 0 ? b : b << c % 32 | a >> (32 - c % 32);
                 }});
  ops.push_back({"shf.r.wrap.b32", "wwww", [](u64 a, u64 b, u64 c) {
                   return c % 32 == 0 ? a : b << (32 - c % 32) | a >> c % 32;
                 }});
  ops.push_back({"shf.l.clamp.b32", "wwww", [](u64 a, u64 b, u64 c) {
                   return c >= 32 ? a : c == 0 ? b : b << c | a >> (32 - c);
                 }});
  ops.push_back({"shf.r.clamp.b32", "wwww", [](u64 a, u64 b, u64 c) {
                   return c >= 32 ? b : c == 0 ? a : b << (32 - c) | a >> c;
                 }});
  check(ops);
}

TEST_F(Integers, DotProducts) {
  std::vector<Operation> ops;
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      const auto part = [](u64 v, int at, int bits, bool is_signed) {
        return is_signed ? sign_extended(v >> at, bits)
                         : static_cast<s64>(v >> at & ((1u << bits) - 1));
      };
      const std::string n = std::string(a_signed ? ".s32" : ".u32") + (b_signed ? ".s32" : ".u32");
      ops.push_back({"dp4a" + n, "wwww", [=](u64 a, u64 b, u64 c) {
                       s64 sum = static_cast<s64>(c);
                       for (int i = 0; i < 4; ++i)
                         sum += part(a, 8 * i, 8, a_signed) * part(b, 8 * i, 8, b_signed);
                       return static_cast<u64>(sum);
                     }});
      for (const int high : {0, 1}) {
        ops.push_back({std::string("dp2a") + (high != 0 ? ".hi" : ".lo") + n, "wwww",
                       [=](u64 a, u64 b, u64 c) {
                         s64 sum = static_cast<s64>(c);
                         for (int i = 0; i < 2; ++i)
                           sum += part(a, 16 * i, 16, a_signed) *
                                  part(b, 8 * i + 16 * high, 8, b_signed);
                         return static_cast<u64>(sum);
                       }});
      }
    }
  }
  check(ops);
}

TEST_F(Integers, Conversions) {
  constexpr Type small[] = {{"u8", 'h', 8, false}, {"s8", 'h', 8, true}};
  std::vector<Type> all(std::begin(small), std::end(small));
  all.insert(all.end(), std::begin(types), std::end(types));
  std::vector<Operation> ops;
  for (const Type& d : all) {
    for (const Type& s : all) {
      if (d.bits == s.bits && d.is_signed == s.is_signed) continue;
      const auto v = [s](u64 bits) {
        return s.is_signed ? Wide{sign_extended(bits, s.bits)}
                           : Wide{s.bits == 64 ? bits : bits & ((u64{1} << s.bits) - 1)};
      };
      // A result of 8 bits is extended to its register.
      const auto widened = [d](u64 r) {
        return d.is_signed    ? static_cast<u64>(sign_extended(r, d.bits))
               : d.bits == 64 ? r
                              : r & ((u64{1} << d.bits) - 1);
      };
      const std::string n = std::string(".") + d.name + "." + s.name;
      ops.push_back({"cvt" + n, {d.letter, s.letter}, [=](u64 a, u64, u64) {
                       return widened(static_cast<u64>(v(a)));
                     }});
      ops.push_back({"cvt.sat" + n, {d.letter, s.letter}, [=](u64 a, u64, u64) {
                       const Wide top = (Wide{1} << (d.is_signed ? d.bits - 1 : d.bits)) - 1;
                       const Wide bottom = d.is_signed ? -top - 1 : Wide{0};
                       return widened(static_cast<u64>(std::min(std::max(v(a), bottom), top)));
                     }});
      // Wider registers.
      if (s.bits < 32)
        ops.push_back({"cvt" + n, {d.letter, 'w'}, [=](u64 a, u64, u64) {
                         return widened(static_cast<u64>(v(a)));
                       }});
      if (d.bits < 32)
        ops.push_back({"cvt" + n, {'w', s.letter}, [=](u64 a, u64, u64) {
                         return widened(static_cast<u64>(v(a)));
                       }});
      if (s.bits < 64)
        ops.push_back({"cvt" + n, {d.letter, 'd'}, [=](u64 a, u64, u64) {
                         return widened(static_cast<u64>(v(a)));
                       }});
    }
  }
  check(ops);
}

}  // namespace
}  // namespace standin_test
