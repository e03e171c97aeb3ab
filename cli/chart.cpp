#include "cli/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/table.hpp"
#include "offline/printable.hpp"

namespace octavo::cli {
namespace {

// Shapes are drawn in a box of 100 x 100 that is stretched; strokes keep their width.
std::string shapes(const std::string& description, std::string_view body) {
  return fmt::format(
      "<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{}"
      "</svg>",
      escaped(description), body);
}

// The ends of a horizontal axis, below the shapes.
std::string axis(std::string_view low, std::string_view high) {
  return fmt::format("<div class=\"axis\"><span>{}</span><span>{}</span></div>", escaped(low),
                     escaped(high));
}

// A number beside the shapes, and a line across them, `share` of the height above the bottom.
struct Tick {
  double share = 0;
  std::string shown;
};

std::string with_ticks(const std::string& description, const std::vector<Tick>& ticks,
                       const std::string& body) {
  std::string lines, names;
  for (const Tick& t : ticks) {
    const double y = 100 - 100 * t.share;
    lines += fmt::format("<path class=\"tick\" d=\"M0 {:.2f}H100\"/>", y);
    names += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", y, escaped(t.shown));
  }
  return fmt::format(
      "<div class=\"plot\"><div class=\"ticks\" aria-hidden=\"true\">{}</div>{}</div>", names,
      shapes(description, lines + body));
}

// 1, 2 or 5 times a power of ten: the least that is not below x.
double round_up(double x) {
  const double power = std::pow(10.0, std::floor(std::log10(x)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= x * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// Powers of ten within [low, high], five at most, and the upper end if there is room for its name.
std::vector<Tick> logarithmic_ticks(double low, double high) {
  const double span = std::log10(high / low);
  const double first = std::ceil(std::log10(low) - 1e-9);
  const double count = std::floor(std::log10(high) + 1e-9) - first + 1;
  const double step = std::max(1.0, std::ceil(count / 5));
  std::vector<Tick> ticks;
  for (int i = 0; i * step < count; ++i) {
    const double power = first + i * step;
    ticks.push_back({(power - std::log10(low)) / span, number(std::pow(10.0, power))});
  }
  if (ticks.empty()) ticks.push_back({0, number(low)});
  if (ticks.back().share < 0.85) ticks.push_back({1, number(high)});
  return ticks;
}

struct Range {
  double low = 0, high = 0;
};
// Of the positive values; no more than six powers of ten, for a chart that shows something.
Range positive_range(const std::vector<Line>& lines) {
  Range r{1e300, 0};
  for (const Line& line : lines)
    for (const double v : line.values)
      if (v > 0 && std::isfinite(v)) {
        r.low = std::min(r.low, v);
        r.high = std::max(r.high, v);
      }
  if (!(r.high > 0)) return {};
  r.low = 1 / round_up(1 / std::max(r.low, r.high * 1e-6));  // a round number, too
  r.high = round_up(r.high);
  if (!(r.low < r.high)) r.low = r.high / 10;
  return r;
}

std::string polyline(const Line& line, std::size_t colour, const Range& range) {
  std::string points;
  const auto n = static_cast<double>(std::max<std::size_t>(2, line.values.size()) - 1);
  for (std::size_t i = 0; i < line.values.size(); ++i) {
    const double v =
        std::clamp(std::isnan(line.values[i]) ? 0.0 : line.values[i], range.low, range.high);
    points += fmt::format("{:.2f},{:.2f} ", 100 * static_cast<double>(i) / n,
                          100 - 100 * std::log(v / range.low) / std::log(range.high / range.low));
  }
  return fmt::format("<polyline class=\"line{}\" points=\"{}\"/>", colour, points);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : offline::printable(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string escaped_name(std::string_view name) {
  std::string out;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find_first_of("._/", begin), name.size() - 1) + 1;
    out += escaped(name.substr(begin, end - begin));
    if (end < name.size()) out += "<wbr>";
    begin = end;
  }
  return out;
}

std::string bar_chart(const std::vector<Bar>& bars, double most) {
  std::string out = "<ul class=\"bars\">";
  for (const Bar& bar : bars) {
    const double share =
        most > 0 ? std::clamp(std::isfinite(bar.value) ? bar.value / most : 1.0, 0.0, 1.0) : 0.0;
    out += fmt::format(
        "<li><span>{}</span><b>{}</b><svg viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" "
        "aria-hidden=\"true\"><path class=\"bar\" d=\"M0 0H{:.2f}V1H0z\"/></svg></li>",
        escaped_name(bar.label), escaped(bar.shown), 100 * share);
  }
  return out + "</ul>";
}

std::string dot_chart(const std::vector<Bar>& dots, const std::string& description) {
  double most = 0;
  for (const Bar& dot : dots)
    if (std::isfinite(dot.value)) most = std::max(most, dot.value);
  if (!(most > 0)) most = 1;
  const double step = round_up(most / 4), top = std::ceil(most / step) * step;
  std::vector<Tick> ticks;
  for (int i = 0; i * step <= top * (1 + 1e-9); ++i)
    ticks.push_back({i * step / top, percent(i * step)});
  std::string body;
  const auto n = static_cast<double>(std::max<std::size_t>(1, dots.size()));
  for (std::size_t i = 0; i < dots.size(); ++i) {
    const double v = std::isfinite(dots[i].value) ? dots[i].value : top;
    // A line without length, whose round ends make a dot that is not stretched.
    body += fmt::format("<path class=\"dot\" d=\"M{:.2f} {:.2f}h0\"><title>{}: {}</title></path>",
                        100 * (static_cast<double>(i) + 0.5) / n, 100 - 100 * v / top,
                        escaped(dots[i].label), escaped(dots[i].shown));
  }
  return with_ticks(description, ticks, body);
}

std::string histogram(const std::vector<double>& counts, const std::string& low,
                      const std::string& high, const std::string& description) {
  const double most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const double step = 100.0 / static_cast<double>(std::max<std::size_t>(1, counts.size()));
  // One outline for all columns: a page with hundreds of layers stays light.
  std::string d = "M0 100";
  for (std::size_t i = 0; i < counts.size(); ++i)
    d += fmt::format("V{:.1f}H{:.2f}", most > 0 ? 100 - 100 * counts[i] / most : 100.0,
                     static_cast<double>(i + 1) * step);
  return fmt::format("<div class=\"histogram\">{}{}</div>",
                     shapes(description, fmt::format("<path class=\"bar\" d=\"{}V100z\"/>", d)),
                     axis(low, high));
}

std::string line_chart(const std::vector<Line>& lines, const std::string& description) {
  const Range range = positive_range(lines);
  if (!(range.high > 0)) return "<p>All values are 0.</p>";
  std::string body;
  std::string legend;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    body += polyline(lines[i], i, range);
    legend += fmt::format("<span class=\"name{}\">{}</span>", i, escaped(lines[i].name));
  }
  return fmt::format("{}<div class=\"legend\">{}</div>",
                     with_ticks(description, logarithmic_ticks(range.low, range.high), body),
                     legend);
}

}  // namespace octavo::cli
