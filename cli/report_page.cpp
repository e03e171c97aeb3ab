#include "cli/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "cli/chart.hpp"
#include "cli/report_parts.hpp"
#include "cli/report_style.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

double median_error(const ReportData& d) {
  std::vector<double> errors;
  for (const LayerError& e : d.report.layers) errors.push_back(comparable_error(e));
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

// A shape in place of a sign that some fonts lack, or show in colours of their own.
constexpr const char* tick_icon = R"(<path d="M3 13l6 6L21 5"/>)";
constexpr const char* cross_icon = R"(<path d="M5 5l14 14M19 5L5 19"/>)";

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

// As text of the page, in which a number and its % stay on one line.
std::string unbroken(const std::string& text) {
  std::string page = escaped(text);
  for (std::size_t at = 0; (at = page.find(" %", at)) != std::string::npos;)
    page.replace(at, 1, "&nbsp;");
  return page;
}

// "sentence: --options", with options that are selected by one click.
std::string advice_item(const std::string& advice) {
  const std::size_t options = advice.find(": --");
  if (options == std::string::npos) return fmt::format("<li>{}</li>", escaped(capitalized(advice)));
  return fmt::format("<li>{}: <code>{}</code></li>",
                     escaped(capitalized(advice.substr(0, options))),
                     escaped(advice.substr(options + 2)));
}

std::string verdict(const ReportData& d) {
  const Verdict& v = d.verdict;
  std::string items;
  for (const std::string& advice : v.advice) items += advice_item(advice);
  std::string changed;
  if (d.report.unexpected.size() > 1) {
    for (const std::string& name : d.report.unexpected)
      changed += fmt::format("<li>{}</li>", escaped_name(name));
    changed = maybe_folded(true, "All tensors that should not have changed",
                           fmt::format("<ul>{}</ul>", changed));
  }
  // Without a bound there is neither.
  const bool judged = !v.max_error || std::isfinite(*v.max_error) || v.failed;
  const std::string icon =
      fmt::format(R"(<svg viewBox="0 0 24 24" role="img" aria-label="{}">{}</svg>)",
                  v.failed ? "Not good" : "Good", v.failed ? cross_icon : tick_icon);
  return fmt::format(R"(<section class="verdict {}"><h2>{}{}</h2><p>{}.</p>{}{}</section>)",
                     v.failed ? "failed" : (judged ? "good" : "open"), judged ? icon : "",
                     unbroken(capitalized(v.headline)),
                     unbroken(v.above > 0 ? "The worst: " + v.details : capitalized(v.details)),
                     items.empty() ? "" : fmt::format("<ul>{}</ul>", items), changed);
}

std::string tile(std::string_view name, std::string_view value, std::string_view note,
                 bool bad = false) {
  return fmt::format("<div><dt>{}</dt><dd{}>{}<small>{}</small></dd></div>", escaped(name),
                     bad ? " class=\"bad\"" : "", escaped(value), escaped_name(note));
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

// "w4a16-group", or "12 w4a16-group, 2 w8a16".
std::string schemes_of(const ReportData& d) {
  std::map<std::string_view, std::size_t> counts;
  for (const LayerError& e : d.report.layers) ++counts[name(e.scheme)];
  std::string out;
  for (const auto& [scheme, count] : counts)
    out += fmt::format("{}{}{}", out.empty() ? "" : ", ",
                       counts.size() > 1 ? fmt::format("{} ", count) : "", scheme);
  return out;
}

std::string summary(const ReportData& d) {
  const LayerError& worst = d.report.layers[d.verdict.order.front()];
  const double most = comparable_error(worst);
  const double share = static_cast<double>(d.quantized_bytes) /
                       static_cast<double>(std::max<std::uint64_t>(1, d.original_bytes));
  const std::string what = measured_outputs(d) ? "output" : "weights";
  const double bits = d.report.bits_per_weight();
  const auto smoothed = std::count_if(d.report.layers.begin(), d.report.layers.end(),
                                      [](const LayerError& e) { return e.smoothed; });
  return "<dl class=\"tiles\">" +
         tile("size", fmt::format("{:.0f} %", 100 * share),
              fmt::format("{} of {}", human_bytes(d.quantized_bytes),
                          human_bytes(d.original_bytes))) +
         tile("layers", std::to_string(d.report.layers.size()),
              fmt::format("{}{}", schemes_of(d),
                          smoothed > 0 ? fmt::format(", {} of them smoothed", smoothed) : "")) +
         (bits > 0 ? tile("bits per weight", fmt::format("{:.3g}", bits),
                          "of the quantized layers, with their scales")
                   : "") +
         tile(fmt::format("median {} error", what), percent(median_error(d)), "of a layer") +
         tile(fmt::format("largest {} error", what), percent(most), worst.name,
              d.verdict.above > 0) +
         outlier_tile(d) + "</dl>";
}

}  // namespace

std::string maybe_folded(bool fold, std::string_view title, const std::string& body) {
  if (!fold) return body;
  return fmt::format("<details><summary>{}</summary>{}</details>", escaped(title), body);
}

std::string report_page(const ReportData& data) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head>"
      "<body>{}<main>\n<h1>{}</h1><p>{}, measured against "
      "{}</p>\n{}\n{}\n{}\n{}\n{}\n{}\n</main></body></html>\n",
      escaped(title(data)), report_style, chart_symbols(), escaped_name(title(data)),
      escaped_name(data.quantized), escaped_name(data.original), verdict(data), summary(data),
      errors_part(data), outliers_part(data), table_part(data), weights_part(data));
}

}  // namespace octavo::cli
