// The emulator's decoder against the assembler, and what it must not take for one of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "decode.hpp"
#include "offline/testing_files.hpp"
#include "ops/elementwise/testing_data.hpp"

namespace octavo::testing::tiles {
namespace {

int below(Random& random, int n) {
  return static_cast<int>(random.next() % static_cast<unsigned>(n));
}

Operand made_memory(Random& random, bool sib) {
  Operand o;
  o.is_memory = true;
  o.base = below(random, 17);
  if (o.base == 16 && sib) o.base = -1;  // rip has no index
  o.index = o.base == 16 ? -1 : below(random, 16);
  if (o.index == 4) o.index = sib ? 5 : -1;
  if (o.index >= 0) o.scale = 1 << below(random, 4);
  if (o.base < 0 || below(random, 2) == 0)
    o.displacement = below(random, 2) == 0 ? below(random, 256) - 128
                                           : static_cast<std::int32_t>(random.next() >> 32U);
  return o;
}

Instruction made_instruction(Random& random) {
  Instruction i;
  i.kind = static_cast<Kind>(below(random, static_cast<int>(Kind::vpdpwssds) + 1));
  const bool vector = i.kind >= Kind::vpdpbusd;
  const bool product = i.kind >= Kind::tdpbssd && !vector;
  const bool moves =
      i.kind == Kind::tileloadd || i.kind == Kind::tileloaddt1 || i.kind == Kind::tilestored;
  if (i.kind == Kind::tilerelease) return i;
  if (i.kind != Kind::ldtilecfg && i.kind != Kind::sttilecfg)
    i.reg = below(random, vector ? 16 : 8);
  if (i.kind == Kind::tilezero) return i;
  if (product || vector) i.vvvv = below(random, vector ? 16 : 8);
  if (vector) i.wide = below(random, 2) == 0;
  if (product) {  // three different tiles, or the assembler refuses
    i.vvvv = (i.reg + 1 + below(random, 3)) % 8;
    i.rm.reg = (i.reg + 4 + below(random, 4)) % 8;
  } else if (vector && below(random, 2) == 0)
    i.rm.reg = below(random, 16);
  else
    i.rm = made_memory(random, moves);
  return i;
}

TEST(Decoder, ReadsWhatTheAssemblerWrites) {
  if (std::system("as --version >/dev/null 2>&1 && objcopy --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no assembler";
  const TemporaryDirectory dir;
  Random random(1);
  std::vector<std::string> wanted;
  {
    std::ofstream source(dir / "a.s");
    for (int i = 0; i < 20000; ++i) {
      wanted.push_back(to_string(made_instruction(random)));
      source << wanted.back() << "\n";
    }
  }
  const std::string base = dir.path().string();
  ASSERT_EQ(
      std::system(
          ("cd " + base + " && as a.s -o a.o && objcopy -O binary -j .text a.o a.bin").c_str()),
      0);
  std::ifstream in(dir / "a.bin", std::ios::binary);
  std::vector<std::uint8_t> code{std::istreambuf_iterator<char>(in), {}};
  const std::size_t size = code.size();
  code.resize(size + 16);
  std::size_t at = 0;
  for (const std::string& text : wanted) {
    const auto decoded = decode(&code[at]);
    ASSERT_TRUE(decoded) << text;
    ASSERT_EQ(to_string(*decoded), text);
    at += static_cast<std::size_t>(decoded->length);
  }
  EXPECT_EQ(at, size);
}

TEST(Decoder, RefusesWhatTheManualForbids) {
  const auto refused = [](std::vector<std::uint8_t> code) {
    code.resize(16);
    return !decode(code.data());
  };
  EXPECT_FALSE(refused({0xC4, 0xE2, 0x78, 0x49, 0xC0}));       // tilerelease
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x70, 0x49, 0xC0}));        // with vvvv
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x7C, 0x49, 0xC0}));        // 256 bits
  EXPECT_TRUE(refused({0xC4, 0xE2, 0xF8, 0x49, 0xC0}));        // W = 1
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x7B, 0x4B, 0x18}));        // tileloadd without SIB
  EXPECT_TRUE(refused({0xC4, 0x62, 0x7B, 0x4B, 0x1C, 0x18}));  // tile 11
  EXPECT_TRUE(refused({0xC4, 0xC2, 0x73, 0x5E, 0xDA}));        // tile 10 in rm
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x33, 0x5E, 0xDA}));        // tile 9 in vvvv
  EXPECT_TRUE(refused({0xC4, 0xE2, 0x78, 0x4B, 0x1C, 0x18}));  // no prefix
  EXPECT_TRUE(refused({0x0F, 0x0B}));                          // ud2
}

}  // namespace
}  // namespace octavo::testing::tiles
