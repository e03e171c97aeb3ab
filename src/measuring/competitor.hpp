// What is timed.
#pragma once

#include <functional>
#include <limits>
#include <string>

namespace octavo::measuring {

enum class Kind {
  ours,     // what the case is about; the first
  limit,    // the same loads and stores without arithmetic
  peer,     // another library
  variant,  // ours in another way, for comparison
};

// One of those that take turns.
struct Competitor {
  std::string name;
  Kind kind = Kind::peer;
  std::function<void()> run = nullptr;
  double seconds = std::numeric_limits<double>::infinity();  // the fastest call
  int warm_up = 0;  // calls before each timing, if more than usual are needed
};

}  // namespace octavo::measuring
