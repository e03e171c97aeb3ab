// From text to instructions: functions are written out where they are called, names become rows.
#include "tests/cuda/driver/decode.hpp"

#include <algorithm>
#include <cstring>

#include "tests/cuda/driver/flat.hpp"
#include "tests/cuda/driver/opcode.hpp"

namespace standin {
namespace {

char letter_of(Width width) {
  return width == Width::pred ? 'p' : width == Width::half ? 'h' : width == Width::word ? 'w' : 'd';
}

class Decoder {
 public:
  Decoder(const Text& text, const Function& entry, const Operations& operations)
      : text_(text),
        entry_(entry),
        operations_(operations),
        kernel_(std::make_unique<Kernel>()) {
    constants_.resize(64);  // (so that no constant has the reference 1)
  }

  std::unique_ptr<Kernel> run() {
    kernel_->name = entry_.name;
    kernel_->max_threads = entry_.max_threads;
    for (const int p : entry_.parameters) {
      const Variable& v = variable(p);
      kernel_->param_bytes = (kernel_->param_bytes + v.align - 1) / v.align * v.align;
      place_[p] = {Space::param, kernel_->param_bytes};
      kernel_->param_offsets.push_back(kernel_->param_bytes);
      kernel_->param_sizes.push_back(static_cast<u32>(v.size));
      kernel_->param_bytes += static_cast<u32>(v.size);
    }
    if (kernel_->param_bytes > 4096) refuse(entry_.line, "parameters of more than 4096 bytes");
    Instance instance;
    instance.function = &entry_;
    expand(instance);
    Flat end;
    end.run = find("exit").run;
    end.jumps = end.leaves = true;
    flat_.code.push_back(end);
    place_dynamic();
    for (const auto& [index, label] : jumps_)
      flat_.code[index].imm = static_cast<s64>(labels_.at(label));
    emit();
    return std::move(kernel_);
  }

 private:
  struct Place {
    Space space;
    u64 offset;
  };
  // A function at one place where it is called.
  struct Instance {
    const Function* function = nullptr;
    const Instance* caller = nullptr;
    std::vector<int> registers;               // virtual register of each of the function's, or -1
    std::unordered_map<int, int> parameters;  // the caller's variables for the formal ones
    u32 id = 0;
  };

  [[noreturn]] static void refuse(u32 line, const std::string& what) { throw Refused(line, what); }

  const Variable& variable(int id) const { return text_.variables[static_cast<std::size_t>(id)]; }

  const Operation& find(std::string_view key) const { return operations_.find(key)->second; }

  Ref constant(Width width, u64 bits) {
    const u32 size = row_bytes(width) / lane_count;
    if (width == Width::pred) bits = bits != 0 ? 0xffffffffu : 0;
    if (size < 8) bits &= (u64{1} << (8 * size)) - 1;
    const auto [found, fresh] =
        constant_refs_.emplace(std::pair(size, bits), constants_.size() | in_constants);
    if (fresh) {
      for (u32 l = 0; l < lane_count; ++l) {
        const auto* bytes = reinterpret_cast<const u8*>(&bits);
        constants_.insert(constants_.end(), bytes, bytes + size);
      }
    }
    return static_cast<Ref>(found->second);
  }

  Place place(const Instance& in, int id, u32 line) {
    for (const Instance* i = &in; i != nullptr; i = i->caller) {
      const auto formal = i->parameters.find(id);
      if (formal != i->parameters.end()) id = formal->second;
    }
    const Variable& v = variable(id);
    if (v.space == Space::global || v.space == Space::constant) return {v.space, v.address};
    const auto found = place_.find(id);
    if (found != place_.end()) return found->second;
    const auto align = [&](u32& at) {
      at = (at + v.align - 1) / v.align * v.align;
      const Place p{v.space == Space::shared ? Space::shared : Space::local, at};
      at += static_cast<u32>(v.size);
      place_[id] = p;
      return p;
    };
    if (v.is_dynamic) {
      // Its offset is known when all others are: a constant of its own until then.
      if (dynamic_ >= 0 && dynamic_ != id) refuse(line, "two arrays of dynamic shared memory");
      dynamic_ = id;
      return {Space::shared, 0};
    }
    if (v.space != Space::shared) return align(kernel_->local_bytes);
    const Place p = align(shared_end_);
    kernel_->shared_bytes =
        (kernel_->shared_bytes + v.align - 1) / v.align * v.align + static_cast<u32>(v.size);
    put_gap();
    return p;
  }

  void put_gap() {
    const u32 end = (shared_end_ + 15) / 16 * 16 + 16;
    kernel_->gaps.emplace_back(shared_end_, end);
    shared_end_ = end;
  }

  int virtual_register(Instance& in, int reg) {
    if (in.registers.empty()) in.registers.assign(in.function->registers.size(), -1);
    int& v = in.registers[static_cast<std::size_t>(reg)];
    if (v < 0) {
      v = static_cast<int>(flat_.registers.size());
      flat_.registers.push_back(in.function->registers[static_cast<std::size_t>(reg)].width);
    }
    return v;
  }

  Slot register_slot(Instance& in, int reg, char wanted, u32 line) {
    const Register& r = in.function->registers[static_cast<std::size_t>(reg)];
    if (letter_of(r.width) != (wanted | 0x20)) refuse(line, "the width of the register " + r.name);
    Slot s;
    s.written = wanted < 'a';
    if (r.special) {
      if (s.written) refuse(line, "a write to " + r.name);
      s.fixed = r.row * word_row;
    } else {
      s.reg = virtual_register(in, reg);
    }
    return s;
  }

  Slot symbol_slot(Instance& in, const Operand& o, u32 line) {
    const Place p = place(in, o.variable, line);
    Slot s;
    if (variable(o.variable).is_dynamic) {
      dynamic_uses_.push_back({flat_.code.size(), next_.slots.size(), o.bits});
    } else {
      s.fixed = constant(Width::twice, p.offset + o.bits);
    }
    return s;
  }

  Slot slot(Instance& in, const Operand& o, char wanted, u32 line) {
    const bool writes = wanted < 'a';
    if (o.is_negated || o.pair >= 0) refuse(line, "an operand with ! or |");
    Slot s;
    switch (o.kind) {
      case Kind::reg:
        return register_slot(in, o.reg, wanted, line);
      case Kind::immediate:
        if (writes) break;
        if (o.is_float && (wanted == 'd') != o.is_double) break;
        s.fixed = constant(wanted == 'p'   ? Width::pred
                           : wanted == 'h' ? Width::half
                           : wanted == 'w' ? Width::word
                                           : Width::twice,
                           o.bits);
        return s;
      case Kind::symbol:
        if (wanted != 'd') break;
        return symbol_slot(in, o, line);
      case Kind::sink:
        if (!writes) break;
        s.written = true;
        s.reg = static_cast<int>(flat_.registers.size());
        flat_.registers.push_back(wanted == 'P'   ? Width::pred
                                  : wanted == 'H' ? Width::half
                                  : wanted == 'W' ? Width::word
                                                  : Width::twice);
        return s;
      default:
        break;
    }
    refuse(line, "the operand " + o.name);
  }

  // The operand is the address number `which` of the instruction.
  Slot address(Instance& in, const Operand& o, u32 which, Space& space, u32 line) {
    if (o.kind != Kind::address) refuse(line, "an operand that should be an address");
    Slot s;
    u64 offset = o.bits;
    if (o.reg >= 0) {
      const Register& r = in.function->registers[static_cast<std::size_t>(o.reg)];
      if (r.width == Width::word) next_.narrow |= static_cast<u8>(1 << which);
      s = register_slot(in, o.reg, r.width == Width::word ? 'w' : 'd', line);
      // (.param of functions that are not kernels is memory of the thread.)
      if (space == Space::param && in.caller != nullptr) space = Space::local;
    } else if (o.variable >= 0) {
      const Place p = place(in, o.variable, line);
      if (space == Space::param) space = p.space;
      if (space != p.space) refuse(line, "the space of " + o.name);
      Operand base = o;
      base.bits = 0;
      s = symbol_slot(in, base, line);
    } else {
      s.fixed = constant(Width::twice, 0);
    }
    (which == 0 ? next_.imm : next_.imm2) = static_cast<s64>(offset);
    return s;
  }

  void expand(Instance& in) {
    const Function& f = *in.function;
    in.id = ++instances_;
    std::unordered_map<u32, std::vector<std::string>> labels;
    for (const auto& [name, at] : f.labels) labels[at].push_back(name);
    for (u32 at = 0; at <= f.body.size(); ++at) {
      const auto here = labels.find(at);
      if (here != labels.end()) {
        for (const std::string& name : here->second) labels_[{in.id, name}] = flat_.code.size();
      }
      if (at < f.body.size()) statement(in, f.body[at]);
    }
    labels_[{in.id, ""}] = flat_.code.size();  // where a called function returns to
    if (flat_.code.size() > 1u << 20)
      refuse(f.line, "a kernel of more than a million instructions");
  }

  void statement(Instance& in, const Statement& s) {
    next_ = Flat{};
    next_.line = s.line;
    if (s.guard >= 0) {
      next_.guard = register_slot(in, s.guard, 'p', s.line).reg;
      next_.guard_negated = s.guard_negated;
    }
    if (s.opcode == "call" || s.opcode == "call.uni") {
      call(in, s);
      return;
    }
    const Opcode opcode = opcode_of(s, *in.function);
    const auto found = operations_.find(opcode.key);
    if (found == operations_.end()) refuse(s.line, why_unknown(s.opcode));
    next_.run = found->second.run;
    next_.space = opcode.space;
    next_.bytes = opcode.bytes;
    const std::string& operands = found->second.operands;
    if (operands == "branch" || operands == "leave") {
      jump(in, s, operands == "branch");
      return;
    }
    std::size_t at = 0;
    u32 addresses = 0;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (at >= opcode.operands.size()) refuse(s.line, "too few operands of " + s.opcode);
      const Operand& o = opcode.operands[at++];
      if (operands[k] == '{') {
        std::size_t part = 0;
        for (++k; operands[k] != '}'; ++k) {
          if (o.kind != Kind::vector || part >= o.parts.size())
            refuse(s.line, "the vector of " + s.opcode);
          next_.slots.push_back(slot(in, o.parts[part++], operands[k], s.line));
        }
        if (part != o.parts.size()) refuse(s.line, "the vector of " + s.opcode);
      } else if (operands[k] == '[') {
        Space space = addresses == 0 ? opcode.space : opcode.second_space;
        next_.slots.push_back(address(in, o, addresses, space, s.line));
        if (addresses == 0) next_.space = space;
        ++addresses;
      } else if (operands[k] == 'i') {
        if (o.kind != Kind::immediate || o.is_float) refuse(s.line, "an operand of " + s.opcode);
        next_.imm = static_cast<s64>(o.bits);
      } else {
        next_.slots.push_back(slot(in, o, operands[k], s.line));
      }
    }
    if (at != opcode.operands.size()) refuse(s.line, "too many operands of " + s.opcode);
    if (opcode.granule != 0) kernel_->granule = std::min(kernel_->granule, opcode.granule);
    flat_.code.push_back(next_);
  }

  void jump(Instance& in, const Statement& s, bool branches) {
    next_.jumps = true;
    std::string label;
    if (branches) {
      if (s.operands.size() != 1 || s.operands[0].kind != Kind::label)
        refuse(s.line, "the target of a branch");
      label = s.operands[0].name;
      if (!in.function->labels.contains(label)) refuse(s.line, "the label " + label);
    } else if (!s.operands.empty()) {
      refuse(s.line, "too many operands of " + s.opcode);
    } else if (in.caller == nullptr || s.opcode == "exit") {
      next_.leaves = true;
    } else {
      next_.run = find("bra").run;
    }
    if (!next_.leaves) jumps_.push_back({flat_.code.size(), {in.id, label}});
    flat_.code.push_back(next_);
  }

  void call(Instance& in, const Statement& s) {
    if (s.guard >= 0) refuse(s.line, "a call under a predicate");
    const Function* callee = nullptr;
    for (const Function& f : text_.functions) {
      if (!f.entry && s.operands[0].kind == Kind::label && f.name == s.operands[0].name)
        callee = &f;
    }
    if (callee == nullptr)
      refuse(s.line, "a call of " + s.operands[0].name + ", which is not defined here");
    Instance inner;
    inner.function = callee;
    inner.caller = &in;
    for (const Instance* i = &in; i != nullptr; i = i->caller) {
      if (i->function == callee) refuse(s.line, "recursion");
    }
    const auto bind = [&](const std::vector<int>& formal, const std::vector<Operand>& actual) {
      if (formal.size() != actual.size()) refuse(s.line, "the arguments of " + callee->name);
      for (std::size_t i = 0; i < formal.size(); ++i) {
        if (actual[i].kind != Kind::symbol || variable(actual[i].variable).space != Space::param) {
          refuse(s.line, "an argument of " + callee->name + " that is no .param");
        }
        if (variable(actual[i].variable).size != variable(formal[i]).size)
          refuse(s.line, "the size of an argument of " + callee->name);
        inner.parameters[formal[i]] = actual[i].variable;
      }
    };
    bind(callee->results, s.results);
    bind(callee->parameters, s.arguments);
    expand(inner);
  }

  // Dynamic shared memory begins behind the static.
  void place_dynamic() {
    kernel_->shared_bytes = (kernel_->shared_bytes + 15) / 16 * 16;
    const u32 align = dynamic_ < 0 ? 16 : std::max(16u, variable(dynamic_).align);
    shared_end_ = (shared_end_ + align - 1) / align * align;
    kernel_->gap_bytes = shared_end_ - kernel_->shared_bytes;
    for (const DynamicUse& use : dynamic_uses_) {
      flat_.code[use.instruction].slots[use.slot].fixed =
          constant(Width::twice, shared_end_ + use.offset);
    }
    kernel_->local_bytes = (kernel_->local_bytes + 15) / 16 * 16;
  }

  void emit() {
    Allocation rows = allocate(flat_);
    // Marks of the registers that are to be watched stand behind all others.
    std::vector<Ref> marks(rows.row.size(), 0);
    kernel_->zeroed_from = rows.bytes;
    for (std::size_t r = 0; r < rows.row.size(); ++r) {
      if (!rows.doubtful[r]) continue;
      marks[r] = rows.bytes;
      rows.bytes += word_row;
    }
    kernel_->register_bytes = rows.bytes;
    kernel_->registers = rows.words;

    std::vector<Inst>& code = kernel_->code;
    std::vector<u32> moved(flat_.code.size());
    std::vector<std::vector<Ref>> lists;
    for (std::size_t k = 0; k < flat_.code.size(); ++k) {
      const Flat& f = flat_.code[k];
      moved[k] = static_cast<u32>(code.size());
      Ref guard = 0;
      if (f.guard >= 0)
        guard = rows.row[static_cast<std::size_t>(f.guard)] | (f.guard_negated ? negated : 0);
      const auto mark = [&](std::string_view what, int reg) {
        Inst m;
        m.run = find(what).run;
        m.ref[0] = marks[static_cast<std::size_t>(reg)];
        m.line = f.line;
        if (!f.jumps && reg != f.guard) m.guard = guard;
        code.push_back(m);
        lists.emplace_back();
      };
      for (const int reg : rows.checked[k]) mark(" check", reg);
      Inst i;
      i.run = f.run;
      i.line = f.line;
      i.imm = f.imm;
      i.imm2 = f.imm2;
      i.space = f.space;
      i.narrow = f.narrow;
      i.bytes = f.bytes;
      std::vector<Ref> refs;
      if (f.jumps)
        refs.push_back(guard);
      else
        i.guard = guard;
      for (const Slot& s : f.slots)
        refs.push_back(s.reg >= 0 ? rows.row[static_cast<std::size_t>(s.reg)] : s.fixed);
      std::copy_n(refs.begin(), std::min<std::size_t>(refs.size(), std::size(i.ref)), i.ref);
      code.push_back(i);
      lists.push_back(std::move(refs));
      for (const Slot& s : f.slots) {
        if (s.reg >= 0 && s.written && rows.doubtful[static_cast<std::size_t>(s.reg)])
          mark(" mark", s.reg);
      }
    }
    for (std::size_t k = 0; k < flat_.code.size(); ++k) {
      const Flat& f = flat_.code[k];
      if (!f.jumps || f.leaves) continue;
      Inst& i = code[moved[k] + rows.checked[k].size()];
      i.imm = moved[static_cast<std::size_t>(f.imm)];
    }
    for (std::size_t k = 0; k < code.size(); ++k) {
      kernel_->lists.push_back(std::make_unique<Ref[]>(lists[k].size() + 1));
      std::copy(lists[k].begin(), lists[k].end(), kernel_->lists.back().get());
      code[k].list = kernel_->lists.back().get();
    }
    // Rows are read as vectors: their alignment is worth something.
    kernel_->constant_storage = std::make_unique<u8[]>(constants_.size() + 64);
    kernel_->constants =
        at_address<u8>((reinterpret_cast<u64>(kernel_->constant_storage.get()) + 63) / 64 * 64);
    std::memcpy(kernel_->constants, constants_.data(), constants_.size());
  }

  struct DynamicUse {
    std::size_t instruction;
    std::size_t slot;
    u64 offset;
  };

  const Text& text_;
  const Function& entry_;
  const Operations& operations_;
  std::unique_ptr<Kernel> kernel_;
  FlatKernel flat_;
  Flat next_;
  u32 instances_ = 0;
  std::map<std::pair<u32, std::string>, std::size_t> labels_;
  std::vector<std::pair<std::size_t, std::pair<u32, std::string>>> jumps_;
  std::map<int, Place> place_;
  std::vector<u8> constants_;
  std::map<std::pair<u32, u64>, std::size_t> constant_refs_;
  int dynamic_ = -1;
  u32 shared_end_ = 0;
  std::vector<DynamicUse> dynamic_uses_;
};

}  // namespace

std::unique_ptr<Kernel> decode(const Text& text, const Function& entry,
                               const Operations& operations) {
  return Decoder(text, entry, operations).run();
}

}  // namespace standin
