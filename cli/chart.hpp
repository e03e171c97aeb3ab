// Charts as SVG text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

/// &, < and quotes as HTML has them.
std::string escaped(std::string_view text);

struct Bar {
  std::string label;
  double value = 0;
  std::string shown;
};
/// A bar for each, from 0, the longest as wide as the chart.
std::string bar_chart(const std::vector<Bar>& bars);

/// Columns for counts; `low` and `high` name the ends of the axis.
std::string histogram(const std::vector<double>& counts, const std::string& low,
                      const std::string& high);

struct Line {
  std::string name;
  std::vector<double> values;
};
/// Values over their index, on a logarithmic axis; the first two lines have two colours.
std::string line_chart(const std::vector<Line>& lines);

}  // namespace octavo::cli
