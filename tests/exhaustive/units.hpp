// Work that is cut into units, shared by threads, reported on and resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace octavo::exhaustive {

/// What went wrong in a unit: how often, and the first few cases.
struct Outcome {
  std::uint64_t mismatches = 0;
  std::vector<std::string> messages;
  static constexpr std::size_t enough = 10;

  void add(std::uint64_t count, const std::function<std::string()>& message) {
    mismatches += count;
    if (count > 0 && messages.size() < enough) messages.push_back(message());
  }
};

struct Unit {
  std::string name;  // unique, one word: what the state file remembers
  double weight;     // about how many seconds it takes
  std::function<Outcome()> work;
};

struct RunOptions {
  int threads = 1;
  std::string state;  // a file; empty: none
};

/// Runs every unit that the state file does not call done, with progress on stdout; returns the
/// number of mismatches. Units with mismatches are not remembered as done.
std::uint64_t run_units(const std::vector<Unit>& units, const RunOptions& options);

}  // namespace octavo::exhaustive
