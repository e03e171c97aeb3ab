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
std::string ends(std::string_view low, std::string_view high) {
  return fmt::format("<div class=\"axis\"><span>{}</span><span>{}</span></div>", escaped(low),
                     escaped(high));
}

// 1, 2 or 5 times a power of ten: the least that is not below x.
double round_up(double x) {
  const double power = std::pow(10.0, std::floor(std::log10(x)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= x * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// Round numbers within the axis, about five: 1, 2 and 5 times powers of ten, or powers alone.
std::vector<double> ticks_of(const Axis& axis) {
  const double first = std::floor(std::log10(axis.low) + 1e-9);
  const double span = std::log10(axis.high / axis.low);
  const double step = std::max(1.0, std::ceil(span / 5));
  std::vector<double> ticks;
  for (double power = first; power <= std::log10(axis.high) + 1e-9; power += step)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10.0, power);
      if ((factor == 1 || span < 2.1) && tick > axis.low * (1 - 1e-9) &&
          tick < axis.high * (1 + 1e-9))
        ticks.push_back(tick);
    }
  if (ticks.empty() || axis.share(ticks.back()) < 0.85) ticks.push_back(axis.high);
  return ticks;
}

// `body` over lines at round numbers, which stand at the left; `beside` are further words. Places
// within the body are shares of its box: shapes keep their form, whatever the box is.
std::string plot(const Axis& axis, const std::string& description, const std::string& body,
                 const std::string& beside = {}) {
  std::string lines, names;
  for (const double tick : ticks_of(axis)) {
    const double y = 100 - 100 * axis.share(tick);
    lines += fmt::format(R"(<line class="tick" x2="100%" y1="{0:.2f}%" y2="{0:.2f}%"/>)", y);
    names += fmt::format(R"(<span style="top:{:.2f}%">{}</span>)", y, escaped(axis.shown(tick)));
  }
  return fmt::format(
      R"(<div class="plot"><div class="ticks" aria-hidden="true">{}</div><svg role="img" )"
      R"(aria-label="{}">{}{}</svg>{}</div>)",
      names, escaped(description), lines, body, beside);
}

std::string polyline(const std::vector<double>& values, std::size_t look, const Axis& axis) {
  std::string points;
  const auto n = static_cast<double>(std::max<std::size_t>(2, values.size()) - 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    points += fmt::format("{:.2f},{:.2f} ", 100 * static_cast<double>(i) / n,
                          100 - 100 * axis.share(values[i]));
  return fmt::format(R"(<polyline class="line{}" points="{}"/>)", look, points);
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

double Axis::share(double value) const {
  if (!(value > low)) return 0;
  return std::min(1.0, std::log(value / low) / std::log(high / low));
}

Axis axis_over(const std::vector<double>& values, int powers, std::string (*shown)(double)) {
  double low = 1e300, high = 0;
  for (const double v : values)
    if (v > 0 && std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  Axis axis;
  axis.shown = shown;
  if (!(high > 0)) return axis;
  axis.high = round_up(high);
  axis.low = 1 / round_up(1 / std::max(low, high * std::pow(10.0, -powers)));  // round, too
  if (!(axis.low < axis.high)) axis.low = axis.high / 10;
  return axis;
}

std::string facets(const Axis& axis, const std::string& figures, std::string_view right) {
  std::size_t left = 0;
  for (const double tick : ticks_of(axis)) left = std::max(left, axis.shown(tick).size());
  return fmt::format(R"(<div class="facets" style="--left:{}ch;--right:{}ch">{}</div>)", left,
                     right.size(), figures);
}

std::string bar_chart(const std::vector<Bar>& bars, std::string (*shown)(double)) {
  double most = 0;
  for (const Bar& bar : bars)
    for (const double v : {bar.value, bar.bound})
      if (std::isfinite(v)) most = std::max(most, v);
  const auto width = [&](double v) {
    return most > 0 ? 100 * std::clamp(std::isfinite(v) ? v / most : 1.0, 0.0, 1.0) : 0.0;
  };
  std::string out = "<ul class=\"bars\">";
  if (!bars.empty() && std::isfinite(bars[0].bound) &&
      std::all_of(bars.begin(), bars.end(), [&](auto& b) { return b.bound == bars[0].bound; })) {
    const double x = width(bars[0].bound);
    out += fmt::format(R"(<li aria-hidden="true"><span class="limit" style="margin-left:{0:.2f}%;)"
                       R"(--back-by:-{0:.2f}%">bound {1}</span></li>)",
                       x, escaped(shown(bars[0].bound)));
  }
  for (const Bar& bar : bars) {
    const std::string bound =
        std::isfinite(bar.bound)
            ? fmt::format(R"(<path class="bound" d="M{:.2f} -.4V1.4"/>)", width(bar.bound))
            : "";
    out += fmt::format(
        R"(<li><span>{}</span><b{}>{}</b><svg viewBox="0 0 100 1" preserveAspectRatio="none" )"
        R"(aria-hidden="true"><path class="{}" d="M0 0H{:.2f}V1H0z"/>{}</svg></li>)",
        escaped_name(bar.label), bar.above ? " class=\"bad\"" : "", escaped(bar.shown),
        bar.above ? "bar above" : "bar", width(bar.value), bound);
  }
  return out + "</ul>";
}

std::string dot_chart(const Axis& axis, const DotChart& chart) {
  std::string body, beside;
  for (const double bound : chart.bounds) {
    const double y = 100 - 100 * axis.share(bound);
    body += fmt::format(R"(<line class="bound" x2="100%" y1="{0:.2f}%" y2="{0:.2f}%"/>)", y);
    beside += fmt::format(R"(<span class="limit" style="top:{:.2f}%">{}</span>)", y,
                          escaped(axis.shown(bound)));
  }
  for (const Dot& dot : chart.dots)
    body += fmt::format(
        R"(<use class="{0}" href="#{0}" x="{1:.2f}%" y="{2:.2f}%"><title>{3}</title></use>)",
        dot.above ? "above" : "within", 100 * dot.place, 100 - 100 * axis.share(dot.value),
        escaped(dot.label));
  if (!chart.dots.empty()) {
    // At the left it begins at its dot, at the right it ends there: it is never outside.
    const Dot& highest = chart.dots[0];
    beside += fmt::format(
        R"(<span class="note{0}" style="left:{1:.2f}%;--back-by:-{1:.2f}%;top:{2:.2f}%">{3}</span>)",
        highest.above ? " bad" : "", 100 * highest.place, 100 - 100 * axis.share(highest.value),
        escaped(chart.note));
  }
  return fmt::format(
      R"(<div class="bounded">{}{}</div>)",
      plot(axis, chart.description, body, fmt::format(R"(<div class="words">{}</div>)", beside)),
      ends(chart.left, chart.right));
}

std::string chart_symbols() {
  return R"(<svg class="symbols" aria-hidden="true"><circle id="within" r="3"/>)"
         R"(<path id="above" d="M0-5L4.8 3.4H-4.8z"/></svg>)";
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
                     ends(low, high));
}

std::string line_chart(const Axis& axis, const std::vector<std::vector<double>>& lines,
                       const std::string& description) {
  std::string body;
  for (std::size_t i = 0; i < lines.size(); ++i) body += polyline(lines[i], i, axis);
  return plot(
      axis, description,
      fmt::format(R"(<svg viewBox="0 0 100 100" preserveAspectRatio="none">{}</svg>)", body));
}

std::string legend_entry(Shape shape, std::string_view meaning) {
  constexpr const char* shapes[] = {
      R"(<use class="within" href="#within" x="50%" y="50%"/>)",
      R"(<use class="above" href="#above" x="50%" y="55%"/>)",
      R"(<line class="bound" x2="100%" y1="50%" y2="50%"/>)",
      R"(<line class="line0" x2="100%" y1="50%" y2="50%"/>)",
      R"(<line class="line1" x2="100%" y1="50%" y2="50%"/>)",
  };
  return fmt::format(R"(<span><svg aria-hidden="true">{}</svg>{}</span>)",
                     shapes[static_cast<std::size_t>(shape)], escaped(meaning));
}

}  // namespace octavo::cli
