// Text from outside: what is shown of it, JSON before it is read, patterns.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "octavo/pattern.hpp"
#include "offline/files.hpp"
#include "offline/json_text.hpp"
#include "offline/printable.hpp"

namespace octavo::offline {
namespace {

using ::testing::HasSubstr;

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("model.layers.0"), "model.layers.0");
  EXPECT_EQ(printable("a\x1b[2Jb\n\t\x7f"), "a\\x1b[2Jb\\n\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u0085\u009b31m"), "\\x85\\x9b31m");  // C1: the second begins a sequence
  EXPECT_EQ(printable("a\u2028b\u2029"), "a\\u2028b\\u2029");
  // All that turn the order of characters, and some that cannot be seen.
  for (const char32_t c :
       U"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
       U"\u200b\u200d\ufeff") {
    if (c == 0) continue;
    const auto code = static_cast<unsigned>(c);
    const std::string utf8 = code < 0x800
                                 ? std::string{static_cast<char>(0xC0U | (code >> 6U)),
                                               static_cast<char>(0x80U | (code & 63U))}
                                 : std::string{static_cast<char>(0xE0U | (code >> 12U)),
                                               static_cast<char>(0x80U | ((code >> 6U) & 63U)),
                                               static_cast<char>(0x80U | (code & 63U))};
    EXPECT_EQ(printable("x" + utf8 + "y"), fmt::format("x\\u{:04x}y", code));
  }
}

TEST(Printable, BytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xff\xfe"), "a\\xff\\xfe");
  EXPECT_EQ(printable("\xe2\x80"), "\\xe2\\x80");                    // cut off
  EXPECT_EQ(printable("\xc0\xaf\x80"), "\\xc0\\xaf\\x80");           // too long a form; alone
  EXPECT_EQ(printable("\xed\xa0\x80z"), "\\xed\\xa0\\x80z");         // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

// U+202E, by its bytes: in the source it would turn the rest of a line.
std::string turned() { return {'\xe2', '\x80', '\xae'}; }

TEST(Printable, LeavesTheRestAndItself) {
  for (const std::string text : {"", "\"quoted\" \\x1b \\", "Größe.層.😀", "it's <b>&amp;</b>"}) {
    EXPECT_EQ(printable(text), text);
  }
  const std::string once = printable("\x1b" + turned() + "\"\\\xff");
  EXPECT_EQ(once, "\\x1b\\u202e\"\\\\xff");
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, InQuotes) {
  EXPECT_EQ(in_quotes("a" + turned() + "b\x01"), "\"a\\u202eb\\x01\"");
  EXPECT_EQ(in_quotes(std::string(120, 'a')), "\"" + std::string(120, 'a') + "\"");
  EXPECT_EQ(in_quotes(std::string(121, 'a')), "\"" + std::string(120, 'a') + "...\"");
  // Cut before a character, not in it.
  EXPECT_EQ(in_quotes(std::string(118, 'a') + "層b"), "\"" + std::string(118, 'a') + "...\"");
  EXPECT_EQ(in_quotes(std::string(121, '\x80')).substr(0, 9), "\"\\x80\\x80");
}

std::string refusal(std::string_view text) {
  const Status s = check_json("f.json", text);
  return s ? "accepted" : s.error().message();
}

TEST(JsonText, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(refusal(nested(127)), "accepted");
  EXPECT_THAT(refusal(nested(128)), HasSubstr("f.json: expected JSON of at most 127 levels"));
  EXPECT_THAT(refusal(std::string(1'000'000, '{')), HasSubstr("127 levels"));
  // Brackets in strings are none.
  EXPECT_EQ(refusal("[\"" + std::string(1000, '[') + "\"]"), "accepted");
  EXPECT_EQ(refusal("[\"\\\"" + std::string(1000, '[') + "\"]"), "accepted");
  EXPECT_THAT(refusal("[\"\\\\\"," + std::string(1000, '[')), HasSubstr("127 levels"));
  std::string beside = "[";
  for (int i = 0; i < 1000; ++i) beside += "{},[],";
  EXPECT_EQ(refusal(beside + "0]"), "accepted");
}

TEST(JsonText, ZeroBytes) {
  using namespace std::string_view_literals;
  EXPECT_THAT(refusal("{}\0"sv), HasSubstr("f.json: expected JSON, got a zero byte at offset 2"));
  EXPECT_THAT(refusal("{\"a\0\":1}"sv), HasSubstr("offset 3"));
  EXPECT_THAT(refusal("{\"a\\\0\":1}"sv), HasSubstr("offset 4"));
  EXPECT_EQ(refusal("{\"a\\u0000\":1}"), "accepted");
}

bool matches(std::string_view pattern, std::string_view name) {
  const auto parsed = Pattern::parse("ignore", pattern);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message());
  return parsed && parsed->matches(name);
}

TEST(Patterns, NamesAndWildcards) {
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_FALSE(matches("lm_head", "lm_heads"));
  EXPECT_FALSE(matches("lm_head", "a.lm_head"));
  EXPECT_TRUE(matches("*.layers.?.up", "model.layers.1.up"));
  EXPECT_FALSE(matches("*.layers.?.up", "model.layers.11.up"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "a\nb"));
  EXPECT_TRUE(matches("?", "層"));  // one character, of three bytes
  // Everything else means itself.
  EXPECT_TRUE(matches("a.(b)+[c]{2}^$|\\", "a.(b)+[c]{2}^$|\\"));
  EXPECT_FALSE(matches("a.b", "axb"));
}

TEST(Patterns, ExpressionsMatchTheBeginning) {
  EXPECT_TRUE(matches("re:.*down", "model.down_proj"));
  EXPECT_FALSE(matches("re:down", "model.down_proj"));
  EXPECT_TRUE(matches("re:", "anything"));
  EXPECT_FALSE(matches("re:a$", "ab"));
  EXPECT_TRUE(matches("re:(a|ab)c", "abcd"));
}

TEST(Patterns, ZeroBytesAreCharacters) {
  using namespace std::string_view_literals;
  EXPECT_FALSE(matches("a", "a\0b"sv));
  EXPECT_FALSE(matches("a\0b"sv, "a"));
  EXPECT_TRUE(matches("a\0b"sv, "a\0b"sv));
  EXPECT_TRUE(matches("a?b", "a\0b"sv));
  EXPECT_FALSE(matches("re:a$", "a\0b"sv));
}

// Expressions that take other engines their stack, or forever.
TEST(Patterns, EveryOneEndsSoon) {
  const auto start = std::chrono::steady_clock::now();
  const std::string name = std::string(5000, 'b') + "!";
  EXPECT_FALSE(matches("re:(b+)+$", name));
  EXPECT_FALSE(matches("re:(b|b|b?b)*c", name));
  std::string stars;
  for (int i = 0; i < 100; ++i) stars += "*b";
  EXPECT_FALSE(matches(stars + "?c", name));
  EXPECT_TRUE(matches("re:.*", std::string(1'000'000, 'x')));
  const auto deep = [](std::size_t depth) {
    return "re:" + std::string(depth, '(') + "b" + std::string(depth, ')');
  };
  EXPECT_TRUE(matches(deep(20'000), "b"));
  EXPECT_THAT(Pattern::parse("ignore", deep(1'000'000)).error().message(),
              HasSubstr("ignore: expected patterns of at most 65536 bytes, got 2000004"));
  EXPECT_FALSE(Pattern::parse("ignore", "re:((((a{1000}){1000}){1000}){1000})"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Patterns, Refusals) {
  for (const char* wrong : {"re:(", "re:[a", "re:a**", "re:(?!a)", "re:(a)\\1", "re:\xff"}) {
    const auto parsed = Pattern::parse("ignore", wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().argument(), "ignore");
    EXPECT_THAT(parsed.error().message(),
                HasSubstr("ignore: expected a regular expression of RE2 after re: (which has no "
                          "look-ahead and no references back), got "));
  }
  EXPECT_FALSE(Pattern::parse("ignore", "\xff*"));
}

}  // namespace
}  // namespace octavo::offline
