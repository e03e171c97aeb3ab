#include "reporter.hpp"

#include <cstdio>
#include <string>

namespace octavo::bench {
namespace {

// A counter as a column of the table; empty where the case has none.
struct Column {
  const char* counter;
  const char* title;
  const char* format;
};
constexpr Column columns[] = {
    {"GB/s", "GB/s", "%.1f"},       {"Gelem/s", "G/s", "%.2f"},   {"limit", "limit", "%.2f"},
    {"torch", "torch", "%.1fx"},    {"dnnl", "dnnl", "%.2fx"},    {"xnnpack", "xnnpack", "%.2fx"},
    {"onnx_cost", "onnx", "%.2fx"}, {"run_ns", "run", "%.0f ns"},
};
constexpr int name_width = 62, time_width = 11, column_width = 9;

}  // namespace

std::string case_name(const benchmark::BenchmarkReporter::Run& run) {
  return run.run_name.function_name;
}

bool Reporter::ReportContext(const Context&) {
  std::printf("%-*s %*s", name_width, "case", time_width, "us");
  for (const auto& c : columns) std::printf(" %*s", column_width, c.title);
  std::printf("  limit by\n");
  return true;
}

void Reporter::ReportRuns(const std::vector<Run>& runs) {
  for (const auto& run : runs) {
    std::printf("%-*s ", name_width, case_name(run).c_str());
    if (run.error_occurred) {
      std::printf("refused: %s\n", run.error_message.c_str());
      continue;
    }
    std::printf("%*.3f", time_width, run.GetAdjustedRealTime());
    for (const auto& c : columns) {
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
