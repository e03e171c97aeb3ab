#include "cli/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/names.hpp"
#include "offline/words.hpp"

namespace octavo::cli {
namespace {

// Characters, not bytes, of UTF-8.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> heads, std::vector<bool> right) : right_(std::move(right)) {
  right_.resize(heads.size(), false);
  rows_.push_back(std::move(heads));
}

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::sort() {
  std::stable_sort(rows_.begin() + 1, rows_.end(),
                   [](const auto& a, const auto& b) { return natural_less(a.front(), b.front()); });
}

void Table::print() const {
  std::vector<std::size_t> widths(right_.size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      line += right_[i] ? space : row[i];
      line += right_[i] ? row[i] : space;
      if (i + 1 < row.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // (Of three digits: 999.6 kB would be shown as 1e+03 kB.)
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, units[unit]);
}

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.3g}", value);
}

std::string percent(double share) { return share == 0 ? "0" : offline::percent(share); }

int fail(const Error& error) {
  complain("{}", error.message());
  return exit_error;
}

}  // namespace octavo::cli
