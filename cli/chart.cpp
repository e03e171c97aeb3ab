#include "cli/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/table.hpp"

namespace octavo::cli {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string bar_chart(const std::vector<Bar>& bars) {
  constexpr int row = 22, width = 640;
  double most = 0;
  for (const Bar& bar : bars)
    if (std::isfinite(bar.value)) most = std::max(most, bar.value);
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", width,
                                row * static_cast<int>(bars.size()) + 4);
  int y = 2;
  for (const Bar& bar : bars) {
    const double share =
        most > 0 ? std::clamp(std::isfinite(bar.value) ? bar.value / most : 1.0, 0.0, 1.0) : 0.0;
    out += fmt::format(
        "<rect class=\"bar\" x=\"0\" y=\"{}\" width=\"{:.1f}\" height=\"18\"/>"
        "<text x=\"4\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        y, share * width, y + 13, escaped(bar.label), width - 4, y + 13, escaped(bar.shown));
    y += row;
  }
  return out + "</svg>";
}

std::string histogram(const std::vector<double>& counts, const std::string& low,
                      const std::string& high) {
  constexpr int width = 320, height = 90;
  const double most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", width, height + 16);
  const double step =
      static_cast<double>(width) / static_cast<double>(std::max<std::size_t>(1, counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double h = most > 0 ? counts[i] / most * height : 0;
    if (h > 0)
      out += fmt::format(
          "<rect class=\"bar\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>",
          static_cast<double>(i) * step, height - h, step * 0.9, h);
  }
  out += fmt::format(
      "<text x=\"0\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
      height + 13, escaped(low), width, height + 13, escaped(high));
  return out + "</svg>";
}

std::string line_chart(const std::vector<Line>& lines) {
  constexpr double width = 640, height = 160;
  double low = 1e300, high = 0;
  for (const Line& line : lines)
    for (const double v : line.values)
      if (v > 0) {
        low = std::min(low, v);
        high = std::max(high, v);
      }
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", width, height + 18);
  if (!(high > 0)) return out + "</svg>";
  low = std::max(low, high * 1e-6);
  const double span = std::max(std::log(high / low), 1e-9);
  double label = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string points;
    const auto n = static_cast<double>(std::max<std::size_t>(2, lines[i].values.size()) - 1);
    for (std::size_t x = 0; x < lines[i].values.size(); ++x)
      points += fmt::format(
          "{:.1f},{:.1f} ", static_cast<double>(x) / n * width,
          height - std::log(std::max(lines[i].values[x], low) / low) / span * (height - 4));
    out += fmt::format(
        "<polyline class=\"line{}\" points=\"{}\"/><text class=\"name{}\" x=\"{}\" "
        "y=\"{}\">{}</text>",
        i, points, i, label, height + 14, escaped(lines[i].name));
    label += width / 3;
  }
  return out + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} to {}</text></svg>",
                           width, height + 14, number(low), number(high));
}

}  // namespace octavo::cli
