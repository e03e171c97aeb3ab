// How far a long job is: a line that is drawn anew on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/checkpoint.hpp"

namespace octavo::cli {

/// How far it is after so many seconds; on a terminal with a bar.
[[nodiscard]] std::string progress_text(const Progress& progress, double seconds, bool terminal);

class ProgressLine {
 public:
  ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Ends the line.
  ~ProgressLine();
  void operator()(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  std::uint64_t total_ = 0;
  bool drawn_ = false;
};

}  // namespace octavo::cli
