// What lanes tell each other, and fragments of matrices, against the manual's words written out.
#include <random>

#include "tests/cuda/standin/testing.hpp"

namespace standin_test {
namespace {

// A kernel of one warp: registers %r0 to %r9 come from rows of the input, %r10 to %r19 go to rows
// of the output; `body` is between.
std::string warp_kernel(const std::string& body) {
  std::string text = std::string(ptx_head) +
                     ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                     ".reg .b32 %r<20>; .reg .b64 %a<4>; .reg .pred %p<4>; .reg .b32 %t<4>;\n"
                     ".shared .align 16 .b8 tile[4096];\n"
                     "ld.param.u64 %a0, [in]; ld.param.u64 %a1, [out]; mov.u32 %t0, %laneid;\n"
                     "mad.wide.u32 %a0, %t0, 4, %a0; mad.wide.u32 %a1, %t0, 4, %a1;\n";
  for (int i = 0; i < 10; ++i)
    text += "ld.global.u32 %r" + std::to_string(i) + ", [%a0+" + std::to_string(128 * i) + "];\n";
  for (int i = 10; i < 20; ++i) text += "mov.u32 %r" + std::to_string(i) + ", 0;\n";
  text += body + "\n";
  for (int i = 0; i < 10; ++i)
    text +=
        "st.global.u32 [%a1+" + std::to_string(128 * i) + "], %r" + std::to_string(i + 10) + ";\n";
  return text + "ret;\n}\n";
}

using Rows = std::vector<u32>;  // 10 of 32

class Exchange : public Standin {
 protected:
  Rows run_warp(const std::string& body, const Rows& in) {
    void* module = load(warp_kernel(body));
    if (module == nullptr) return {};
    u64 a = upload(in);
    u64 b = allocate(1280);
    void* params[] = {&a, &b};
    EXPECT_EQ(
        cu("cuLaunchKernel", function(module, "k"), 1u, 1u, 1u, 32u, 1u, 1u, 0u,
           static_cast<void*>(nullptr), static_cast<void**>(params), static_cast<void**>(nullptr)),
        0);
    EXPECT_EQ(cu("cuCtxSynchronize"), 0) << control().message();
    Rows out = download<u32>(b, 320);
    cu("cuMemFree_v2", a);
    cu("cuMemFree_v2", b);
    cu("cuModuleUnload", module);
    return out;
  }
  Rows random_rows() {
    Rows rows(320);
    for (u32& v : rows) v = static_cast<u32>(random_());
    return rows;
  }
  std::mt19937 random_{7};
};

TEST_F(Exchange, Shuffles) {
  for (const int width : {32, 16, 8, 1}) {
    for (const char* mode : {"up", "down", "bfly", "idx"}) {
      const std::string m = mode;
      const u32 c = static_cast<u32>(32 - width) << 8 | (m == "up" ? 0u : 31u);
      Rows in = random_rows();
      const Rows out =
          run_warp(joined({"shfl.sync.", m, ".b32 %r10|%p1, %r0, %r1, ", std::to_string(c),
                           ", -1;\nselp.b32 %r11, 1, 0, %p1;\nshfl.sync.", m,
                           ".b32 %r12, %r0, %r1, ", std::to_string(c), ", -1;"}),
                   in);
      for (int lane = 0; lane < 32; ++lane) {
        // As CUDA's __shfl functions say: segments of `width` lanes, whose ends give the lane's own
        // value.
        const int first = lane / width * width;
        const int b = static_cast<int>(in[32 + static_cast<std::size_t>(lane)] & 31);
        int source = m == "up"     ? lane - b
                     : m == "down" ? lane + b
                     : m == "bfly" ? lane ^ b
                                   : first + (b & (width - 1));
        bool inside = m == "up" ? source >= first : source < first + width;
        if (!inside) source = lane;
        const auto l = static_cast<std::size_t>(lane);
        EXPECT_EQ(out[l], in[static_cast<std::size_t>(source)]) << m << width << " " << lane;
        EXPECT_EQ(out[32 + l], u32{inside});
        EXPECT_EQ(out[64 + l], out[l]);
      }
    }
  }
}

TEST_F(Exchange, VotesAndReductions) {
  Rows in = random_rows();
  for (u32 l = 0; l < 32; ++l) in[32 + l] = in[32 + l] % 3;
  const Rows out = run_warp(
      "and.b32 %t1, %r0, 1; setp.ne.u32 %p1, %t1, 0;\n"
      "vote.sync.ballot.b32 %r10, %p1, -1;\n"
      "vote.sync.any.pred %p2, %p1, -1; selp.b32 %r11, 1, 0, %p2;\n"
      "vote.sync.all.pred %p2, %p1, -1; selp.b32 %r12, 1, 0, %p2;\n"
      "redux.sync.add.s32 %r13, %r0, -1; redux.sync.min.s32 %r14, %r0, -1; redux.sync.max.u32 "
      "%r15, %r0, -1;\n"
      "redux.sync.xor.b32 %r16, %r0, -1; match.any.sync.b32 %r17, %r1, -1;\n"
      "setp.lt.u32 %p3, %t0, 20; @%p3 activemask.b32 %r18;",
      in);
  u32 ballot = 0, sum = 0, exclusive = 0;
  u32 most = 0;
  s32 least = 0x7fffffff;
  for (u32 l = 0; l < 32; ++l) {
    ballot |= (in[l] & 1) << l;
    sum += in[l];
    exclusive ^= in[l];
    most = std::max(most, in[l]);
    least = std::min(least, static_cast<s32>(in[l]));
  }
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(out[l], ballot);
    EXPECT_EQ(out[32 + l], u32{ballot != 0});
    EXPECT_EQ(out[64 + l], u32{ballot == 0xffffffff});
    EXPECT_EQ(out[96 + l], sum);
    EXPECT_EQ(out[128 + l], static_cast<u32>(least));
    EXPECT_EQ(out[160 + l], most);
    EXPECT_EQ(out[192 + l], exclusive);
    u32 same = 0;
    for (u32 k = 0; k < 32; ++k) same |= u32{in[32 + k] == in[32 + l]} << k;
    EXPECT_EQ(out[224 + l], same);
    EXPECT_EQ(out[256 + l], l < 20 ? 0xfffffu : 0u);
  }
}

s32 byte_of(u32 word, u32 i, bool is_signed) {
  const u32 b = word >> (8 * i) & 255;
  return is_signed ? static_cast<s8>(b) : static_cast<s32>(b);
}

// Element by element as the manual gives the row and the column of ai, bi and ci.
TEST_F(Exchange, ProductsOfMatrices) {
  for (const u32 depth : {16u, 32u}) {
    for (const bool a_signed : {false, true}) {
      for (const bool b_signed : {false, true}) {
        const Rows in = random_rows();
        const std::string types = std::string(a_signed ? "s8" : "u8") + (b_signed ? ".s8" : ".u8");
        const Rows out =
            run_warp("mma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col.s32." + types +
                         ".s32 {%r10, %r11, %r12, %r13}, " +
                         (depth == 32 ? "{%r0, %r1, %r2, %r3}, {%r4, %r5}" : "{%r0, %r1}, {%r4}") +
                         ", {%r6, %r7, %r8, %r9};",
                     in);
        s32 a[16][32] = {};
        s32 b[32][8] = {};
        for (u32 lane = 0; lane < 32; ++lane) {
          const u32 group = lane >> 2;
          const u32 in_group = lane % 4;
          for (u32 i = 0; i < depth / 2; ++i) {
            const u32 row = depth == 16                     ? (i < 4 ? group : group + 8)
                            : (i < 4 || (i >= 8 && i < 12)) ? group
                                                            : group + 8;
            const u32 column = in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0);
            a[row][column] = byte_of(in[32 * (i / 4) + lane], i % 4, a_signed);
          }
          for (u32 i = 0; i < depth / 4; ++i) {
            b[in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0)][group] =
                byte_of(in[32 * (4 + i / 4) + lane], i % 4, b_signed);
          }
        }
        for (u32 lane = 0; lane < 32; ++lane) {
          for (u32 i = 0; i < 4; ++i) {
            const u32 row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
            const u32 column = lane % 4 * 2 + (i & 1);
            u32 sum = in[32 * (6 + i) + lane];
            for (u32 k = 0; k < depth; ++k) sum += static_cast<u32>(a[row][k] * b[k][column]);
            EXPECT_EQ(out[32 * i + lane], sum) << depth << types << " lane " << lane << " c" << i;
          }
        }
      }
    }
  }
}

TEST_F(Exchange, LoadsOfMatrices) {
  const Rows in = random_rows();
  // Rows 0 to 3 of the input become 512 bytes of the tile: 32 rows of 16 bytes; lane l has the
  // address of row 5 l mod 32.
  const std::string fill =
      "mov.u64 %a2, tile; mad.wide.u32 %a3, %t0, 4, %a2;\n"
      "st.shared.u32 [%a3], %r0; st.shared.u32 [%a3+128], %r1; st.shared.u32 [%a3+256], %r2; "
      "st.shared.u32 [%a3+384], %r3;\n"
      "bar.sync 0; mul.lo.u32 %t1, %t0, 5; and.b32 %t1, %t1, 31; mad.wide.u32 %a3, %t1, 16, %a2; "
      "cvt.u32.u64 %t2, %a3;\n";
  const auto half = [&](u32 matrix, u32 row, u32 column) {
    const u32 line = 5 * (8 * matrix + row) % 32;
    const u32 word = in[line * 4 + column / 2];
    return word >> (16 * (column % 2)) & 0xffff;
  };
  for (const u32 count : {1u, 2u, 4u}) {
    for (const bool transposed : {false, true}) {
      const std::string registers = count == 1   ? "{%r10}"
                                    : count == 2 ? "{%r10, %r11}"
                                                 : "{%r10, %r11, %r12, %r13}";
      const Rows out =
          run_warp(joined({fill, "ldmatrix.sync.aligned.m8n8.x", std::to_string(count),
                           transposed ? ".trans" : "", ".shared.b16 ", registers, ", [%t2];"}),
                   in);
      for (u32 m = 0; m < count; ++m) {
        for (u32 lane = 0; lane < 32; ++lane) {
          const u32 row = lane / 4;
          const u32 column = lane % 4 * 2;
          const u32 expected = transposed ? half(m, column, row) | half(m, column + 1, row) << 16
                                          : half(m, row, column) | half(m, row, column + 1) << 16;
          EXPECT_EQ(out[32 * m + lane], expected) << count << transposed << " " << m << " " << lane;
        }
      }
    }
  }
}

TEST_F(Exchange, CopiesWithZeros) {
  Rows in = random_rows();
  for (u32 l = 0; l < 32; ++l) in[32 + l] = l % 5;
  // Lane l copies 4 bytes, or as many as its second register says, and zeros.
  const Rows out = run_warp(
      "mov.u64 %a2, tile; mad.wide.u32 %a3, %t0, 4, %a2; cvt.u32.u64 %t1, %a3;\n"
      "cp.async.ca.shared.global [%t1], [%a0], 4;\ncp.async.ca.shared.global.L2::128B [%t1+128], "
      "[%a0], 4, %r1;\n"
      "cp.async.wait_all; bar.sync 0;\nld.shared.u32 %r10, [%a3]; ld.shared.u32 %r11, [%a3+128];",
      in);
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(out[l], in[l]);
    const u32 n = l % 5;
    EXPECT_EQ(out[32 + l], n == 4 ? in[l] : in[l] & ((1u << (8 * n)) - 1));
  }
}

TEST_F(Exchange, AtomicsInSharedAndGlobalMemory) {
  const Rows in = random_rows();
  const Rows out = run_warp(
      "mov.u64 %a2, tile; st.shared.u32 [tile], 0; st.shared.u32 [tile+4], 0; st.shared.u32 "
      "[tile+8], -1; bar.sync 0;\n"
      "atom.shared.add.u32 %r10, [tile], 1; red.shared.max.u32 [tile+4], %r0; atom.shared.min.u32 "
      "%t1, [tile+8], %r0;\n"
      "cvta.shared.u64 %a3, %a2; atom.add.u32 %t1, [%a3], 2;\n"
      "bar.sync 0; ld.shared.u32 %r11, [tile]; ld.shared.u32 %r12, [tile+4]; ld.shared.u32 %r13, "
      "[tile+8];\n"
      "mov.b64 {%t1, %t2}, %a3; mov.b64 %a3, {%t1, %t2}; ld.u32 %r14, [%a3];\n"
      "atom.cas.b32 %r15, [%a3], 96, 7; bar.sync 0; ld.u32 %r16, [%a3];",
      in);
  u32 lanes_seen = 0;
  for (u32 l = 0; l < 32; ++l) {
    lanes_seen |= 1u << out[l];
    EXPECT_EQ(out[32 + l], 96u);
    EXPECT_EQ(out[64 + l], *std::max_element(in.begin(), in.begin() + 32));
    EXPECT_EQ(out[96 + l], *std::min_element(in.begin(), in.begin() + 32));
    EXPECT_EQ(out[128 + l], 96u);
    EXPECT_EQ(out[160 + l], l == 0 ? 96u : 7u);
    EXPECT_EQ(out[192 + l], 7u);
  }
  EXPECT_EQ(lanes_seen, 0xffffffffu);
}

}  // namespace
}  // namespace standin_test
