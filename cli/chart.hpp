// Charts as text. An SVG holds shapes only and is stretched to its box; names and numbers stand
// beside it as HTML, so that they wrap, keep their size on a phone and are read aloud.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

/// &, <, > and quotes as HTML has them; what cannot be seen, or turns the order of what can, as
/// `printable` shows it.
std::string escaped(std::string_view text);
/// The same for a name or a path, which may also go to the next line after . _ and /.
std::string escaped_name(std::string_view name);

/// A logarithmic axis, upwards, that several charts share.
struct Axis {
  double low = 0.1, high = 1;
  std::string (*shown)(double) = nullptr;  ///< a number of it in words
  /// How far up a value stands, from 0 to 1. What is less than `low`, or no number, is at the
  /// bottom.
  [[nodiscard]] double share(double value) const;
};
/// Over all positive values, between round numbers, over no more than so many powers of ten.
Axis axis_over(const std::vector<double>& values, int powers, std::string (*shown)(double));

/// Charts over one axis, side by side: its numbers stand at the left of each row only. `right` is
/// the longest name of a bound, and may be empty.
std::string facets(const Axis& axis, const std::string& figures, std::string_view right);

struct Bar {
  std::string label;  ///< a name
  double value = 0;
  std::string shown;  ///< the value in words
  double bound = 0;   ///< what is more is above it; infinite if there is none
  bool above = false;
};
/// A bar for each, from 0, and a line at its bound, which is named if it is the same for all; the
/// widest takes all the room. What is not finite is as wide.
std::string bar_chart(const std::vector<Bar>& bars, std::string (*shown)(double));

struct Dot {
  double place = 0;  ///< from left, 0, to right, 1
  double value = 0;
  std::string label;  ///< shows on pointing
  bool above = false;
};
struct DotChart {
  std::vector<Dot> dots;       ///< the highest first
  std::vector<double> bounds;  ///< a line with a name at each
  std::string note;            ///< at the highest
  std::string left, right;     ///< ends of the axis from left to right
  std::string description;
};
/// Those above their bound are triangles.
std::string dot_chart(const Axis& axis, const DotChart& chart);
/// What dot_chart refers to, once in a page.
std::string chart_symbols();
/// Columns for counts; `low` and `high` name the ends of the axis.
std::string histogram(const std::vector<double>& counts, const std::string& low,
                      const std::string& high, const std::string& description);

/// Values over their index. The first two lines look different.
std::string line_chart(const Axis& axis, const std::vector<std::vector<double>>& lines,
                       const std::string& description);

/// A shape of the charts above, and what it means. A page says it once.
enum class Shape { within, above, bound, first_line, second_line };
std::string legend_entry(Shape shape, std::string_view meaning);

}  // namespace octavo::cli
