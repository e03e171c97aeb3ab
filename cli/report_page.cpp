#include "cli/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "cli/chart.hpp"
#include "cli/names.hpp"
#include "cli/report_style.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

// With more layers than this the page begins with an overview, and what there is of each is folded.
constexpr std::size_t many_layers = 60;

bool folded(const ReportData& d) { return d.layers.size() > many_layers; }

// Something long: as it is, or behind a line that opens it.
std::string maybe_folded(bool fold, std::string_view title, const std::string& body) {
  if (!fold) return body;
  return fmt::format("<details><summary>{}</summary>{}</details>", escaped(title), body);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// How far the largest channel stands out. 0 if there is nothing to compare it with.
double ratio_to_median(const std::vector<float>& values) {
  const double middle = median({values.begin(), values.end()});
  const auto largest = std::max_element(values.begin(), values.end());
  return middle > 0 ? static_cast<double>(*largest) / middle : 0;
}

// What is not a number cannot be worse, and can be compared as an infinite one.
double error_of(const LayerPicture& l) {
  const double e = l.error.error();
  return std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
}

const LayerPicture& worst_layer(const ReportData& d) {
  return *std::max_element(
      d.layers.begin(), d.layers.end(),
      [](const LayerPicture& a, const LayerPicture& b) { return error_of(a) < error_of(b); });
}

double median_error(const ReportData& d) {
  std::vector<double> errors;
  errors.reserve(d.layers.size());
  for (const LayerPicture& l : d.layers) errors.push_back(error_of(l));
  return median(std::move(errors));
}

bool measured_outputs(const ReportData& d) {
  return std::any_of(d.layers.begin(), d.layers.end(),
                     [](const LayerPicture& l) { return l.error.output_error.has_value(); });
}

std::string tile(std::string_view name, std::string_view value, std::string_view note) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>", escaped(name),
                     escaped(value), escaped_name(note));
}

// The worst pair before smoothing, and the worst after.
std::string outlier_tile(const ReportData& d) {
  double before = 0, after = 0;
  for (const OutlierPicture& o : d.outliers) {
    before = std::max(before, ratio_to_median(o.before));
    after = std::max(after, ratio_to_median(o.after.empty() ? o.before : o.after));
  }
  if (!(before > 0)) return {};
  const bool smoothed = std::any_of(d.outliers.begin(), d.outliers.end(),
                                    [](const OutlierPicture& o) { return !o.after.empty(); });
  return tile(
      "largest outlier channel",
      smoothed ? fmt::format("{} \u2192 {}", number(before), number(after)) : number(before),
      smoothed ? "times the median, before and after smoothing" : "times the median");
}

// The last part of the path that has a name.
std::string title(const ReportData& d) {
  std::filesystem::path path(d.quantized);
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

std::string summary(const ReportData& d) {
  const LayerPicture& worst = worst_layer(d);
  const double share = static_cast<double>(d.quantized_bytes) /
                       static_cast<double>(std::max<std::uint64_t>(1, d.original_bytes));
  const std::string what = measured_outputs(d) ? "output" : "weights";
  const auto smoothed = std::count_if(d.layers.begin(), d.layers.end(),
                                      [](const LayerPicture& l) { return l.error.smoothed; });
  return fmt::format(
             "<h1>{}</h1><p class=\"lead\">{} became {} by {}. The {} of a layer differs from the "
             "float one by {} at the median, and by {} at most, in {}.</p><dl class=\"tiles\">",
             escaped_name(title(d)), human_bytes(d.original_bytes), human_bytes(d.quantized_bytes),
             name(d.scheme), what, percent(median_error(d)), percent(error_of(worst)),
             escaped_name(worst.error.name)) +
         tile("size", fmt::format("{:.0f} %", 100 * share),
              fmt::format("{} of {}", human_bytes(d.quantized_bytes),
                          human_bytes(d.original_bytes))) +
         tile("layers", std::to_string(d.layers.size()),
              fmt::format("{}{}", name(d.scheme),
                          smoothed > 0 ? fmt::format(", {} of them smoothed", smoothed) : "")) +
         tile(fmt::format("median {} error", what), percent(median_error(d)), "of a layer") +
         tile(fmt::format("largest {} error", what), percent(error_of(worst)), worst.error.name) +
         outlier_tile(d) +
         fmt::format("</dl><p>{}, measured against {}.</p>", escaped_name(d.quantized),
                     escaped_name(d.original));
}

std::string problems(const ReportData& d) {
  std::string out;
  for (const std::string& name : d.unexpected)
    out += fmt::format("<p class=\"bad\">{} should not have changed, but did.</p>", escaped(name));
  return out;
}

// Layers in their blocks, one card for each block, by `content`.
template <class Content>
std::string cards(const ReportData& d, const Content& content) {
  std::string out = "<div class=\"grid\">";
  for (std::size_t begin = 0; begin < d.layers.size();) {
    const std::string block = split_block(d.layers[begin].error.name).first;
    std::size_t end = begin;
    while (end < d.layers.size() && split_block(d.layers[end].error.name).first == block) ++end;
    out += fmt::format("<section class=\"card\"><h3>{}</h3>{}</section>", escaped_name(block),
                       content(begin, end));
    begin = end;
  }
  return out + "</div>";
}

// The overview of many layers: all as dots, and the worst by name.
std::string overview(const ReportData& d) {
  std::vector<Bar> bars;
  bars.reserve(d.layers.size());
  for (const LayerPicture& l : d.layers)
    bars.push_back({l.error.name, error_of(l), percent(error_of(l))});
  std::string out = fmt::format(
      "<figure class=\"overview\">{}<figcaption>Every layer, from the first to the last. Point at "
      "a "
      "dot for its name.</figcaption></figure><h3>The ten largest</h3>",
      dot_chart(bars, fmt::format("Errors of {} layers in order; the largest is {}", bars.size(),
                                  percent(error_of(worst_layer(d))))));
  std::stable_sort(bars.begin(), bars.end(),
                   [](const Bar& a, const Bar& b) { return a.value > b.value; });
  bars.resize(std::min<std::size_t>(bars.size(), 10));
  return out + bar_chart(bars, bars.front().value);
}

std::string errors(const ReportData& d) {
  const double most = error_of(worst_layer(d));
  const std::string all = cards(d, [&](std::size_t begin, std::size_t end) {
    std::vector<Bar> bars;
    bars.reserve(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const LayerPicture& l = d.layers[i];
      bars.push_back({split_block(l.error.name).second, error_of(l), percent(error_of(l))});
    }
    return bar_chart(bars, most);
  });
  return fmt::format(
      "<h2>Error of each layer</h2><p>Relative to the float layer: {}.</p>{}{}",
      measured_outputs(d)
          ? "|y - y<sub>q</sub>| / |y| of its output on sampled rows (of its weights "
            "where there are none)"
          : "|w - w<sub>q</sub>| / |w| of its weights",
      folded(d) ? overview(d) : "",
      maybe_folded(folded(d), fmt::format("All {} layers", d.layers.size()), all));
}

std::string outlier_figure(const OutlierPicture& o) {
  const auto sorted = [](const std::vector<float>& v) {
    std::vector<double> w(v.begin(), v.end());
    std::sort(w.begin(), w.end(), std::greater<>());
    return w;
  };
  std::vector<Line> lines{{"before", sorted(o.before)}};
  std::string caption = fmt::format("largest to median: {}", number(ratio_to_median(o.before)));
  if (!o.after.empty()) {
    lines.push_back({"smoothed", sorted(o.after)});
    caption += fmt::format(" before, {} after", number(ratio_to_median(o.after)));
  }
  return fmt::format("<figure>{}<figcaption><b>{}</b>{}</figcaption></figure>",
                     line_chart(lines, fmt::format("Channels of {}; {}", o.norm, caption)),
                     escaped_name(o.norm), caption);
}

std::string outlier_figures(const std::vector<OutlierPicture>& pictures) {
  std::string out = "<div class=\"grid\">";
  for (const OutlierPicture& o : pictures) out += outlier_figure(o);
  return out + "</div>";
}

std::string outliers(const ReportData& d) {
  if (d.outliers.empty()) return {};
  std::string worst;
  if (folded(d)) {
    std::vector<OutlierPicture> some = d.outliers;
    std::stable_sort(some.begin(), some.end(), [](const auto& a, const auto& b) {
      return ratio_to_median(a.before) > ratio_to_median(b.before);
    });
    some.resize(std::min<std::size_t>(some.size(), 8));
    worst = "<h3>Where they stand out most</h3>" + outlier_figures(some);
  }
  return fmt::format(
      "<h2>Outlier channels</h2><p>The largest activation of each input channel after a norm, in "
      "order of size, on a logarithmic axis. A flat line quantizes well: one scale then suits all "
      "channels.</p>{}{}",
      worst,
      maybe_folded(folded(d), fmt::format("All {} norms", d.outliers.size()),
                   outlier_figures(d.outliers)));
}

std::string table(const ReportData& d) {
  std::string rows;
  for (const LayerPicture& l : d.layers) {
    const LayerError& e = l.error;
    rows += fmt::format(
        "<tr><th scope=\"row\">{}<td>{} x {}<td>{:.1f}<td>{:.6f}<td>{}<td>{}<td>{}<td>{}</tr>",
        escaped_name(e.name), e.n, e.k, e.sqnr_db, e.cosine, number(e.max_abs),
        percent(e.clip_rate), percent(e.weight_error),
        e.output_error ? percent(*e.output_error) : "-");
  }
  return fmt::format(
      "<h2>All figures</h2>{}",
      maybe_folded(folded(d), fmt::format("The table of {} layers", d.layers.size()),
                   fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                               "aria-label=\"Figures of each layer\"><table><thead><tr>"
                               "<th>layer<th>shape<th>SQNR dB<th>cosine<th>max abs<th>clipped"
                               "<th>weight error<th>output error</tr></thead><tbody>{}</tbody>"
                               "</table></div>",
                               rows)));
}

// At most so many columns: neighbours are added up.
std::vector<double> grouped(const std::vector<std::uint64_t>& counts, std::size_t columns) {
  const std::size_t step = std::max<std::size_t>(1, counts.size() / columns);
  std::vector<double> out((counts.size() + step - 1) / step, 0.0);
  for (std::size_t i = 0; i < counts.size(); ++i) out[i / step] += static_cast<double>(counts[i]);
  return out;
}

std::string weight_histogram(const LayerPicture& l) {
  const auto ends = static_cast<int>(l.values.size() / 2);
  return histogram(
      grouped(l.values, 64), std::to_string(-ends), std::to_string(ends - 1),
      fmt::format("How often each integer from {} to {} occurs among the weights of {}", -ends,
                  ends - 1, l.error.name));
}

std::string scale_histogram(const LayerPicture& l) {
  const auto usable = [](double s) { return s > 0 && std::isfinite(s); };
  double low = 1e300, high = 0;
  for (const double s : l.scales)
    if (usable(s)) {
      low = std::min(low, s);
      high = std::max(high, s);
    }
  if (!(high > 0)) return {};
  constexpr std::size_t columns = 48;
  std::vector<double> counts(columns, 0.0);
  const double span = std::max(std::log(high / low), 1e-9);
  for (const double s : l.scales)
    if (usable(s))
      counts[std::min(columns - 1, static_cast<std::size_t>(std::log(s / low) / span * columns))] +=
          1;
  return histogram(counts, number(low), number(high),
                   fmt::format("{} scales of {}, from {} to {}", l.scales.size(), l.error.name,
                               number(low), number(high)));
}

std::string distributions(const ReportData& d) {
  const std::string all = cards(d, [&](std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end; ++i)
      out += fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>",
                         escaped_name(split_block(d.layers[i].error.name).second),
                         weight_histogram(d.layers[i]), scale_histogram(d.layers[i]));
    return out;
  });
  return fmt::format(
      "<h2>Weights and scales</h2><p>Above, how often each integer occurs among a layer's "
      "quantized "
      "weights; below, its scales on a logarithmic axis.</p>{}",
      maybe_folded(folded(d), fmt::format("All {} layers", d.layers.size()), all));
}

}  // namespace

std::string report_page(const ReportData& data) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head>"
      "<body><main>\n{}\n{}\n{}\n{}\n{}\n{}\n</main></body></html>\n",
      escaped(title(data)), report_style, summary(data), problems(data), errors(data),
      outliers(data), table(data), distributions(data));
}

}  // namespace octavo::cli
