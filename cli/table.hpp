// Text for people: tables, sizes, errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/print.hpp"
#include "octavo/result.hpp"

namespace octavo::cli {

/// Columns as wide as they need to be; those marked are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads, std::vector<bool> right = {});
  void add(std::vector<std::string> cells);
  /// Rows in the natural order of their first cells: layers.2 before layers.10.
  void sort();
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

/// 1.5 GB.
std::string human_bytes(std::uint64_t bytes);
/// Three significant digits, or a dash for what is not known.
std::string number(double value);
std::string percent(double share);

/// Says what went wrong, and returns the exit code for it.
int fail(const Error& error);

}  // namespace octavo::cli
