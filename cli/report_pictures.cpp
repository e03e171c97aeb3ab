// Pictures of what is quantized: channels of activations, weights and scales.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/chart.hpp"
#include "cli/names.hpp"
#include "cli/report_parts.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

std::vector<double> sorted(const std::vector<float>& values) {
  std::vector<double> out(values.begin(), values.end());
  std::sort(out.begin(), out.end(), std::greater<>());
  return out;
}

std::string outlier_figure(const OutlierPicture& o, const Axis& axis) {
  std::vector<std::vector<double>> lines{sorted(o.before)};
  std::string ratio = number(ratio_to_median(o.before));
  if (!o.after.empty()) {
    lines.push_back(sorted(o.after));
    ratio += fmt::format(" \u2192 {}", number(ratio_to_median(o.after)));
  }
  return fmt::format(
      "<figure><figcaption><b>{}</b> <span>{}</span></figcaption>{}</figure>", escaped_name(o.norm),
      ratio,
      line_chart(axis, lines, fmt::format("Channels of {}; largest to median: {}", o.norm, ratio)));
}

std::string outlier_figures(const std::vector<OutlierPicture>& pictures, const Axis& axis) {
  std::string out;
  for (const OutlierPicture& o : pictures) out += outlier_figure(o, axis);
  return facets(axis, out, "");
}

// Layers in their blocks, one card for each block, by `content`.
template <class Content>
std::string cards(const ReportData& d, const Content& content) {
  std::string out = "<div class=\"grid\">";
  for (std::size_t begin = 0; begin < d.report.layers.size();) {
    const std::string block = split_block(d.report.layers[begin].name).first;
    std::size_t end = begin;
    while (end < d.report.layers.size() && split_block(d.report.layers[end].name).first == block)
      ++end;
    out += fmt::format("<section class=\"card\"><h3>{}</h3>{}</section>", escaped_name(block),
                       content(begin, end));
    begin = end;
  }
  return out + "</div>";
}

// At most so many columns: neighbours are added up.
std::vector<double> grouped(const std::vector<std::uint64_t>& counts, std::size_t columns) {
  const std::size_t step = std::max<std::size_t>(1, counts.size() / columns);
  std::vector<double> out((counts.size() + step - 1) / step, 0.0);
  for (std::size_t i = 0; i < counts.size(); ++i) out[i / step] += static_cast<double>(counts[i]);
  return out;
}

std::string weight_histogram(const WeightPicture& w, const std::string& layer) {
  const auto ends = static_cast<int>(w.values.size() / 2);
  return histogram(
      grouped(w.values, 64), std::to_string(-ends), std::to_string(ends - 1),
      fmt::format("How often each integer from {} to {} occurs among the weights of {}", -ends,
                  ends - 1, layer));
}

std::string scale_histogram(const WeightPicture& w, const std::string& layer) {
  const auto usable = [](double s) { return s > 0 && std::isfinite(s); };
  double low = 1e300, high = 0;
  for (const double s : w.scales)
    if (usable(s)) {
      low = std::min(low, s);
      high = std::max(high, s);
    }
  if (!(high > 0)) return {};
  constexpr std::size_t columns = 48;
  std::vector<double> counts(columns, 0.0);
  const double span = std::max(std::log(high / low), 1e-9);
  for (const double s : w.scales)
    if (usable(s))
      counts[std::min(columns - 1, static_cast<std::size_t>(std::log(s / low) / span * columns))] +=
          1;
  return histogram(counts, number(low), number(high),
                   fmt::format("{} scales of {}, from {} to {}", w.scales.size(), layer,
                               number(low), number(high)));
}

}  // namespace

double ratio_to_median(const std::vector<float>& values) {
  if (values.empty()) return 0;
  const std::vector<double> v = sorted(values);
  const double middle = v[(v.size() - 1) / 2];
  return middle > 0 ? v.front() / middle : 0;
}

std::string outliers_part(const ReportData& d) {
  if (d.outliers.empty()) return {};
  std::vector<double> values;
  bool smoothed = false;
  for (const OutlierPicture& o : d.outliers) {
    values.insert(values.end(), o.before.begin(), o.before.end());
    values.insert(values.end(), o.after.begin(), o.after.end());
    smoothed = smoothed || !o.after.empty();
  }
  const Axis axis = axis_over(values, 6, number);
  std::string worst;
  if (folded(d)) {
    std::vector<OutlierPicture> some = d.outliers;
    std::stable_sort(some.begin(), some.end(), [](const auto& a, const auto& b) {
      return ratio_to_median(a.before) > ratio_to_median(b.before);
    });
    some.resize(std::min<std::size_t>(some.size(), 8));
    worst = "<h3>Where they stand out most</h3>" + outlier_figures(some, axis);
  }
  return fmt::format(
      "<h2>Outlier channels</h2><p>The largest activation of each input channel after a norm, in "
      "order of size. A flat line quantizes well: one scale then suits all channels. Beside each "
      "name, the largest over the median{}. The axis is logarithmic, and the same for all.</p>"
      "{}{}{}",
      smoothed ? ", before and after smoothing" : "",
      smoothed ? fmt::format("<p class=\"legend\">{}{}</p>",
                             legend_entry(Shape::first_line, "before smoothing"),
                             legend_entry(Shape::second_line, "after"))
               : "",
      worst,
      maybe_folded(folded(d), fmt::format("All {} norms", d.outliers.size()),
                   outlier_figures(d.outliers, axis)));
}

std::string weights_part(const ReportData& d) {
  const std::string all = cards(d, [&](std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string& layer = d.report.layers[i].name;
      out +=
          fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>",
                      escaped_name(split_block(layer).second),
                      weight_histogram(d.weights[i], layer), scale_histogram(d.weights[i], layer));
    }
    return out;
  });
  return fmt::format(
      "<h2>Weights and scales</h2><p>Above, how often each integer occurs among a layer's "
      "quantized weights; below, its scales on a logarithmic axis.</p>{}",
      maybe_folded(folded(d), fmt::format("All {} layers", d.report.layers.size()), all));
}

}  // namespace octavo::cli
