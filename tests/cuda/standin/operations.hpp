// One operation in a kernel of its own, on many operands.
#pragma once

#include <functional>
#include <random>

#include "tests/cuda/standin/testing.hpp"

namespace standin_test {

// Operands and results are bits in u64. `types` has a letter for the result and each operand: p, h,
// w, d for predicates and registers of 16, 32 and 64 bits.
struct Operation {
  std::string opcode;
  std::string types;
  std::function<u64(u64, u64, u64)> expected;
  std::string tail = {};  // immediate operands, as ", 16"
};

inline u64 low(u64 bits, char type) {
  return type == 'p'   ? bits & 1
         : type == 'h' ? bits & 0xffff
         : type == 'w' ? bits & 0xffffffff
                       : bits;
}

inline std::string kernel_of(const Operation& op) {
  std::string text = ptx_head;
  text +=
      ".visible .entry op(.param .align 8 .b8 op_param_0[40])\n{\n"
      ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %w<9>; .reg .b64 %d<9>; .reg .b64 %a<9>; .reg "
      ".b32 %t<9>;\n"
      "mov.u32 %t0, %tid.x;\nmov.u32 %t1, %ctaid.x;\nmov.u32 %t2, %ntid.x;\nmad.lo.s32 %t0, %t1, "
      "%t2, %t0;\n"
      "ld.param.u32 %t3, [op_param_0+32];\nsetp.ge.u32 %p8, %t0, %t3;\n@%p8 bra END;\n";
  for (std::size_t i = 1; i < op.types.size(); ++i) {
    const std::string n = std::to_string(i);
    text += joined({"ld.param.u64 %a", n, ", [op_param_0+", std::to_string(8 * i), "];\n"});
    text += joined({"mad.wide.u32 %a", n, ", %t0, 8, %a", n, ";\n"});
    const char type = op.types[i];
    if (type == 'p') {
      text += joined({"ld.global.u32 %t8, [%a", n, "];\nand.b32 %t8, %t8, 1;\nsetp.ne.u32 %p", n,
                      ", %t8, 0;\n"});
    } else {
      const char* const size = type == 'h' ? "u16" : type == 'w' ? "u32" : "u64";
      text += joined({"ld.global.", size, " %", {&type, 1}, n, ", [%a", n, "];\n"});
    }
  }
  text += op.opcode + " %" + op.types[0] + "0";
  for (std::size_t i = 1; i < op.types.size(); ++i)
    text += ", %" + std::string(1, op.types[i]) + std::to_string(i);
  text += op.tail + ";\n";
  text += "ld.param.u64 %a0, [op_param_0];\nmad.wide.u32 %a0, %t0, 8, %a0;\n";
  switch (op.types[0]) {
    case 'p':
      text += "selp.b64 %d8, 1, 0, %p0;\n";
      break;
    case 'h':
      text += "cvt.u64.u16 %d8, %h0;\n";
      break;
    case 'w':
      text += "cvt.u64.u32 %d8, %w0;\n";
      break;
    default:
      text += "mov.b64 %d8, %d0;\n";
  }
  return text + "st.global.u64 [%a0], %d8;\nEND:\nret;\n}\n";
}

class OperationTest : public Standin {
 protected:
  // Integers around what is special, floats of all sorts, and random bits.
  static const std::vector<u64>& special() {
    static const std::vector<u64> values = [] {
      std::vector<u64> v;
      for (int bit : {0, 7, 8, 15, 16, 23, 24, 31, 32, 33, 52, 53, 62, 63}) {
        for (const u64 around : {u64(-1), u64{0}, u64{1}}) {
          v.push_back((u64{1} << bit) + around);
          v.push_back(0 - ((u64{1} << bit) + around));
        }
      }
      for (const u32 f :
           {0x00000000u, 0x80000000u, 0x3f800000u, 0xbf800000u, 0x3f000000u, 0x3fc00000u,
            0x40200000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u, 0x7f800001u,
            0x00000001u, 0x807fffffu, 0x00800000u, 0x7f7fffffu, 0x4b000000u, 0x4b7fffffu,
            0x4effffffu, 0x4f000000u, 0xcf000000u, 0xcf000001u, 0x4f7fffffu, 0x4f800000u,
            0x5f000000u, 0x5f800000u, 0xdf000000u, 0x42fe0000u, 0xc3000000u, 0x477fe000u,
            0x477ff000u, 0x33000000u, 0x33000001u, 0x38800000u, 0x387fe000u, 0x7f7f8000u,
            0x3effffffu}) {
        v.push_back(f);
        double d;
        float s;
        std::memcpy(&s, &f, 4);
        d = s;
        u64 bits;
        std::memcpy(&bits, &d, 8);
        v.push_back(bits);
      }
      for (const u64 h :
           {0x3c00u, 0x0001u, 0x8001u, 0x7c00u, 0xfc00u, 0x7e00u, 0x7bffu, 0x03ffu, 0x0400u})
        v.push_back(h);
      return v;
    }();
    return values;
  }

  static std::vector<std::vector<u64>> operands(std::size_t count) {
    std::mt19937_64 random(count);
    std::vector<std::vector<u64>> columns(count);
    const auto& s = special();
    if (count == 2) {
      for (const u64 a : s) {
        for (const u64 b : s) columns[0].push_back(a), columns[1].push_back(b);
      }
    }
    const auto one = [&]() -> u64 {
      switch (random() % 5) {
        case 0:
          return s[random() % s.size()];
        case 1:
          return random() % 70;
        case 2: {  // a float of a usual size
          const float f = std::ldexp(static_cast<float>(random() % 20001) - 10000,
                                     static_cast<int>(random() % 40) - 30);
          u32 bits;
          std::memcpy(&bits, &f, 4);
          return bits;
        }
        case 3: {
          const double d = std::ldexp(static_cast<double>(random() % 2000001) - 1000000,
                                      static_cast<int>(random() % 60) - 50);
          u64 bits;
          std::memcpy(&bits, &d, 8);
          return bits;
        }
        default:
          return random();
      }
    };
    for (const u64 a : s) {
      for (auto& c : columns) c.push_back(&c == columns.data() ? a : one());
    }
    for (int i = 0; i < 4003; ++i) {
      for (auto& c : columns) c.push_back(one());
    }
    return columns;
  }

  void check(const std::vector<Operation>& operations) {
    for (const Operation& op : operations) {
      SCOPED_TRACE(op.opcode + op.tail);
      check(op);
      if (HasFatalFailure()) return;
    }
  }

  void check(const Operation& op) {
    void* module = load(kernel_of(op));
    ASSERT_NE(module, nullptr);
    void* f = function(module, "op");
    const std::size_t count = op.types.size() - 1;
    const auto columns = operands(count);
    const std::size_t n = columns[0].size();
    struct {
      u64 pointers[4];
      u32 n;
    } args{{allocate(8 * n), 0, 0, 0}, static_cast<u32>(n)};
    for (std::size_t i = 0; i < count; ++i) args.pointers[i + 1] = upload(columns[i]);
    ASSERT_EQ(run(f, static_cast<u32>((n + 127) / 128), 128, args), 0) << control().message();
    const auto results = download<u64>(args.pointers[0], n);
    int wrong = 0;
    for (std::size_t i = 0; i < n && wrong < 5; ++i) {
      u64 in[3] = {};
      for (std::size_t k = 0; k < count; ++k) in[k] = low(columns[k][i], op.types[k + 1]);
      const u64 expected = low(op.expected(in[0], in[1], in[2]), op.types[0]);
      if (results[i] == expected) continue;
      ++wrong;
      ADD_FAILURE() << std::hex << in[0] << " " << in[1] << " " << in[2] << " gives " << results[i]
                    << ", not " << expected;
    }
    for (std::size_t i = 0; i <= count; ++i) MUST("cuMemFree_v2", args.pointers[i]);
    MUST("cuModuleUnload", module);
  }
};

}  // namespace standin_test
