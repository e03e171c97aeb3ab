// The AMX kernel, over any Tiles: those of the CPU, or the test's own, so that its logic is tested
// on machines without AMX.
//
//     Tiles::configure(config)               nothing if it is what the thread has; until release()
//     Tiles::zero<t>(), load<t>(p, stride), store<t>(p, stride)
//     Tiles::multiply<c, a, b>()             tile c += tile a * tile b, s8 by s8
//
// Activations are 16 rows by 64 k, weights 16 steps of 4 k by 16 columns, sums 16 by 16.
#pragma once

#include "ops/linear/cpu/amx_tiles.hpp"
#include "ops/linear/cpu/dot.hpp"

namespace octavo::detail::N_AMX {

inline constexpr std::int64_t tile_steps = 16;     // k / 4 of a tile
inline constexpr std::int64_t weight_tile = 1024;  // bytes
inline constexpr std::int64_t sum_stride = group_columns * 4;

// Tiles 0 to 3 hold sums. Up to 16 rows: one by four, activations in 4, weights in 5 to 7. More:
// two by two, activations in 4 and 5, weights in 6 and 7.
inline TileConfig narrow_config(std::int64_t rows) {
  TileConfig c;
  for (int t = 0; t < 8; ++t) {
    c.bytes[t] = tile_bytes;
    c.rows[t] = static_cast<std::uint8_t>(t < 5 ? rows : tile_rows);
  }
  return c;
}
inline TileConfig square_config(std::int64_t lower_rows) {
  TileConfig c;
  for (int t = 0; t < 8; ++t) {
    c.bytes[t] = tile_bytes;
    c.rows[t] = static_cast<std::uint8_t>(t == 2 || t == 3 || t == 5 ? lower_rows : tile_rows);
  }
  return c;
}

// Brings a part of the weights that come next to the second cache, a little with every step.
class Ahead {
 public:
  Ahead(const DotCall& call, std::int64_t turns)
      : next_(call.ahead),
        left_(call.ahead == nullptr ? 0 : (call.ahead_bytes + 63) / 64) {
    each_ = turns > 0 ? (left_ + turns - 1) / turns : 0;
  }
  void turn() {
    for (std::int64_t i = 0; i < each_ && left_ > 0; ++i, --left_, next_ += 64)
      __builtin_prefetch(next_, 0, 2);
  }

 private:
  const std::int8_t* next_;
  std::int64_t left_;
  std::int64_t each_ = 0;
};

template <class Tiles>
struct Kernel {
  // 32 rows (the lower 16 perhaps fewer) by one or two panels.
  template <bool two_panels>
  static void square(const DotCall& call, std::int64_t row, int panel, Ahead& ahead) {
    const auto* upper =
        static_cast<const std::int8_t*>(call.activations) + row * call.activation_stride;
    const auto* lower = upper + tile_rows * call.activation_stride;
    const std::int8_t* left = call.weights + panel * call.panel_bytes;
    const std::int8_t* right = left + call.panel_bytes;
    Tiles::template zero<0>();
    Tiles::template zero<2>();
    if constexpr (two_panels) {
      Tiles::template zero<1>();
      Tiles::template zero<3>();
    }
    for (std::int64_t step = 0; step < call.steps; step += tile_steps) {
      Tiles::template load<4>(upper, call.activation_stride);
      Tiles::template load<6>(left, tile_bytes);
      Tiles::template multiply<0, 4, 6>();
      Tiles::template load<5>(lower, call.activation_stride);
      Tiles::template multiply<2, 5, 6>();
      if constexpr (two_panels) {
        Tiles::template load<7>(right, tile_bytes);
        Tiles::template multiply<1, 4, 7>();
        Tiles::template multiply<3, 5, 7>();
      }
      ahead.turn();
      upper += tile_bytes;
      lower += tile_bytes;
      left += weight_tile;
      right += weight_tile;
    }
    std::int32_t* sums = call.sums + row * group_columns + panel * panel_columns;
    Tiles::template store<0>(sums, sum_stride);
    Tiles::template store<2>(sums + tile_rows * group_columns, sum_stride);
    if constexpr (two_panels) {
      Tiles::template store<1>(sums + panel_columns, sum_stride);
      Tiles::template store<3>(sums + tile_rows * group_columns + panel_columns, sum_stride);
    }
  }

  // Up to 16 rows by all panels: little is done with each byte of the weights, so they are fetched
  // well before they are loaded.
  template <int panels>
  static void narrow(const DotCall& call, std::int64_t row) {
    constexpr std::int64_t distance = 4 * weight_tile;
    const auto* rows =
        static_cast<const std::int8_t*>(call.activations) + row * call.activation_stride;
    const std::int8_t* weights = call.weights;
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
    const auto fetch = [&](const std::int8_t* tile) {
      for (std::int64_t line = 0; line < weight_tile; line += 64)
        __builtin_prefetch(tile + distance + line, 0, 3);
    };
    for (std::int64_t step = 0; step < call.steps; step += tile_steps) {
      Tiles::template load<4>(rows, call.activation_stride);
      Tiles::template load<5>(weights, tile_bytes);
      Tiles::template multiply<0, 4, 5>();
      fetch(weights);
      if constexpr (panels > 1) {
        Tiles::template load<6>(weights + call.panel_bytes, tile_bytes);
        Tiles::template multiply<1, 4, 6>();
        fetch(weights + call.panel_bytes);
      }
      if constexpr (panels > 2) {
        Tiles::template load<7>(weights + 2 * call.panel_bytes, tile_bytes);
        Tiles::template multiply<2, 4, 7>();
        fetch(weights + 2 * call.panel_bytes);
      }
      if constexpr (panels > 3) {
        Tiles::template load<5>(weights + 3 * call.panel_bytes, tile_bytes);
        Tiles::template multiply<3, 4, 5>();
        fetch(weights + 3 * call.panel_bytes);
      }
      rows += tile_bytes;
      weights += weight_tile;
    }
    std::int32_t* sums = call.sums + row * group_columns;
    Tiles::template store<0>(sums, sum_stride);
    if constexpr (panels > 1) Tiles::template store<1>(sums + panel_columns, sum_stride);
    if constexpr (panels > 2) Tiles::template store<2>(sums + 2 * panel_columns, sum_stride);
    if constexpr (panels > 3) Tiles::template store<3>(sums + 3 * panel_columns, sum_stride);
  }

  static void narrow_rows(const DotCall& call, std::int64_t row, std::int64_t rows) {
    Tiles::configure(narrow_config(rows));
    switch (call.panels) {
      case 1:
        return narrow<1>(call, row);
      case 2:
        return narrow<2>(call, row);
      case 3:
        return narrow<3>(call, row);
      default:
        return narrow<4>(call, row);
    }
  }

  static Target run(const DotCall& call) {
    constexpr std::int64_t both = 2 * tile_rows;
    Ahead ahead(call, (call.rows + tile_rows - 1) / both * ((call.panels + 1) / 2) *
                          (call.steps / tile_steps));
    std::int64_t row = 0;
    std::int64_t configured = 0;
    // (A remainder of up to 16 rows is left to the other shape.)
    for (; call.rows - row > tile_rows; row += both) {
      const std::int64_t lower = call.rows - row < both ? call.rows - row - tile_rows : tile_rows;
      if (lower != configured) Tiles::configure(square_config(lower));
      configured = lower;
      int panel = 0;
      for (; panel + 1 < call.panels; panel += 2) square<true>(call, row, panel, ahead);
      if (panel < call.panels) square<false>(call, row, panel, ahead);
    }
    if (row < call.rows) narrow_rows(call, row, call.rows - row);
    return Target::amx;
  }
};

}  // namespace octavo::detail::N_AMX
