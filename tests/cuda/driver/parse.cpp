#include <cstring>
#include <optional>

#include "tests/cuda/driver/ptx.hpp"
#include "tests/cuda/driver/token.hpp"

namespace standin {
namespace {

const char* const special_names[special_rows] = {
    "%tid.x",          "%tid.y",       "%tid.z",
    "%ntid.x",         "%ntid.y",      "%ntid.z",
    "%ctaid.x",        "%ctaid.y",     "%ctaid.z",
    "%nctaid.x",       "%nctaid.y",    "%nctaid.z",
    "%laneid",         "%warpid",      "%nwarpid",
    "%lanemask_eq",    "%lanemask_lt", "%lanemask_le",
    "%lanemask_gt",    "%lanemask_ge", "%dynamic_smem_size",
    "%total_smem_size"};

struct Type {
  Width width;
  u32 bytes;
  bool is_float;
};

std::optional<Type> type_of(std::string_view text) {
  if (text == ".pred") return Type{Width::pred, 1, false};
  if (text == ".b8" || text == ".u8" || text == ".s8") return Type{Width::half, 1, false};
  if (text == ".b16" || text == ".u16" || text == ".s16") return Type{Width::half, 2, false};
  if (text == ".f16") return Type{Width::half, 2, true};
  if (text == ".b32" || text == ".u32" || text == ".s32") return Type{Width::word, 4, false};
  if (text == ".f16x2" || text == ".f32") return Type{Width::word, 4, true};
  if (text == ".b64" || text == ".u64" || text == ".s64") return Type{Width::twice, 8, false};
  if (text == ".f64") return Type{Width::twice, 8, true};
  return std::nullopt;
}

struct Scope {
  std::unordered_map<std::string, int> registers;
  struct Family {
    std::string prefix;
    u32 count;
    Width width;
  };
  std::vector<Family> families;
  std::unordered_map<std::string, int> variables;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) { scopes_.emplace_back(); }

  Text run() {
    while (!peek().text.empty()) top();
    if (text_.version == 0 || text_.target.empty()) refuse("no .version or .target");
    return std::move(text_);
  }

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool take(std::string_view text) {
    if (!peek().is(text)) return false;
    next();
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) {
      refuse("\"" + std::string(text) + "\" was expected before \"" + std::string(peek().text) +
             "\"");
    }
  }
  [[noreturn]] void refuse(const std::string& what) const { throw Refused(peek().line, what); }

  std::string word() {
    if (!peek().is_word())
      refuse("a name was expected before \"" + std::string(peek().text) + "\"");
    return std::string(next().text);
  }

  struct Number {
    u64 bits;
    bool is_float = false;
    bool is_double = false;
  };

  Number number() {
    bool minus = false;
    while (peek().is("-") || peek().is("+")) minus ^= next().is("-");
    if (!peek().is_number())
      refuse("a number was expected before \"" + std::string(peek().text) + "\"");
    std::string digits(next().text);
    Number n{0};
    int base = 10;
    std::size_t used = 0;
    if (digits.size() > 2 && digits[0] == '0' && std::strchr("fFdDxXbB", digits[1]) != nullptr) {
      const char kind = static_cast<char>(digits[1] | 0x20);
      n.is_float = kind == 'f' || kind == 'd';
      n.is_double = kind == 'd';
      base = kind == 'b' ? 2 : 16;
      if ((kind == 'f' && digits.size() != 10) || (kind == 'd' && digits.size() != 18)) {
        refuse("the float " + digits);
      }
      digits = digits.substr(2);
    } else if (digits.size() > 1 && digits[0] == '0') {
      base = 8;
    }
    if (!n.is_float && (digits.back() == 'U' || digits.back() == 'u')) digits.pop_back();
    try {
      n.bits = std::stoull(digits, &used, base);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != digits.size()) refuse("the number " + digits);
    if (minus && n.is_float) refuse("a sign before a float's bits");
    if (minus) n.bits = 0 - n.bits;
    return n;
  }

  // ---- top level ----

  void top() {
    if (take(".version")) {
      const std::string v(next().text);
      const std::size_t dot = v.find('.');
      if (dot == std::string::npos) refuse("the version " + v);
      text_.version = static_cast<u32>(std::stoul(v) * 10 + std::stoul(v.substr(dot + 1)));
    } else if (take(".target")) {
      text_.target = word();
      if (peek().is(",")) refuse("a second target");
    } else if (take(".address_size")) {
      if (number().bits != 64) refuse("addresses of other than 64 bits");
    } else if (take(".file")) {
      const u32 line = peek().line;
      while (!peek().text.empty() && peek().line == line) next();
    } else {
      declaration();
    }
  }

  void declaration() {
    bool is_extern = false;
    while (peek().is(".visible") || peek().is(".weak") || peek().is(".extern") ||
           peek().is(".common")) {
      is_extern |= next().is(".extern");
    }
    if (peek().is(".entry") || peek().is(".func")) {
      function();
    } else {
      variable(is_extern);
    }
  }

  static std::optional<Space> space_of(std::string_view text) {
    if (text == ".global") return Space::global;
    if (text == ".const") return Space::constant;
    if (text == ".shared") return Space::shared;
    if (text == ".local") return Space::local;
    if (text == ".param") return Space::param;
    return std::nullopt;
  }

  // `.space [.align n] .type name[sizes]`, without what follows.
  int declared(Type& type) {
    const auto space = space_of(peek().text);
    if (!space) refuse("\"" + std::string(peek().text) + "\" is not known");
    next();
    Variable v;
    v.space = *space;
    if (take(".align")) v.align = static_cast<u32>(number().bits);
    const auto t = type_of(peek().text);
    if (!t || t->width == Width::pred) refuse("the type " + std::string(peek().text));
    next();
    type = *t;
    v.align = std::max(v.align, type.bytes);
    v.name = word();
    v.size = type.bytes;
    while (take("[")) {
      if (take("]")) {
        v.is_dynamic = true;
        v.size = 0;
      } else {
        v.size *= number().bits;
        expect("]");
      }
    }
    const int id = static_cast<int>(text_.variables.size());
    if (!scopes_.back().variables.emplace(v.name, id).second) refuse(v.name + " is declared twice");
    text_.variables.push_back(std::move(v));
    return id;
  }

  void variable(bool is_extern) {
    Type type{};
    const int id = declared(type);
    Variable& v = text_.variables[static_cast<std::size_t>(id)];
    if (v.is_dynamic && (v.space != Space::shared || !is_extern)) refuse(v.name + " has no size");
    if (is_extern && !v.is_dynamic) refuse(v.name + " is defined elsewhere");
    if (take("=")) {
      if (v.space != Space::global && v.space != Space::constant)
        refuse("an initialiser of " + v.name);
      values(v, type);
      if (v.init.size() > v.size) refuse("too many values for " + v.name);
    }
    if (v.space == Space::global || v.space == Space::constant) v.init.resize(v.size);
    expect(";");
  }

  void values(Variable& v, const Type& type) {
    if (take("{")) {
      if (take("}")) return;
      do {
        values(v, type);
      } while (take(","));
      expect("}");
      return;
    }
    if (peek().is_word()) refuse("an address as an initialiser of " + v.name);
    const u64 bits = number().bits;
    for (u32 i = 0; i < type.bytes; ++i) v.init.push_back(static_cast<u8>(bits >> (8 * i)));
  }

  // ---- functions ----

  std::vector<int> parameters() {
    std::vector<int> ids;
    expect("(");
    if (take(")")) return ids;
    do {
      Type type{};
      if (!peek().is(".param")) refuse("a parameter that is no .param");
      ids.push_back(declared(type));
    } while (take(","));
    expect(")");
    return ids;
  }

  void function() {
    Function f;
    f.line = peek().line;
    f.entry = next().is(".entry");
    function_ = &f;
    scopes_.emplace_back();
    for (u32 i = 0; i < special_rows; ++i) {
      f.registers.push_back({special_names[i], Width::word, true, i});
      scopes_.back().registers.emplace(special_names[i], static_cast<int>(i));
    }
    if (!f.entry && peek().is("(")) f.results = parameters();
    f.name = word();
    if (peek().is("(")) f.parameters = parameters();
    for (;;) {
      if (take(".noreturn")) {
      } else if (peek().is(".maxntid") || peek().is(".reqntid")) {
        next();
        f.max_threads = 1;
        do {
          f.max_threads *= static_cast<u32>(number().bits);
        } while (take(","));
      } else if (take(".minnctapersm") || take(".maxnreg")) {
        number();
      } else {
        break;
      }
    }
    if (!take(";")) {
      block();
      order_parts(f);
      text_.functions.push_back(std::move(f));
    }
    scopes_.pop_back();
    function_ = nullptr;
  }

  void block() {
    expect("{");
    while (!take("}")) {
      if (peek().text.empty()) refuse("the end of the text within a function");
      if (peek().is("{")) {
        scopes_.emplace_back();
        block();
        scopes_.pop_back();
      } else if (take(".reg")) {
        registers();
      } else if (space_of(peek().text)) {
        variable(false);
      } else if (take(".pragma")) {
        next();
        expect(";");
      } else if (take(".loc")) {
        const u32 line = peek().line;
        while (peek().line == line) next();
      } else if (take(";")) {
      } else if (peek().is_word() && peek(1).is(":")) {
        if (!function_->labels.emplace(word(), static_cast<u32>(function_->body.size())).second) {
          refuse("a label stands twice");
        }
        expect(":");
      } else {
        statement();
      }
    }
  }

  void registers() {
    const auto type = type_of(peek().text);
    if (!type) refuse("registers of the type " + std::string(peek().text));
    next();
    do {
      const std::string name = word();
      if (take("<")) {
        scopes_.back().families.push_back({name, static_cast<u32>(number().bits), type->width});
        expect(">");
      } else {
        scopes_.back().registers[name] = static_cast<int>(function_->registers.size());
        function_->registers.push_back({name, type->width});
      }
    } while (take(","));
    expect(";");
  }

  int find_register(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->registers.find(name);
      if (found != scope->registers.end()) return found->second;
      for (const Scope::Family& family : scope->families) {
        if (name.size() <= family.prefix.size() ||
            name.compare(0, family.prefix.size(), family.prefix) != 0) {
          continue;
        }
        const std::string digits = name.substr(family.prefix.size());
        if (digits.find_first_not_of("0123456789") != std::string::npos ||
            std::stoul(digits) >= family.count) {
          continue;
        }
        const int id = static_cast<int>(function_->registers.size());
        function_->registers.push_back({name, family.width});
        scope->registers.emplace(name, id);
        return id;
      }
    }
    return -1;
  }

  int find_variable(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->variables.find(name);
      if (found != scope->variables.end()) return found->second;
    }
    return -1;
  }

  void statement() {
    Statement s;
    s.line = peek().line;
    if (take("@")) {
      s.guard_negated = take("!");
      const std::string name = word();
      s.guard = find_register(name);
      if (s.guard < 0) refuse("the predicate " + name);
    }
    s.opcode = word();
    if (s.opcode == "call" || s.opcode == "call.uni") {
      if (peek().is("(")) {
        s.results = list("(", ")");
        expect(",");
      }
      s.operands.push_back(operand());
      if (take(",")) s.arguments = list("(", ")");
      expect(";");
    } else if (!take(";")) {
      do {
        s.operands.push_back(operand());
      } while (take(","));
      expect(";");
    }
    function_->body.push_back(std::move(s));
  }

  std::vector<Operand> list(std::string_view open, std::string_view close) {
    std::vector<Operand> parts;
    expect(open);
    if (take(close)) return parts;
    do {
      parts.push_back(operand());
    } while (take(","));
    expect(close);
    return parts;
  }

  Operand operand() {
    Operand o;
    if (peek().is("{")) {
      o.kind = Kind::vector;
      o.parts = list("{", "}");
      return o;
    }
    if (take("[")) {
      o = operand();
      if (o.kind != Kind::reg && o.kind != Kind::symbol && o.kind != Kind::immediate)
        refuse("an address");
      if (o.kind == Kind::reg && (peek().is("+") || peek().is("-"))) o.bits = number().bits;
      o.kind = Kind::address;
      expect("]");
      return o;
    }
    if (take("!")) {
      o = operand();
      o.is_negated = true;
      return o;
    }
    if (peek().is_number() || peek().is("-")) {
      const Number n = number();
      o.kind = Kind::immediate;
      o.bits = n.bits;
      o.is_float = n.is_float;
      o.is_double = n.is_double;
      return o;
    }
    o.name = word();
    if (o.name == "_") {
      o.kind = Kind::sink;
      return o;
    }
    o.reg = find_register(o.name);
    if (o.reg >= 0) {
      o.kind = Kind::reg;
      if (take("|")) {
        const std::string second = word();
        o.pair = find_register(second);
        if (o.pair < 0) refuse("the register " + second);
      }
      return o;
    }
    if (o.name[0] == '%') refuse("the register " + o.name);
    o.variable = find_variable(o.name);
    o.kind = o.variable >= 0 ? Kind::symbol : Kind::label;
    if (o.kind == Kind::symbol && (peek().is("+") || peek().is("-"))) o.bits = number().bits;
    return o;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Text text_;
  std::vector<Scope> scopes_;
  Function* function_ = nullptr;
};

}  // namespace

Text parse(std::string_view text) { return Parser(text).run(); }

}  // namespace standin
