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

struct Bar {
  std::string label;  ///< a name
  double value = 0;
  std::string shown;  ///< the value in words
};
/// A bar for each, from 0; `most` is as wide as there is room. What is not finite is as wide.
std::string bar_chart(const std::vector<Bar>& bars, double most);

/// A dot for each over its place in the row, from 0 on a linear axis; the label and the value in
/// words show on pointing.
std::string dot_chart(const std::vector<Bar>& dots, const std::string& description);

/// Columns for counts; `low` and `high` name the ends of the axis.
std::string histogram(const std::vector<double>& counts, const std::string& low,
                      const std::string& high, const std::string& description);

struct Line {
  std::string name;
  std::vector<double> values;
};
/// Values over their index, on a logarithmic axis with a few round numbers; the first two lines
/// have two colours. Values of 0 and less lie at the bottom.
std::string line_chart(const std::vector<Line>& lines, const std::string& description);

}  // namespace octavo::cli
