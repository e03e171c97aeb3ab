// The page of `octavo report` as text. How it looks is checked in a browser, by tests/report.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/chart.hpp"
#include "cli/names.hpp"
#include "cli/report_page.hpp"

namespace octavo::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(Names, NumbersGoByTheirValue) {
  EXPECT_TRUE(natural_less("layers.2.q", "layers.10.q"));
  EXPECT_FALSE(natural_less("layers.10.q", "layers.2.q"));
  EXPECT_TRUE(natural_less("layers.9.z", "layers.10.a"));
  EXPECT_TRUE(natural_less("a", "a.0"));
  EXPECT_TRUE(natural_less("a", "b"));
  EXPECT_FALSE(natural_less("a", "a"));
  // Longer than any integer type.
  EXPECT_TRUE(natural_less("99999999999999999999998", "99999999999999999999999"));
  EXPECT_NE(natural_less("a.01", "a.1"), natural_less("a.1", "a.01"));
  EXPECT_TRUE(natural_less("0", "1"));
  EXPECT_TRUE(natural_less("00", "1"));
}

TEST(Names, BlockIsCutAfterItsNumber) {
  EXPECT_THAT(split_block("model.layers.12.mlp.up_proj"), Pair("model.layers.12", "mlp.up_proj"));
  EXPECT_THAT(split_block("l.0.experts.3.w1"), Pair("l.0.experts.3", "w1"));
  EXPECT_THAT(split_block("lm_head"), Pair("", "lm_head"));
  EXPECT_THAT(split_block("h.0"), Pair("", "h.0"));
  EXPECT_THAT(split_block(""), Pair("", ""));
  EXPECT_THAT(split_block("..a."), Pair("", "..a."));
}

TEST(Chart, Escapes) {
  EXPECT_EQ(escaped("<a b=\"c\" d='e'>&\n"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\\n");
  EXPECT_EQ(escaped("a\u202eb\x1b\xff"), "a\\u202eb\\x1b\\xff");
  EXPECT_EQ(escaped_name("a.b_c/<"), "a.<wbr>b_<wbr>c/<wbr>&lt;");
  EXPECT_EQ(escaped_name("a."), "a.");
  EXPECT_EQ(escaped_name(""), "");
}

TEST(Chart, BarsStayWithinTheirBox) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string chart = bar_chart({{"a", 1, "1"}, {"b", inf, "inf"}, {"c", 0, "0"}}, 2);
  EXPECT_THAT(chart, HasSubstr("M0 0H50.00V"));
  EXPECT_THAT(chart, HasSubstr("M0 0H100.00V"));
  EXPECT_THAT(chart, HasSubstr("M0 0H0.00V"));
  EXPECT_THAT(bar_chart({{"a", 0, "0"}}, 0), HasSubstr("M0 0H0.00V"));
}

TEST(Chart, LogarithmicAxisHasRoundNumbers) {
  const std::string chart = line_chart({{"x", {90, 3, 0, -1, std::nan("")}}}, "d");
  EXPECT_THAT(chart, HasSubstr(">10</span>"));
  EXPECT_THAT(chart, HasSubstr(">100</span>"));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
  EXPECT_THAT(chart, Not(HasSubstr("inf")));
  EXPECT_THAT(line_chart({{"x", {4, 4}}}, "d"), HasSubstr("polyline"));
  EXPECT_THAT(line_chart({{"x", {0, 0}}}, "d"), HasSubstr("All values are 0"));
}

TEST(Chart, DotsWithoutAnyErrorAreDrawn) {
  EXPECT_THAT(dot_chart({{"a", 0, "0"}}, "d"), HasSubstr("<title>a: 0</title>"));
}

ReportData made(const std::string& prefix, int blocks) {
  ReportData d;
  d.original = "float";
  d.quantized = "some/where/" + prefix + "/";
  d.original_bytes = 2000;
  d.quantized_bytes = 1000;
  d.unexpected = {prefix};
  for (int i = 0; i < blocks; ++i) {
    LayerPicture l;
    l.error.name = fmt::format("{}.{}.up", prefix, i);
    l.error.output_error = 0.01 * (i + 1);
    l.values.assign(256, 1);
    l.scales = {0.1, 0.2};
    d.layers.push_back(l);
    d.outliers.push_back({fmt::format("{}.{}.norm", prefix, i), {1, 1, 50}, {1, 1, 2}});
  }
  return d;
}

TEST(Page, SaysWhatItCostAndSaved) {
  const std::string page = report_page(made("m", 3));
  EXPECT_THAT(page, HasSubstr("2 kB became 1 kB by w8a8-dynamic"));
  EXPECT_THAT(page, HasSubstr("by 2 % at the median, and by 3 % at most, in m.<wbr>2.<wbr>up"));
  EXPECT_THAT(page, HasSubstr("50 \u2192 2"));
  EXPECT_THAT(page, HasSubstr("<title>m</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<details>")));
}

TEST(Page, NamesDoNotBecomeMarkup) {
  for (const char* name : {"<script>alert(1)</script>", "\"><img src=x onerror='alert(2)'>"})
    for (const int blocks : {2, 70}) {
      const std::string page = report_page(made(name, blocks));
      EXPECT_THAT(page, Not(HasSubstr("<script")));
      EXPECT_THAT(page, Not(HasSubstr("<img")));
      EXPECT_THAT(page, Not(HasSubstr("onerror='")));
    }
}

TEST(Page, ErrorsThatAreNoNumbersAreTheLargest) {
  ReportData d = made("m", 80);
  d.layers[40].error.output_error = std::nan("");
  EXPECT_THAT(report_page(d), HasSubstr("by inf % at most, in m.<wbr>40.<wbr>up"));
}

TEST(Page, ManyLayersAreFolded) {
  const std::string page = report_page(made("m", 500));
  EXPECT_THAT(page, HasSubstr("<details><summary>All 500 layers"));
  EXPECT_THAT(page, HasSubstr("The ten largest"));
  EXPECT_THAT(page, Not(HasSubstr("<details open")));
}

}  // namespace
}  // namespace octavo::cli
