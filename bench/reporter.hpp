// Prints one line per case: time, rate, and the ratios.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

namespace octavo::bench {

class Reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
};

// The name of a case without what the runner appends to it.
std::string case_name(const benchmark::BenchmarkReporter::Run& run);

}  // namespace octavo::bench
