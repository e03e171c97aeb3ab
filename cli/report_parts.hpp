// Parts of the page of `octavo report`.
#pragma once

#include <string_view>

#include "cli/report_page.hpp"

namespace octavo::cli {

/// With many layers the page shows the worst, and what there is of each is folded.
[[nodiscard]] inline bool folded(const ReportData& d) { return d.report.layers.size() > 60; }
/// Something long: as it is, or behind a line that opens it.
std::string maybe_folded(bool fold, std::string_view title, const std::string& body);

/// What is not a number cannot be worse, and can be compared as an infinite one.
[[nodiscard]] double comparable_error(const LayerError& layer);
/// Whether errors are of outputs, at least of some layers.
[[nodiscard]] bool measured_outputs(const ReportData& d);

/// Errors by kind of layer, and the largest by name.
std::string errors_part(const ReportData& d);
/// All figures.
std::string table_part(const ReportData& d);
/// Channels of each norm, before and after smoothing.
std::string outliers_part(const ReportData& d);
/// How far the largest channel stands out. 0 if there is nothing to compare it with.
[[nodiscard]] double ratio_to_median(const std::vector<float>& values);
/// Histograms of integers and scales.
std::string weights_part(const ReportData& d);

}  // namespace octavo::cli
