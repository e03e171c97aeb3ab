// Prints one line per case: time, rate, and the ratios. A header stands wherever they change.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

namespace octavo::bench {

class Reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  const void* columns_ = nullptr;  // of the last header
};

// The name of a case without what the runner appends to it.
std::string case_name(const benchmark::BenchmarkReporter::Run& run);

}  // namespace octavo::bench
