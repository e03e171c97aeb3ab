#include "decode.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

namespace octavo::testing::tiles {
namespace {

constexpr int rip = 16;

// The prefix that VEX says in two bits.
enum Prefix : std::uint8_t { none = 0, p66 = 1, pF3 = 2, pF2 = 3 };

struct Vex {
  bool r = false, x = false, b = false;  // as they are meant, not as they are stored
  int vvvv = 0;
  bool wide = false;
  Prefix prefix = none;
};

// ModRM, SIB and displacement. Reads only what they say is there.
int decode_operand(const std::uint8_t* at, const Vex& vex, Operand& out) {
  const int mod = at[0] >> 6, rm = at[0] & 7;
  int length = 1;
  if (mod == 3) {
    out.reg = rm + (vex.b ? 8 : 0);
    return length;
  }
  out.is_memory = true;
  out.base = rm + (vex.b ? 8 : 0);
  int displacement_bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  if (rm == 4) {
    const std::uint8_t sib = at[length++];
    out.has_sib = true;
    out.scale = 1 << (sib >> 6);
    out.index = ((sib >> 3) & 7) + (vex.x ? 8 : 0);
    if (out.index == 4) out.index = -1;
    out.base = (sib & 7) + (vex.b ? 8 : 0);
    if ((sib & 7) == 5 && mod == 0) {
      out.base = -1;
      displacement_bytes = 4;
    }
  } else if (rm == 5 && mod == 0) {
    out.base = rip;
    displacement_bytes = 4;
  }
  if (displacement_bytes == 1) out.displacement = (at[length] ^ 0x80) - 0x80;
  if (displacement_bytes == 4) std::memcpy(&out.displacement, &at[length], 4);
  return length + displacement_bytes;
}

std::optional<Kind> tile_kind(std::uint8_t opcode, Prefix prefix, bool memory, int reg) {
  if (opcode == 0x49 && memory && reg == 0) {
    if (prefix == none) return Kind::ldtilecfg;
    if (prefix == p66) return Kind::sttilecfg;
  }
  if (opcode == 0x49 && !memory) {
    if (prefix == none && reg == 0) return Kind::tilerelease;
    if (prefix == pF2) return Kind::tilezero;
  }
  if (opcode == 0x4B && memory) {
    if (prefix == pF2) return Kind::tileloadd;
    if (prefix == p66) return Kind::tileloaddt1;
    if (prefix == pF3) return Kind::tilestored;
  }
  if (opcode == 0x5E && !memory) {
    constexpr Kind kinds[] = {Kind::tdpbuud, Kind::tdpbusd, Kind::tdpbsud, Kind::tdpbssd};
    return kinds[prefix];
  }
  return std::nullopt;
}

bool is_product(Kind kind) { return kind >= Kind::tdpbssd && kind <= Kind::tdpbuud; }
bool moves_tile(Kind kind) { return kind >= Kind::tileloadd && kind <= Kind::tilestored; }

// What the manual forbids of tiles: numbers beyond 7, vvvv that is not used, memory without SIB.
bool is_valid(const Instruction& i, const Vex& vex) {
  if (vex.wide) return false;
  const bool reg_is_tile = is_product(i.kind) || moves_tile(i.kind) || i.kind == Kind::tilezero;
  if (reg_is_tile && vex.r) return false;
  if (is_product(i.kind)) return !vex.b && vex.vvvv < 8;
  if (vex.vvvv != 0) return false;
  if (moves_tile(i.kind)) return i.rm.has_sib;
  if (i.kind == Kind::tilerelease || i.kind == Kind::tilezero) return i.rm.reg == 0;
  return true;
}

constexpr const char* names[] = {"ldtilecfg", "sttilecfg",   "tilerelease", "tilezero",
                                 "tileloadd", "tileloaddt1", "tilestored",  "tdpbssd",
                                 "tdpbsud",   "tdpbusd",     "tdpbuud",     "vpdpbusd",
                                 "vpdpbusds", "vpdpwssd",    "vpdpwssds"};
constexpr const char* registers[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8",
                                     "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rip"};

std::string text_of(const Operand& o, const char* kind) {
  if (!o.is_memory) return fmt::format("%{}{}", kind, o.reg);
  std::string text;
  const bool bare = o.base < 0;
  if (o.displacement != 0 || bare || o.base == rip)
    text = fmt::format("{}0x{:x}", o.displacement < 0 ? "-" : "",
                       std::abs(std::int64_t{o.displacement}));
  if (bare && o.index < 0) return text;
  text += "(";
  if (!bare) text += fmt::format("%{}", registers[o.base]);
  if (o.index >= 0) text += fmt::format(",%{},{}", registers[o.index], o.scale);
  return text + ")";
}

}  // namespace

std::optional<Instruction> decode(const std::uint8_t* code) {
  // All of them are in map 0F38, which needs the long form of the prefix, and have W = 0.
  if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x80) != 0) return std::nullopt;
  Vex vex;
  vex.r = (code[1] & 0x80) == 0;
  vex.x = (code[1] & 0x40) == 0;
  vex.b = (code[1] & 0x20) == 0;
  vex.vvvv = (~code[2] >> 3) & 15;
  vex.wide = (code[2] & 4) != 0;
  vex.prefix = static_cast<Prefix>(code[2] & 3);
  const std::uint8_t opcode = code[3];
  Instruction i;
  i.vvvv = vex.vvvv;
  i.wide = vex.wide;
  const bool vnni = opcode >= 0x50 && opcode <= 0x53 && vex.prefix == p66;
  if (!vnni && opcode != 0x49 && opcode != 0x4B && opcode != 0x5E) return std::nullopt;
  i.length = 4 + decode_operand(&code[4], vex, i.rm);
  i.reg = (code[4] >> 3) & 7;
  if (vnni) {
    constexpr Kind kinds[] = {Kind::vpdpbusd, Kind::vpdpbusds, Kind::vpdpwssd, Kind::vpdpwssds};
    i.kind = kinds[opcode - 0x50];
    i.reg += vex.r ? 8 : 0;
    return i;
  }
  const auto kind = tile_kind(opcode, vex.prefix, i.rm.is_memory, i.reg);
  if (!kind) return std::nullopt;
  i.kind = *kind;
  return is_valid(i, vex) ? std::optional(i) : std::nullopt;
}

std::string to_string(const Instruction& i) {
  const char* name = names[static_cast<std::size_t>(i.kind)];
  if (i.kind == Kind::tilerelease) return name;
  if (i.kind == Kind::tilezero) return fmt::format("{} %tmm{}", name, i.reg);
  if (i.kind == Kind::ldtilecfg || i.kind == Kind::sttilecfg)
    return fmt::format("{} {}", name, text_of(i.rm, ""));
  if (i.kind == Kind::tilestored)
    return fmt::format("{} %tmm{},{}", name, i.reg, text_of(i.rm, ""));
  if (moves_tile(i.kind)) return fmt::format("{} {},%tmm{}", name, text_of(i.rm, ""), i.reg);
  if (is_product(i.kind))
    return fmt::format("{} %tmm{},%tmm{},%tmm{}", name, i.vvvv, i.rm.reg, i.reg);
  const char* kind = i.wide ? "ymm" : "xmm";
  return fmt::format("{{vex}} {} {},%{}{},%{}{}", name, text_of(i.rm, kind), kind, i.vvvv, kind,
                     i.reg);
}

}  // namespace octavo::testing::tiles
