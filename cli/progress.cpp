#include "cli/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include "cli/table.hpp"

namespace octavo::cli {

ProgressLine::ProgressLine()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(start_) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && drawn_) to_stderr("\r\x1b[K");
}

std::string progress_text(const Progress& progress, double seconds, bool terminal) {
  const double share = progress.total == 0 ? 1.0
                                           : static_cast<double>(progress.done) /
                                                 static_cast<double>(progress.total);
  // Bytes have a rate; steps, which are few, do not.
  std::string rate;
  if (progress.total > 1'000'000 && seconds > 0.2) {
    const double per_second = static_cast<double>(progress.done) / seconds;
    rate = fmt::format("  {}/s", human_bytes(static_cast<std::uint64_t>(per_second)));
  }
  std::string remaining;
  if (share > 0.01 && share < 1 && seconds > 0.5) {
    const auto left = std::llround(seconds * (1 - share) / share);
    remaining = fmt::format("  {}:{:02} left", left / 60, left % 60);
  }
  constexpr int width = 24;
  const int filled = static_cast<int>(share * width);
  const std::string bar = terminal ? fmt::format("[{:<{}}] ", std::string(filled, '#'), width) : "";
  return fmt::format("{}{:3.0f} %{}{}  {}", bar, 100 * share, rate, remaining,
                     printable(progress.what));
}

void ProgressLine::operator()(const Progress& progress) {
  const Clock::time_point now = Clock::now();
  if (progress.total != total_) {  // a new stage
    total_ = progress.total;
    start_ = now;
  }
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
  if (now - shown_ < pause) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  to_stderr(fmt::format("{}{}{}", terminal_ ? "\r\x1b[K" : "",
                        progress_text(progress, seconds, terminal_), terminal_ ? "" : "\n"));
  drawn_ = true;
}

}  // namespace octavo::cli
