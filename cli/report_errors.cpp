// The errors of all layers in a report: against their bound, by kind, the worst first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "cli/chart.hpp"
#include "cli/names.hpp"
#include "cli/report_parts.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

// Layers that are alike, of different blocks.
struct Kind {
  std::string name;
  std::vector<std::size_t> layers;  // the worst first
  std::size_t above = 0;
};

// The worst kind first. Those with one layer are put together, so that there are not as many
// charts as layers.
std::vector<Kind> kinds_of(const ReportData& d) {
  const auto& layers = d.report.layers;
  std::map<std::string, std::size_t> counts;
  for (const LayerError& e : layers) ++counts[split_block(e.name).second];
  const auto single = [&](const auto& count) { return count.second == 1; };
  const auto alone = std::count_if(counts.begin(), counts.end(), single);
  const std::string rest =
      static_cast<std::size_t>(alone) == layers.size() ? "all layers" : "other layers";
  std::vector<Kind> kinds;
  for (std::size_t rank = 0; rank < layers.size(); ++rank) {
    const std::size_t i = d.verdict.order[rank];
    std::string name = split_block(layers[i].name).second;
    if (alone > 1 && counts[name] == 1) name = rest;
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](auto& k) { return k.name == name; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{name, {}, 0});
    kind->layers.push_back(i);
    if (rank < d.verdict.above) ++kind->above;
  }
  return kinds;
}

// The blocks in order, and which of them each layer is in: the same for all kinds.
struct Blocks {
  std::vector<std::string> names;
  std::vector<std::size_t> of;
};
Blocks blocks_of(const ReportData& d) {
  Blocks blocks;
  std::map<std::string, std::size_t> known;
  for (const LayerError& e : d.report.layers) {
    const std::string block = split_block(e.name).first;
    const auto [at, added] = known.emplace(block, known.size());
    if (added) blocks.names.push_back(block);
    blocks.of.push_back(at->second);
  }
  return blocks;
}

double middle(std::size_t i, std::size_t n) {
  return (static_cast<double>(i) + 0.5) / static_cast<double>(n);
}

std::string kind_figure(const ReportData& d, const Kind& kind, const Axis& axis,
                        const Blocks& blocks) {
  const LayerError& worst = d.report.layers[kind.layers[0]];
  const bool mixed = split_block(worst.name).second != kind.name;
  const std::string most = percent(comparable_error(worst));
  const std::string above =
      kind.above == 0 ? "" : fmt::format("{} of {} above", kind.above, kind.layers.size());
  DotChart chart;
  chart.note =
      fmt::format("{}: {}", mixed ? worst.name : block_number(split_block(worst.name).first), most);
  if (!mixed && blocks.names.size() > 1) {
    chart.left = "block " + block_number(blocks.names.front());
    chart.right = block_number(blocks.names.back());
  }
  chart.description =
      fmt::format("Errors of {} layers {}; the largest is {}, in {}{}", kind.layers.size(),
                  kind.name, most, worst.name, above.empty() ? "" : "; " + above + " the bound");
  std::set<double> bounds;
  for (std::size_t rank = 0; rank < kind.layers.size(); ++rank) {
    const std::size_t i = kind.layers[rank];
    const LayerError& e = d.report.layers[i];
    const double error = comparable_error(e);
    chart.dots.push_back(
        {mixed ? middle(rank, kind.layers.size()) : middle(blocks.of[i], blocks.names.size()),
         error, fmt::format("{}: {}", e.name, percent(error)), rank < kind.above});
    if (std::isfinite(d.verdict.bound(e))) bounds.insert(d.verdict.bound(e));
  }
  chart.bounds.assign(bounds.begin(), bounds.end());
  return fmt::format(
      R"(<figure><figcaption><b>{}</b> <span class="bad">{}</span></figcaption>{}</figure>)",
      escaped_name(kind.name), above, dot_chart(axis, chart));
}

// Each bound that there is, once, in words.
std::vector<std::string> bounds_of(const ReportData& d) {
  std::set<double> bounds;
  for (const LayerError& e : d.report.layers)
    if (std::isfinite(d.verdict.bound(e))) bounds.insert(d.verdict.bound(e));
  std::vector<std::string> words;
  words.reserve(bounds.size());
  for (const double bound : bounds) words.push_back(percent(bound));
  return words;
}

std::string legend(const ReportData& d) {
  const std::vector<std::string> bounds = bounds_of(d);
  if (bounds.empty()) return {};
  return fmt::format(
      R"(<p class="legend">{}{}{}</p>)", legend_entry(Shape::within, "within the bound"),
      d.verdict.above > 0 ? legend_entry(Shape::above, "above the bound") : "",
      legend_entry(Shape::bound, fmt::format("the bound, {}", fmt::join(bounds, " or "))));
}

std::string by_kind(const ReportData& d) {
  std::vector<double> values;
  for (const LayerError& e : d.report.layers) {
    values.push_back(e.error());
    values.push_back(1.1 * d.verdict.bound(e));  // there is something above it
  }
  const Axis axis = axis_over(values, 3, percent);
  const Blocks blocks = blocks_of(d);
  std::string figures, longest;
  for (const Kind& kind : kinds_of(d)) figures += kind_figure(d, kind, axis, blocks);
  for (const std::string& bound : bounds_of(d))
    if (bound.size() > longest.size()) longest = bound;
  return facets(axis, figures, longest);
}

std::string worst_by_name(const ReportData& d) {
  std::vector<Bar> bars;
  for (std::size_t rank = 0; rank < std::min<std::size_t>(10, d.verdict.order.size()); ++rank) {
    const LayerError& e = d.report.layers[d.verdict.order[rank]];
    bars.push_back({e.name, comparable_error(e), percent(comparable_error(e)), d.verdict.bound(e),
                    rank < d.verdict.above});
  }
  return fmt::format("<h3>The largest, by name</h3>{}", bar_chart(bars, percent));
}

// The error that counts, marked if it is above the bound.
std::string cell(const std::optional<double>& error, bool marked) {
  const std::string shown = error ? percent(*error) : "-";
  return marked ? fmt::format("<td class=\"bad\">\u25b2 {}", shown) : "<td>" + shown;
}

}  // namespace

double comparable_error(const LayerError& layer) {
  const double e = layer.error();
  return std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
}

bool measured_outputs(const ReportData& d) {
  return std::any_of(d.report.layers.begin(), d.report.layers.end(),
                     [](const LayerError& e) { return e.output_error.has_value(); });
}

std::string errors_part(const ReportData& d) {
  const auto& layers = d.report.layers;
  const bool outputs = std::all_of(layers.begin(), layers.end(),
                                   [](const LayerError& e) { return e.output_error.has_value(); });
  constexpr const char* output = "|y - y<sub>q</sub>| / |y| of its output on sampled rows";
  constexpr const char* weight = "|w - w<sub>q</sub>| / |w| of its weights";
  return fmt::format(
      "<h2>Error of each layer</h2><p>Relative to the float layer: {}{}{}. A chart for each kind, "
      "the worst kind first, with its layers from the first block to the last; the worst of them "
      "has the number of its block beside it. The axis is logarithmic, and the same for all.</p>"
      "{}{}{}",
      measured_outputs(d) ? output : weight,
      measured_outputs(d) && !outputs ? ", or without any " : "",
      measured_outputs(d) && !outputs ? weight : "", legend(d), by_kind(d), worst_by_name(d));
}

std::string table_part(const ReportData& d) {
  std::string rows;
  for (std::size_t rank = 0; rank < d.verdict.order.size(); ++rank) {
    const LayerError& e = d.report.layers[d.verdict.order[rank]];
    const bool above = rank < d.verdict.above, output = e.output_error.has_value();
    rows += fmt::format(
        "<tr><th scope=\"row\">{}{}{}<td>{:.1f}<td>{:.6f}<td>{}<td>{}<td>{} x {}<td>{}"
        "<td>{:.3g}</tr>",
        escaped_name(e.name), cell(e.output_error, above && output),
        cell(e.weight_error, above && !output), e.sqnr_db, e.cosine, number(e.max_abs),
        percent(e.clip_rate), e.n, e.k, escaped(to_string(e.form())), e.bits);
  }
  return fmt::format(
      "<h2>All figures</h2><p>The worst layer first.</p>{}",
      maybe_folded(
          folded(d), fmt::format("The table of {} layers", d.report.layers.size()),
          fmt::format(
              "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
              "aria-label=\"Figures of each layer\"><table><thead><tr>"
              "<th>layer<th>output error<th>weight error<th>SQNR dB<th>cosine"
              "<th>max abs<th>clipped<th>shape<th>scheme<th>bits</tr></thead><tbody>{}</tbody>"
              "</table></div>",
              rows)));
}

}  // namespace octavo::cli
