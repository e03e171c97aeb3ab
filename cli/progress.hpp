// How far a long job is: a line that is drawn anew on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/checkpoint.hpp"

namespace octavo::cli {

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
  [[nodiscard]] std::string text(const Progress& progress, double seconds) const;

  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  std::uint64_t total_ = 0;
  bool drawn_ = false;
};

}  // namespace octavo::cli
