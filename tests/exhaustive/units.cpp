#include "units.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

namespace octavo::exhaustive {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Changes whenever the program is built anew: what another build has shown does not count.
std::string build_mark() {
  struct stat info = {};
  if (stat("/proc/self/exe", &info) != 0) return "unknown";
  std::ostringstream text;
  text << info.st_size << '.' << info.st_mtim.tv_sec << '.' << info.st_mtim.tv_nsec;
  return text.str();
}

/// The names of finished units, in a file with the build's mark in front.
class State {
 public:
  explicit State(std::string path) : path_(std::move(path)), mark_(build_mark()) {
    std::ifstream file(path_);
    std::string word;
    if (!(file >> word)) return;
    if (word != mark_) {
      std::printf("%s is of another build: starting over\n", path_.c_str());
      return;
    }
    while (file >> word) done_.insert(word);
  }
  [[nodiscard]] bool done(const std::string& name) const { return done_.contains(name); }
  void finish(const std::string& name) {
    done_.insert(name);
    if (path_.empty()) return;
    const std::string fresh = path_ + ".new";
    {
      std::ofstream file(fresh);
      file << mark_ << '\n';
      for (const std::string& unit : done_) file << unit << '\n';
    }
    if (std::rename(fresh.c_str(), path_.c_str()) != 0) std::perror(path_.c_str());
  }

 private:
  std::string path_;
  std::string mark_;
  std::set<std::string> done_;
};

class Progress {
 public:
  Progress(std::size_t units, double weight) : units_(units), weight_(weight) {}

  void finish(const Unit& unit, const Outcome& outcome) {
    ++finished_;
    done_ += unit.weight;
    mismatches_ += outcome.mismatches;
    for (const std::string& message : outcome.messages)
      if (printed_++ < max_messages) std::printf("%sMISMATCH %s\n", clear(), message.c_str());
    const double elapsed = seconds_since(start_);
    if (!terminal_ && finished_ != units_ && elapsed - last_ < seconds_between_lines) return;
    last_ = elapsed;
    const double left = elapsed * (weight_ - done_) / done_;
    std::printf("%s[%3zu/%zu] %5.1f %%  %s gone, %s left, %llu mismatches  (%s)%s", clear(),
                finished_, units_, 100 * done_ / weight_, clock(elapsed).c_str(),
                clock(left).c_str(), static_cast<unsigned long long>(mismatches_),
                unit.name.c_str(), terminal_ && finished_ != units_ ? "" : "\n");
    std::fflush(stdout);
  }
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  static constexpr std::size_t max_messages = 40;
  static constexpr double seconds_between_lines = 15;
  [[nodiscard]] const char* clear() const { return terminal_ ? "\r\033[K" : ""; }
  static std::string clock(double seconds) {
    const long whole = std::lround(seconds);
    std::ostringstream text;
    text << whole / 60 << (whole % 60 < 10 ? ":0" : ":") << whole % 60;
    return text.str();
  }

  std::size_t units_;
  double weight_;
  bool terminal_ = isatty(STDOUT_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
  double last_ = 0;
  std::size_t finished_ = 0;
  double done_ = 0;
  std::uint64_t mismatches_ = 0;
  std::size_t printed_ = 0;
};

}  // namespace

std::uint64_t run_units(const std::vector<Unit>& units, const RunOptions& options) {
  State state(options.state);
  std::vector<const Unit*> open;
  double weight = 0;
  for (const Unit& unit : units) {
    if (state.done(unit.name)) continue;
    open.push_back(&unit);
    weight += unit.weight;
  }
  if (open.size() < units.size())
    std::printf("%zu of %zu units were done before\n", units.size() - open.size(), units.size());

  Progress progress(open.size(), weight);
  std::mutex mutex;  // of state and progress
  std::atomic<std::size_t> next{0};
  const auto worker = [&] {
    for (std::size_t i = next++; i < open.size(); i = next++) {
      const Outcome outcome = open[i]->work();
      const std::scoped_lock lock(mutex);
      if (outcome.mismatches == 0) state.finish(open[i]->name);
      progress.finish(*open[i], outcome);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
  return progress.mismatches();
}

}  // namespace octavo::exhaustive
