#include "cli/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/chart.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

constexpr const char* style = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5a6470;--line:#d7dce1;--bar:#a9c7ee;--a:#c0392b;--b:#1f6fb2;--back:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--line:#39414a;--bar:#33557f;--a:#ff8a7a;--b:#7db8f0;--back:#14181c}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:56rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;line-height:1.2}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{color:var(--soft);margin:.25rem 0 .75rem}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
.bar{fill:var(--bar)}polyline{fill:none;stroke-width:1.5}.line0{stroke:var(--a)}.line1{stroke:var(--b)}
.name0{fill:var(--a)}.name1{fill:var(--b)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:1rem}
figure{margin:0;break-inside:avoid}figcaption{font-size:.8rem;color:var(--soft);overflow-wrap:anywhere}
.bad{color:var(--a)}dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem 1rem;margin:0}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
@media print{body{max-width:none;padding:0;font-size:11pt}.scroll{overflow:visible}table{font-size:8pt}}
)";

std::string summary(const ReportData& d) {
  double worst = 0;
  for (const LayerPicture& l : d.layers) worst = std::max(worst, l.error.error());
  return fmt::format(
      "<h1>{}</h1><dl><dt>float</dt><dd>{}, {}</dd><dt>quantized</dt><dd>{}, {} ({:.0f} % of "
      "it)</dd><dt>scheme</dt><dd>{}</dd><dt>layers</dt><dd>{}</dd><dt>largest "
      "error</dt><dd>{}</dd>"
      "</dl>",
      escaped(d.quantized), escaped(d.original), human_bytes(d.original_bytes),
      escaped(d.quantized), human_bytes(d.quantized_bytes),
      100.0 * static_cast<double>(d.quantized_bytes) /
          static_cast<double>(std::max<std::uint64_t>(1, d.original_bytes)),
      name(d.scheme), d.layers.size(), percent(worst));
}

std::string error_chart(const ReportData& d) {
  std::vector<Bar> bars;
  bool outputs = false;
  for (const LayerPicture& l : d.layers) {
    bars.push_back({l.error.name, l.error.error(), percent(l.error.error())});
    outputs = outputs || l.error.output_error.has_value();
  }
  return fmt::format(
      "<h2>Error of each layer</h2><p>Relative to the float layer: |y - y<sub>q</sub>| / |y| of "
      "its "
      "{}.</p>{}",
      outputs ? "output on sampled rows (of its weights where there are none)" : "weights",
      bar_chart(bars));
}

std::string table(const ReportData& d) {
  std::string out =
      "<h2>Layers</h2><div class=\"scroll\"><table><thead><tr><th>layer<th>shape<th>SQNR "
      "dB<th>cosine<th>max abs<th>clipped<th>weight error<th>output error</tr></thead><tbody>";
  for (const LayerPicture& l : d.layers) {
    const LayerError& e = l.error;
    out += fmt::format("<tr><td>{}<td>{} x {}<td>{:.1f}<td>{:.6f}<td>{}<td>{}<td>{}<td>{}</tr>",
                       escaped(e.name), e.n, e.k, e.sqnr_db, e.cosine, number(e.max_abs),
                       percent(e.clip_rate), percent(e.weight_error),
                       e.output_error ? percent(*e.output_error) : "-");
  }
  return out + "</tbody></table></div>";
}

double ratio_to_median(std::vector<float> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const float median = values[values.size() / 2];
  return median > 0 ? static_cast<double>(values.back() / median) : 0;
}

std::string outliers(const ReportData& d) {
  if (d.outliers.empty()) return {};
  std::string out =
      "<h2>Outlier channels</h2><p>The largest activation of each input channel, in order of size, "
      "on a logarithmic axis. A flat line quantizes well.</p><div class=\"grid\">";
  const auto sorted = [](const std::vector<float>& v) {
    std::vector<double> w(v.begin(), v.end());
    std::sort(w.begin(), w.end(), std::greater<>());
    return w;
  };
  for (const OutlierPicture& o : d.outliers) {
    std::vector<Line> lines{{"before", sorted(o.before)}};
    std::string caption = fmt::format("largest to median: {}", number(ratio_to_median(o.before)));
    if (!o.after.empty()) {
      lines.push_back({"after smoothing", sorted(o.after)});
      caption += fmt::format(" before, {} after", number(ratio_to_median(o.after)));
    }
    out += fmt::format("<figure>{}<figcaption>{}<br>{}</figcaption></figure>", line_chart(lines),
                       escaped(o.norm), caption);
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

std::string scale_histogram(const std::vector<double>& scales) {
  double low = 1e300, high = 0;
  for (const double s : scales)
    if (s > 0 && std::isfinite(s)) {
      low = std::min(low, s);
      high = std::max(high, s);
    }
  if (!(high > 0)) return {};
  constexpr std::size_t columns = 48;
  std::vector<double> counts(columns, 0.0);
  const double span = std::max(std::log(high / low), 1e-9);
  for (const double s : scales)
    if (s > 0 && std::isfinite(s))
      counts[std::min(columns - 1, static_cast<std::size_t>(std::log(s / low) / span * columns))] +=
          1;
  return histogram(counts, number(low), number(high));
}

std::string distributions(const ReportData& d) {
  std::string out =
      "<h2>Weights and scales</h2><p>Above, how often each integer occurs among a layer's "
      "quantized "
      "weights; below, its scales on a logarithmic axis.</p><div class=\"grid\">";
  for (const LayerPicture& l : d.layers) {
    const auto ends = static_cast<int>(l.values.size() / 2);
    out += fmt::format(
        "<figure>{}{}<figcaption>{}</figcaption></figure>",
        histogram(grouped(l.values, 64), std::to_string(-ends), std::to_string(ends - 1)),
        scale_histogram(l.scales), escaped(l.error.name));
  }
  return out + "</div>";
}

}  // namespace

std::string report_page(const ReportData& data) {
  std::string problems;
  for (const std::string& name : data.unexpected)
    problems +=
        fmt::format("<p class=\"bad\">{} should not have changed, but did.</p>", escaped(name));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head>"
      "<body>\n{}\n{}\n{}\n{}\n{}\n{}\n</body></html>\n",
      escaped(data.quantized), style, summary(data), problems, error_chart(data), outliers(data),
      table(data), distributions(data));
}

}  // namespace octavo::cli
