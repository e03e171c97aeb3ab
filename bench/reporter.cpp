#include "reporter.hpp"

#include <cstdio>
#include <span>
#include <string>

namespace octavo::bench {
namespace {

// A counter as a column of the table; empty where the case has none.
struct Column {
  const char* counter;
  const char* title;
  const char* format;
};
constexpr Column elementwise[] = {
    {"GB/s", "GB/s", "%.1f"},       {"Gelem/s", "G/s", "%.2f"},   {"limit", "limit", "%.2f"},
    {"torch", "torch", "%.1fx"},    {"dnnl", "dnnl", "%.2fx"},    {"xnnpack", "xnnpack", "%.2fx"},
    {"onnx_cost", "onnx", "%.2fx"}, {"run_ns", "run", "%.0f ns"},
};
constexpr Column linear[] = {
    {"GB/s", "GB/s", "%.1f"},           {"TOPS", "TOPS", "%.3f"},
    {"peak", "peak", "%.2f"},           {"stream", "stream", "%.2f"},
    {"torch", "torch", "%.2fx"},        {"dnnl", "dnnl", "%.2fx"},
    {"onnxruntime", "onnxrt", "%.2fx"}, {"f32", "f32", "%.2fx"},
    {"packed", "packed", "%.2fx"},      {"one_thread", "one thread", "%.2fx"},
};
constexpr Column groups[] = {
    {"GB/s", "GB/s", "%.1f"},
    {"TOPS", "TOPS", "%.3f"},
    {"peak", "peak", "%.2f"},
    {"stream", "stream", "%.2f"},
    {"torch", "torch", "%.2fx"},
    {"dnnl", "dnnl", "%.2fx"},
    {"onnxruntime", "onnxrt", "%.2fx"},
    {"int8", "int8", "%.2fx"},
    {"w4a8", "w4a8", "%.2fx"},
    {"f32", "f32", "%.2fx"},
    {"rows", "rows", "%.2fx"},
    {"f64", "f64", "%.2fx"},
    {"one_thread", "one thread", "%.2fx"},
    {"run_ns", "run", "%.0f ns"},
};
constexpr int name_width = 62, time_width = 11, column_width = 9;

// The columns of a case, and what its label says.
struct Table {
  std::span<const Column> columns;
  const char* label;
};

Table table_of(const std::string& name) {
  for (const char* part : {"linear/groups/", "linear/floats/", "linear/float_peak/"})
    if (name.starts_with(part)) return {groups, "kernel"};
  if (name.starts_with("linear/")) return {linear, "kernel"};
  return {elementwise, "limit by"};
}

void print_header(const Table& table) {
  std::printf("%-*s %*s", name_width, "case", time_width, "us");
  for (const auto& c : table.columns) std::printf(" %*s", column_width, c.title);
  std::printf("  %s\n", table.label);
}

}  // namespace

std::string case_name(const benchmark::BenchmarkReporter::Run& run) {
  return run.run_name.function_name;
}

bool Reporter::ReportContext(const Context&) { return true; }

void Reporter::ReportRuns(const std::vector<Run>& runs) {
  for (const auto& run : runs) {
    const Table table = table_of(case_name(run));
    if (columns_ != table.columns.data()) print_header(table);
    columns_ = table.columns.data();
    std::printf("%-*s ", name_width, case_name(run).c_str());
    if (run.error_occurred) {
      std::printf("refused: %s\n", run.error_message.c_str());
      continue;
    }
    std::printf("%*.3f", time_width, run.GetAdjustedRealTime());
    for (const auto& c : table.columns) {
      char text[32] = "";
      if (const auto found = run.counters.find(c.counter); found != run.counters.end())
        std::snprintf(text, sizeof text, c.format, found->second.value);
      std::printf(" %*s", column_width, text);
    }
    std::printf("  %s\n", run.report_label.c_str());
  }
  std::fflush(stdout);
}

}  // namespace octavo::bench
