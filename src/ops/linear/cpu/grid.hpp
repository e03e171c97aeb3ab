// How threads share the work of a linear layer: rectangles of rows by panels, one each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace octavo::detail {

struct Grid {
  std::int64_t rows = 1;
  std::int64_t panels = 1;
};

/// The grid whose largest rectangle takes the least time; rows go `together` at a time, and are
/// counted so. Reading a panel's weights costs as much
/// as multiplying so many rows by it, packing it more.
inline Grid share_out(std::int64_t rows, std::int64_t panels, std::int64_t parts, bool packed,
                      std::int64_t together = 1) {
  const std::int64_t weight_rows = packed ? 4 : 32;
  const auto largest = [](std::int64_t all, std::int64_t n) { return (all + n - 1) / n; };
  Grid best;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t r = 1; r <= std::min(rows, parts); ++r) {
    const std::int64_t p = std::min(panels, parts / r);
    const double time = static_cast<double>(largest(rows, r) * together + weight_rows) *
                        static_cast<double>(largest(panels, p));
    if (time < least) {
      least = time;
      best = {r, p};
    }
  }
  return best;
}

/// What one thread does: these rows by these panels.
struct Share {
  int part = 0;
  std::int64_t first_panel = 0, last_panel = 0;
  std::int64_t first_row = 0, last_row = 0;
};

inline int parts_in(const Grid& grid) { return static_cast<int>(grid.rows * grid.panels); }
inline Share share_of(const Grid& grid, int part, std::int64_t rows, std::int64_t panels) {
  const std::int64_t i = part / grid.panels;
  const std::int64_t j = part % grid.panels;
  return {part, panels * j / grid.panels, panels * (j + 1) / grid.panels, rows * i / grid.rows,
          rows * (i + 1) / grid.rows};
}

}  // namespace octavo::detail
