#include "tests/cuda/driver/opcode.hpp"

#include <algorithm>
#include <initializer_list>

namespace standin {
namespace {

std::vector<std::string> split(const std::string& opcode) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= opcode.size()) {
    const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool one_of(const std::string& text, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return text == n; });
}

char letter_of(const Operand& o, const Function& f) {
  const Operand* r = &o;
  if (o.kind == Kind::vector && !o.parts.empty()) r = o.parts.data();
  if (r->kind != Kind::reg) return 0;
  const Width width = f.registers[static_cast<std::size_t>(r->reg)].width;
  return width == Width::pred ? 'p' : width == Width::half ? 'h' : width == Width::word ? 'w' : 'd';
}

u32 bytes_of(const std::string& type) {
  return type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
}

// The register that a value of the type fits in.
char natural(const std::string& type) {
  const u32 bytes = bytes_of(type);
  return bytes == 8 ? 'd' : bytes == 4 ? 'w' : 'h';
}

// The next part, if it is one of these.
bool take(const std::vector<std::string>& parts, std::size_t& at,
          std::initializer_list<const char*> names) {
  if (at >= parts.size() || !one_of(parts[at], names)) return false;
  ++at;
  return true;
}

void take_order(const std::vector<std::string>& parts, std::size_t& at) {
  if (take(parts, at, {"volatile", "weak"})) return;
  if (take(parts, at, {"relaxed", "acquire", "release", "acq_rel"})) {
    if (!take(parts, at, {"cta", "gpu", "sys"})) at = parts.size();
  } else {
    take(parts, at, {"cta", "gpu", "sys"});
  }
}

void take_space(const std::vector<std::string>& parts, std::size_t& at, Space& space) {
  if (at >= parts.size()) return;
  const std::string& name = parts[at];
  if (name == "global")
    space = Space::global;
  else if (name == "shared" || name == "shared::cta")
    space = Space::shared;
  else if (name == "local")
    space = Space::local;
  else if (name == "param")
    space = Space::param;
  else if (name == "const")
    space = Space::constant;
  else
    return;
  ++at;
}

void move(const Statement& s, const Function& f, const std::vector<std::string>& parts, Opcode& o) {
  const bool loads = parts[0] == "ld";
  std::size_t at = 1;
  take_order(parts, at);
  take_space(parts, at, o.space);
  if (!loads && o.space == Space::constant) return;
  if (loads && o.space == Space::global) take(parts, at, {"nc"});
  if (loads)
    take(parts, at, {"ca", "cg", "cs", "lu", "cv"});
  else
    take(parts, at, {"wb", "cg", "cs", "wt"});
  take(parts, at,
       {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
        "L1::no_allocate"});
  take(parts, at, {"L2::64B", "L2::128B", "L2::256B"});
  std::string vector;
  u32 count = 1;
  if (at < parts.size() && one_of(parts[at], {"v2", "v4"})) {
    vector = parts[at++] + ".";
    count = vector == "v2." ? 2 : 4;
  }
  if (at + 1 != parts.size() || s.operands.size() != 2) return;  // (the key stays unknown)
  const Operand& value = s.operands[loads ? 0 : 1];
  char reg = letter_of(value, f);
  if (reg == 0) reg = natural(parts[at]);
  o.key = parts[0] + "." + vector + parts[at] + "/" + reg;
  if (o.space == Space::shared || o.space == Space::generic)
    o.granule = bytes_of(parts[at]) * count;
  if (loads && count > 1 && value.kind != Kind::vector) o.key.clear();
}

void atomic(const std::vector<std::string>& parts, Opcode& o) {
  std::size_t at = 1;
  take_order(parts, at);
  take(parts, at, {"cta", "gpu", "sys"});
  take_space(parts, at, o.space);
  if (o.space != Space::global && o.space != Space::shared && o.space != Space::generic) return;
  if (at + 2 != parts.size()) return;
  o.key = parts[0] + "." + parts[at] + "." + parts[at + 1];
  o.granule = o.space == Space::global ? 0 : bytes_of(parts[at + 1]);
}

void async_copy(const Statement& s, const std::vector<std::string>& parts, Opcode& o) {
  if (parts.size() > 2 && one_of(parts[2], {"commit_group", "wait_group", "wait_all"})) {
    o.key = s.opcode;
    return;
  }
  std::size_t at = 2;
  const bool all = take(parts, at, {"ca"});
  if (!all && !take(parts, at, {"cg"})) return;
  if (!take(parts, at, {"shared", "shared::cta"}) || !take(parts, at, {"global"})) return;
  take(parts, at, {"L2::64B", "L2::128B", "L2::256B"});
  if (at != parts.size() || s.operands.size() < 3 || s.operands.size() > 4) return;
  const Operand& size = s.operands[2];
  if (size.kind != Kind::immediate ||
      (size.bits != 16 && (!all || (size.bits != 4 && size.bits != 8))))
    return;
  o.bytes = static_cast<u16>(size.bits);
  o.granule = o.bytes;
  o.space = Space::shared;
  o.second_space = Space::global;
  o.operands.erase(o.operands.begin() + 2);
  o.key = o.operands.size() == 3 ? "cp.async/zero" : "cp.async";
}

}  // namespace

Opcode opcode_of(const Statement& s, const Function& f) {
  Opcode o;
  o.operands = s.operands;
  const std::vector<std::string> parts = split(s.opcode);
  if (parts[0] == "ld" || parts[0] == "st") {
    move(s, f, parts, o);
  } else if (parts[0] == "ldu") {
    o.key.clear();
  } else if (parts[0] == "atom" || parts[0] == "red") {
    atomic(parts, o);
  } else if (parts[0] == "cp" && parts.size() > 1 && parts[1] == "async") {
    async_copy(s, parts, o);
  } else if (parts[0] == "ldmatrix") {
    o.key = s.opcode;
    o.space = Space::generic;
    const std::size_t shared = o.key.find(".shared.");
    if (shared != std::string::npos) {
      o.key.erase(shared, 7);
      o.space = Space::shared;
    }
    o.granule = 16;
  } else if (parts[0] == "cvt" && s.operands.size() >= 2) {
    o.key = s.opcode + "/";
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      const char reg = letter_of(s.operands[i], f);
      const std::size_t type = parts.size() - (i == 0 ? 2 : 1);
      o.key += reg != 0 ? reg : natural(parts[type]);
    }
  } else if (one_of(s.opcode, {"bar.sync", "bar.cta.sync", "barrier.sync.aligned",
                               "barrier.cta.sync.aligned", "bar.arrive"})) {
    o.key = s.opcode + "/" + std::to_string(s.operands.size());
  } else if (parts[0] == "mov" && s.operands.size() == 2 && s.operands[1].kind == Kind::vector) {
    o.key = s.opcode + "/pack" + std::to_string(s.operands[1].parts.size());
  } else if (parts[0] == "mov" && s.operands.size() == 2 && s.operands[0].kind == Kind::vector) {
    o.key = s.opcode + "/unpack" + std::to_string(s.operands[0].parts.size());
  } else if (parts[0] == "shfl" && !s.operands.empty() && s.operands[0].pair >= 0) {
    o.key = s.opcode + "|p";
    Operand second;
    second.kind = Kind::reg;
    second.reg = o.operands[0].pair;
    o.operands[0].pair = -1;
    o.operands.insert(o.operands.begin() + 1, second);
  } else {
    o.key = s.opcode;
  }
  return o;
}

std::string why_unknown(const std::string& opcode) {
  const std::vector<std::string> parts = split(opcode);
  const auto has = [&](const char* name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  if (has("ftz")) return opcode + ": .ftz flushes subnormal numbers";
  if (has("approx")) return opcode + ": .approx is not exact";
  if (one_of(parts[0], {"add", "sub", "mul", "mad", "fma"}) &&
      one_of(parts.back(), {"f16", "f16x2", "f32", "f64"}) && parts.size() == 2) {
    return opcode + ": without .rn it may be contracted";
  }
  return opcode + " with these operands is not known";
}

}  // namespace standin
