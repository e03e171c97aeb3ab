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

// How far each layer's block is from the first, from 0 to 1: the same for all kinds.
std::vector<double> places_of(const ReportData& d) {
  std::map<std::string, std::size_t> blocks;
  std::vector<std::size_t> ranks;
  for (const LayerError& e : d.report.layers)
    ranks.push_back(blocks.emplace(split_block(e.name).first, blocks.size()).first->second);
  std::vector<double> places;
  for (const std::size_t rank : ranks)
    places.push_back((static_cast<double>(rank) + 0.5) / static_cast<double>(blocks.size()));
  return places;
}

std::string kind_figure(const ReportData& d, const Kind& kind, const Axis& axis,
                        const std::vector<double>& places) {
  const bool mixed = split_block(d.report.layers[kind.layers[0]].name).second != kind.name;
  std::vector<Dot> dots;
  std::set<double> bounds;
  for (std::size_t rank = 0; rank < kind.layers.size(); ++rank) {
    const LayerError& e = d.report.layers[kind.layers[rank]];
    const double error = comparable_error(e);
    const double place =
        mixed ? (static_cast<double>(rank) + 0.5) / static_cast<double>(kind.layers.size())
              : places[kind.layers[rank]];
    dots.push_back(
        {place, error, fmt::format("{}: {}", e.name, percent(error)), rank < kind.above});
    if (std::isfinite(d.verdict.bound(e))) bounds.insert(d.verdict.bound(e));
  }
  const LayerError& worst = d.report.layers[kind.layers[0]];
  const std::string note =
      fmt::format("{}: {}", mixed ? worst.name : block_number(split_block(worst.name).first),
                  percent(comparable_error(worst)));
  const std::string above =
      kind.above == 0 ? "" : fmt::format("{} of {} above", kind.above, kind.layers.size());
  return fmt::format(
      R"(<figure><figcaption><b>{}</b> <span class="bad">{}</span></figcaption>{}</figure>)",
      escaped_name(kind.name), above,
      dot_chart(axis, dots, {bounds.begin(), bounds.end()}, note,
                fmt::format("Errors of {} layers {}; the largest is {}, in {}{}",
                            kind.layers.size(), kind.name, percent(comparable_error(worst)),
                            worst.name, above.empty() ? "" : "; " + above + " the bound")));
}

// Each bound that there is, once, in words.
std::string bounds_of(const ReportData& d) {
  std::set<double> bounds;
  for (const LayerError& e : d.report.layers)
    if (std::isfinite(d.verdict.bound(e))) bounds.insert(d.verdict.bound(e));
  std::vector<std::string> words;
  for (const double bound : bounds) words.push_back(percent(bound));
  return fmt::format("{}", fmt::join(words, " or "));
}

std::string legend(const ReportData& d) {
  const std::string bound = bounds_of(d);
  if (bound.empty()) return {};
  return fmt::format(R"(<p class="legend">{}{}{}</p>)", legend_entry(Shape::within, "good"),
                     d.verdict.above > 0 ? legend_entry(Shape::above, "above the bound") : "",
                     legend_entry(Shape::bound, fmt::format("the bound, {}", bound)));
}

std::string by_kind(const ReportData& d) {
  std::vector<double> values;
  for (const LayerError& e : d.report.layers) {
    values.push_back(e.error());
    values.push_back(1.1 * d.verdict.bound(e));  // there is something above it
  }
  const Axis axis = axis_over(values, 3, percent);
  const std::vector<double> places = places_of(d);
  std::string out = R"(<div class="facets">)";
  for (const Kind& kind : kinds_of(d)) out += kind_figure(d, kind, axis, places);
  return out + "</div>";
}

std::string worst_by_name(const ReportData& d) {
  std::vector<Bar> bars;
  for (std::size_t rank = 0; rank < std::min<std::size_t>(10, d.verdict.order.size()); ++rank) {
    const LayerError& e = d.report.layers[d.verdict.order[rank]];
    bars.push_back({e.name, comparable_error(e), percent(comparable_error(e)), d.verdict.bound(e),
                    rank < d.verdict.above});
  }
  return fmt::format("<h3>The largest, by name</h3>{}", bar_chart(bars));
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
  return fmt::format(
      "<h2>Error of each layer</h2><p>Relative to the float layer: {}. A chart for each kind of "
      "layer, the worst kind first, all with the same logarithmic axis; from left to right its "
      "layers from the first to the last block. The worst of a kind has the number of its block "
      "beside it.</p>{}{}{}",
      measured_outputs(d)
          ? "|y - y<sub>q</sub>| / |y| of its output on sampled rows (of its weights "
            "where there are none)"
          : "|w - w<sub>q</sub>| / |w| of its weights",
      legend(d), by_kind(d), worst_by_name(d));
}

std::string table_part(const ReportData& d) {
  std::string rows;
  for (std::size_t rank = 0; rank < d.verdict.order.size(); ++rank) {
    const LayerError& e = d.report.layers[d.verdict.order[rank]];
    const bool above = rank < d.verdict.above, output = e.output_error.has_value();
    rows +=
        fmt::format("<tr><th scope=\"row\">{}{}{}<td>{:.1f}<td>{:.6f}<td>{}<td>{}<td>{} x {}</tr>",
                    escaped_name(e.name), cell(e.output_error, above && output),
                    cell(e.weight_error, above && !output), e.sqnr_db, e.cosine, number(e.max_abs),
                    percent(e.clip_rate), e.n, e.k);
  }
  return fmt::format(
      "<h2>All figures</h2><p>The worst layer first.</p>{}",
      maybe_folded(folded(d), fmt::format("The table of {} layers", d.report.layers.size()),
                   fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                               "aria-label=\"Figures of each layer\"><table><thead><tr>"
                               "<th>layer<th>output error<th>weight error<th>SQNR dB<th>cosine"
                               "<th>max abs<th>clipped<th>shape</tr></thead><tbody>{}</tbody>"
                               "</table></div>",
                               rows)));
}

}  // namespace octavo::cli
