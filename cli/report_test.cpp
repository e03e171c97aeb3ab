// The page of `octavo report` as text. How it looks is checked in a browser, by tests/report.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/chart.hpp"
#include "cli/names.hpp"
#include "cli/report_page.hpp"
#include "cli/report_parts.hpp"
#include "cli/table.hpp"

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
  EXPECT_TRUE(natural_less("a", "層")) << "on every CPU";
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

TEST(Names, BlockNumbers) {
  EXPECT_EQ(block_number("model.layers.12"), "12");
  EXPECT_EQ(block_number("l.0.experts.3"), "0.3");
  EXPECT_EQ(block_number("h1.a"), "");
  EXPECT_EQ(block_number(""), "");
}

TEST(Chart, Escapes) {
  EXPECT_EQ(escaped("<a b=\"c\" d='e'>&\n"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\\n");
  const std::string turned{'\xe2', '\x80', '\xae'};  // U+202E, which would turn this line, too
  EXPECT_EQ(escaped("a" + turned + "b\x1b\xff"), "a\\u202eb\\x1b\\xff");
  EXPECT_EQ(escaped_name("a.b_c/<"), "a.<wbr>b_<wbr>c/<wbr>&lt;");
  EXPECT_EQ(escaped_name("a."), "a.");
  EXPECT_EQ(escaped_name(""), "");
}

constexpr double inf = std::numeric_limits<double>::infinity();

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

TEST(Chart, BarsStayWithinTheirBoxAndShowTheirBound) {
  const std::string chart = bar_chart(
      {{"a", 1, "1", 1.5, false}, {"b", inf, "inf", 1.5, true}, {"c", 0, "0", inf, false}},
      percent);
  EXPECT_THAT(
      chart,
      HasSubstr(R"(<path class="bar" d="M0 0H66.67V1H0z"/><path class="bound" d="M100.00 )"));
  EXPECT_THAT(chart, HasSubstr(R"(<b class="bad">inf</b>)"));
  EXPECT_THAT(chart, HasSubstr(R"(<path class="bar above" d="M0 0H100.00V)"));
  EXPECT_THAT(chart, HasSubstr(R"(d="M0 0H0.00V1H0z"/></svg>)"));
  EXPECT_THAT(bar_chart({{"a", 0, "0", 0, false}}, percent), HasSubstr("M0 0H0.00V"));
}

TEST(Chart, AxesBeginAndEndWithRoundNumbers) {
  const Axis axis = axis_over({90, 3, 0, -1, std::nan(""), inf}, 6,
                              [](double x) { return fmt::format("{:g} V", x); });
  EXPECT_DOUBLE_EQ(axis.low, 2);
  EXPECT_DOUBLE_EQ(axis.high, 100);
  EXPECT_DOUBLE_EQ(axis.share(inf), 1);
  EXPECT_DOUBLE_EQ(axis.share(100), 1);
  EXPECT_DOUBLE_EQ(axis.share(0), 0);
  EXPECT_DOUBLE_EQ(axis.share(std::nan("")), 0);
  EXPECT_DOUBLE_EQ(axis.share(1), 0);
  const std::string chart = line_chart(axis, {{90, 3, 0, -1, std::nan("")}}, "d");
  EXPECT_THAT(chart, HasSubstr(">2 V</span>"));
  EXPECT_THAT(chart, HasSubstr(">50 V</span>"));
  EXPECT_THAT(chart, HasSubstr(">100 V</span>"));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
  EXPECT_THAT(chart, Not(HasSubstr("inf")));
  // A few powers of ten on a long one, and something on one without any values.
  const Axis wide = axis_over({1e9, 1e-9}, 12, axis.shown);
  EXPECT_DOUBLE_EQ(wide.low, 1e-3);
  EXPECT_LE(count(line_chart(wide, {{1}}, "d"), " V</span>"), 6U);
  EXPECT_THAT(line_chart(axis_over({0, 0}, 6, axis.shown), {{0, 0}}, "d"), HasSubstr(">1 V<"));
}

TEST(Chart, DotsAboveTheirBoundHaveAnotherShape) {
  const Axis axis = axis_over({0.01, 1}, 3, [](double x) { return fmt::format("{:g}", x); });
  const std::string chart = dot_chart(
      axis,
      {{{0.75, 1, "a: 1", true}, {0.25, 0.01, "b: 0.01", false}}, {0.1}, "3: 1", "0", "4", "d"});
  EXPECT_THAT(chart,
              HasSubstr(R"(<use class="above" href="#above" x="75.00%" y="0.00%"><title>a: 1<)"));
  EXPECT_THAT(chart, HasSubstr(R"(href="#within" x="25.00%" y="100.00%"><title>b: 0.01<)"));
  EXPECT_THAT(chart, HasSubstr(R"(<line class="bound" x2="100%" y1="50.00%" y2="50.00%"/>)"));
  EXPECT_THAT(chart, HasSubstr(R"(<span class="limit" style="top:50.00%">0.1</span>)"));
  EXPECT_THAT(
      chart, HasSubstr(R"(<span class="note bad" style="left:75.00%;--back-by:-75.00%;top:0.00%)"));
  EXPECT_THAT(chart, HasSubstr(">3: 1</span>"));
}

// Blocks of two kinds of layers; the error of `up` grows with the block, that of `down` is ten
// times less.
ReportData made(const std::string& prefix, int blocks, std::optional<double> max_error = {}) {
  ReportData d;
  d.original = "float";
  d.quantized = "some/where/" + prefix + "/";
  d.original_bytes = 2000;
  d.quantized_bytes = 1000;
  for (int i = 0; i < blocks; ++i) {
    for (const char* kind : {"down", "up"}) {
      LayerError e;
      e.name = fmt::format("{}.{}.{}", prefix, i, kind);
      e.output_error = (kind[0] == 'u' ? 0.01 : 0.001) * (i + 1);
      d.report.layers.push_back(e);
      d.weights.push_back({std::vector<std::uint64_t>(256, 1), {0.1, 0.2}});
    }
    d.outliers.push_back({fmt::format("{}.{}.norm", prefix, i), {1, 1, 50}, {1, 1, 2}});
  }
  d.verdict = judge(d.report, max_error);
  return d;
}

TEST(Page, SaysWhatItCostAndSaved) {
  const std::string page = report_page(made("m", 3));
  EXPECT_THAT(page, HasSubstr("some/<wbr>where/<wbr>m/, measured against float"));
  EXPECT_THAT(page, HasSubstr("<dt>size</dt><dd>50 %<small>1 kB of 2 kB<"));
  EXPECT_THAT(page, HasSubstr("<dt>layers</dt><dd>6<small>w8a8-dynamic<"));
  EXPECT_THAT(page, HasSubstr("<dt>median output error</dt><dd>1 %<"));
  EXPECT_THAT(page, HasSubstr("<dt>largest output error</dt><dd>3 %<small>m.<wbr>2.<wbr>up<"));
  EXPECT_THAT(page, HasSubstr("<dt>largest outlier channel</dt><dd>50 \u2192 2<"));
  EXPECT_THAT(page, HasSubstr("<title>m</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<details>")));
}

// Each block has its column, from the left to the right, in the middle of which its dots are.
TEST(Page, DotsOfABlockAreInItsColumn) {
  const std::string page = report_page(made("m", 2));
  for (const char* kind : {"up", "down"})
    for (const auto& [block, place] : {std::pair("0", "25.00%"), std::pair("1", "75.00%")}) {
      const std::size_t title = page.find(fmt::format("<title>m.{}.{}: ", block, kind));
      ASSERT_NE(title, std::string::npos);
      EXPECT_THAT(page.substr(title - 80, 80), HasSubstr(fmt::format("x=\"{}\"", place)));
    }
}

TEST(Page, BeginsWithAVerdictInWords) {
  const std::string good = report_page(made("m", 3));
  EXPECT_THAT(good, HasSubstr(R"(<section class="verdict good"><h2>)"));
  EXPECT_THAT(good, HasSubstr("Good, 6 layers, none above the bound of 10&nbsp;%</h2>"));
  EXPECT_THAT(good, Not(HasSubstr("above the bound</span>")));
  EXPECT_THAT(good, HasSubstr("the bound, 10 %</span>"));
  const std::string failed = report_page(made("m", 3, 0.015));
  EXPECT_THAT(failed, HasSubstr(R"(<section class="verdict failed"><h2>)"));
  EXPECT_THAT(failed, HasSubstr("2 of 6 layers are above the bound of 1.5&nbsp;%</h2>"));
  EXPECT_THAT(failed, HasSubstr("<li>Keep them float: <code>--ignore &#39;*.up&#39;</code>"));
  EXPECT_THAT(failed, HasSubstr("above the bound</span>"));
  EXPECT_THAT(failed, HasSubstr("<td class=\"bad\">\u25b2 3 %"));
  EXPECT_LT(failed.find("verdict failed"), failed.find("<dt>size"));
  const std::string none = report_page(made("m", 3, inf));
  EXPECT_THAT(none, HasSubstr(R"(<section class="verdict open"><h2>No bound, 6 layers</h2>)"));
  EXPECT_THAT(none, Not(HasSubstr("class=\"bound\"")));
  EXPECT_THAT(none, Not(HasSubstr("class=\"limit\"")));
}

TEST(Page, ListsTensorsThatShouldNotHaveChanged) {
  ReportData d = made("m", 3);
  d.report.unexpected = {"a.weight", "b.weight"};
  d.verdict = judge(d.report);
  const std::string page = report_page(d);
  EXPECT_THAT(page, HasSubstr("verdict failed"));
  EXPECT_THAT(page, HasSubstr("<li>b.<wbr>weight</li>"));
}

TEST(Page, HasAChartWithTheBoundForEachKindTheWorstFirst) {
  for (const int blocks : {3, 100}) {
    const std::string page = report_page(made("m", blocks, 0.015));
    const auto kind = [](const char* name) {
      return fmt::format("<figure><figcaption><b>{}</b>", name);
    };
    ASSERT_EQ(count(page, kind("up")), 1U);
    ASSERT_EQ(count(page, kind("down")), 1U);
    EXPECT_LT(page.find(kind("up")), page.find(kind("down")));
    EXPECT_EQ(count(page, "<span class=\"limit\" style=\"top"), 2U);
    EXPECT_THAT(page,
                HasSubstr(fmt::format("<span class=\"bad\">{} of {} above", blocks - 1, blocks)));
    // The worst of each is named in its chart; one line at the bound in each, in the legend and in
    // each bar of the list.
    EXPECT_THAT(page, HasSubstr(fmt::format(">{}: {} %</span>", blocks - 1, blocks)));
    EXPECT_EQ(count(page, "class=\"bound\""),
              2 + 1 + std::min(std::size_t{10}, std::size_t{2} * static_cast<std::size_t>(blocks)));
    EXPECT_EQ(count(page, "<div class=\"facets\""), blocks > 3 ? 3U : 2U);
    // One legend for errors, one for lines.
    EXPECT_EQ(count(page, "class=\"legend\""), 2U);
  }
}

TEST(Page, LayersWithoutOthersOfTheirKindShareAChart) {
  ReportData d = made("m", 3);
  for (const char* name : {"lm_head", "score"}) {
    LayerError e;
    e.name = name;
    e.weight_error = 0.5;
    d.report.layers.push_back(e);
    d.weights.emplace_back();
  }
  d.verdict = judge(d.report);
  const std::string page = report_page(d);
  EXPECT_EQ(count(page, "<figure><figcaption><b>other layers</b>"), 1U);
  EXPECT_THAT(page, HasSubstr(">lm_head: 50 %</span>"));
  EXPECT_THAT(report_page(made("m", 1)), HasSubstr("<figcaption><b>all layers</b>"));
}

// Charts can be compared: they have the same axis, whatever is in them.
TEST(Page, NormsShareAnAxisAndALegend) {
  ReportData d = made("m", 3);
  d.outliers[1].before = {100, 1, 7000};
  d.outliers[2].after.clear();
  const std::string page = report_page(d);
  EXPECT_EQ(count(page, ">10000</span>") + count(page, ">1e+04</span>"), 3U);
  EXPECT_EQ(count(page, "before smoothing</span>"), 1U);
  for (OutlierPicture& o : d.outliers) o.after.clear();
  EXPECT_THAT(report_page(d), Not(HasSubstr("before smoothing</span>")));
}

TEST(Page, RatiosAreToTheUpperMedian) {
  EXPECT_EQ(ratio_to_median({}), 0);
  EXPECT_EQ(ratio_to_median({3}), 1);
  EXPECT_EQ(ratio_to_median({1, 8, 2}), 4);
  EXPECT_EQ(ratio_to_median({1, 8, 2, 4}), 2);
  EXPECT_EQ(ratio_to_median({0, 8, 0}), 0);
}

// Columns from the least to the largest, both included: 256 integers four at a time, 16 one by one,
// scales in 48.
TEST(Page, HistogramsHaveAllOfTheirValues) {
  ReportData d = made("m", 1);
  d.weights[0].values.assign(256, 0);
  d.weights[0].values[0] = 3;
  d.weights[0].values[255] = 6;
  d.weights[0].scales = {0.1, 0.2, 0.2, 0.0, inf};
  d.weights[1].values.assign(16, 0);
  d.weights[1].values[15] = 1;
  const std::string page = report_page(d);
  EXPECT_THAT(page, HasSubstr("d=\"M0 100V50.0H1.56V100.0H3.12"));
  EXPECT_THAT(page, HasSubstr("V100.0H98.44V0.0H100.00V100z\""));
  EXPECT_THAT(page, HasSubstr("<span>-128</span><span>127</span>"));
  EXPECT_THAT(page, HasSubstr("d=\"M0 100V50.0H2.08V100.0H4.17"));
  EXPECT_THAT(page, HasSubstr("V100.0H97.92V0.0H100.00V100z\""));
  EXPECT_THAT(page, HasSubstr("<span>0.1</span><span>0.2</span>"));
  EXPECT_THAT(page, HasSubstr("V100.0H93.75V0.0H100.00V100z\""));
  EXPECT_THAT(page, HasSubstr("<span>-8</span><span>7</span>"));
}

TEST(Page, WithManyNormsTheWorstAreShown) {
  ReportData d = made("m", 40);
  for (std::size_t i = 0; i < d.outliers.size(); ++i)
    d.outliers[i].before = {1, 1, static_cast<float>(i + 2)};
  const std::string page = report_page(d);
  const std::size_t begin = page.find("Where they stand out most");
  ASSERT_NE(begin, std::string::npos);
  const std::string worst = page.substr(begin, page.find("All 40 norms") - begin);
  EXPECT_EQ(count(worst, "<figcaption>"), 8U);
  EXPECT_LT(worst.find("m.<wbr>39.<wbr>norm"), worst.find("m.<wbr>38.<wbr>norm"));
  EXPECT_THAT(worst, HasSubstr("m.<wbr>32.<wbr>norm"));
}

TEST(Page, NamesDoNotBecomeMarkup) {
  for (const char* name : {"<script>alert(1)</script>", "\"><img src=x onerror='alert(2)'>"})
    for (const int blocks : {2, 70}) {
      ReportData d = made(name, blocks, 1e-6);
      d.report.unexpected = {name, name};
      d.verdict = judge(d.report, 1e-6);
      const std::string page = report_page(d);
      EXPECT_THAT(page, Not(HasSubstr("<script")));
      EXPECT_THAT(page, Not(HasSubstr("<img")));
      EXPECT_THAT(page, Not(HasSubstr("onerror='")));
    }
}

TEST(Page, ErrorsThatAreNoNumbersAreTheLargest) {
  ReportData d = made("m", 80);
  d.report.layers[80].output_error = std::nan("");
  d.verdict = judge(d.report);
  EXPECT_THAT(report_page(d), HasSubstr("<dd class=\"bad\">inf %<small>m.<wbr>40.<wbr>down<"));
}

TEST(Page, ManyLayersAreFolded) {
  const std::string page = report_page(made("m", 250));
  EXPECT_THAT(page, HasSubstr("<details><summary>All 500 layers"));
  EXPECT_THAT(page, HasSubstr("The largest, by name"));
  EXPECT_THAT(page, Not(HasSubstr("<details open")));
}

}  // namespace
}  // namespace octavo::cli
