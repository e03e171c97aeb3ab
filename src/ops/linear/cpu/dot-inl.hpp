// The loop of all kernels that keep a tile of sums in registers. Each file that includes this is
// compiled for its own instruction set, and an Engine of its own says what a vector is:
//
//     target                       it is compiled for
//     columns                      of a vector of weights, a divisor of 16
//     rows, vectors                of a tile
//     tall_rows, tall_vectors      of a tile for a few rows more, so that weights are read once;
//                                  0 if there is none
//     asks_ahead                   whether several rows ask for weights beforehand
//     activation_bytes             of a step: 4 values
//     Activation, Weights, Sums    types
//     activation(p), weights(p)    load; one step's activations are repeated for each column
//     zero(), add(sums, a, w)
//     store(sums, p)               `columns` int32
//
// Everything here has internal linkage, or a copy made for one instruction set might run on
// another.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/linear/cpu/dot.hpp"

namespace octavo::detail {
namespace {

struct Tile {
  const unsigned char* activations;
  std::int64_t activation_stride;
  const std::int8_t* weights[group_columns / 4];
  std::int64_t steps;
  std::int32_t* sums;
};

template <class E, int rows, int vectors>
void dot_tile(const Tile& t) {
  constexpr std::int64_t step_bytes = panel_columns * step_k;
  typename E::Sums sums[rows][vectors];
  const std::int8_t* weights[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) weights[v] = t.weights[v];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[r][v] = E::zero();
  const unsigned char* activations = t.activations;
  for (std::int64_t step = 0; step < t.steps; ++step) {
    typename E::Weights w[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const std::int8_t* at = weights[v] + step * step_bytes;
      // (From the second cache: hardware alone asks some too late. It never faults.)
      if constexpr (rows >= 4 && E::asks_ahead) __builtin_prefetch(at + 1024);
      w[v] = E::weights(at);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const typename E::Activation a = E::activation(activations + r * t.activation_stride);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[r][v] = E::add(sums[r][v], a, w[v]);
    }
    activations += E::activation_bytes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      E::store(sums[r][v], t.sums + r * group_columns + v * E::columns);
}

using TileFunction = void (*)(const Tile&);

// For every number of vectors up to `vectors`, and of rows from first_row on. (No std::array: its
// functions would be shared by all instruction sets.)
template <class E, int first_row, int vectors, class Indices>
struct Tiles;
template <class E, int first_row, int vectors, std::size_t... i>
struct Tiles<E, first_row, vectors, std::index_sequence<i...>> {
  static constexpr TileFunction all[] = {
      dot_tile<E, static_cast<int>(i) / vectors + first_row, static_cast<int>(i) % vectors + 1>...};
};

template <class E>
TileFunction find_tile(std::int64_t rows, std::int64_t vectors) {
  constexpr std::size_t usual = std::size_t{E::rows} * E::vectors;
  if constexpr (E::tall_rows > 0) {
    constexpr std::size_t tall = std::size_t{E::tall_rows - E::rows} * E::tall_vectors;
    if (rows > E::rows)
      return Tiles<E, E::rows + 1, E::tall_vectors,
                   std::make_index_sequence<tall>>::all[(rows - E::rows - 1) * E::tall_vectors +
                                                        vectors - 1];
  }
  return Tiles<E, 1, E::vectors, std::make_index_sequence<usual>>::all[(rows - 1) * E::vectors +
                                                                       vectors - 1];
}

template <class E>
Target dot(const DotCall& call) {
  if (call.rows <= E::rows && call.ahead != nullptr) {
    for (int panel = 0; panel < call.panels; ++panel)
      for (std::int64_t line = 0; line < 16; ++line)
        __builtin_prefetch(call.ahead + panel * call.panel_bytes + line * 64, 0, 2);
  }
  const std::int64_t columns = call.panels * panel_columns;
  bool tall = false;
  if constexpr (E::tall_rows > 0) tall = call.rows > E::rows && call.rows <= E::tall_rows;
  const std::int64_t wide = (tall ? E::tall_vectors : E::vectors) * E::columns;
  for (std::int64_t column = 0; column < columns; column += wide) {
    const std::int64_t left = columns - column;
    const std::int64_t vectors = (left < wide ? left : wide) / E::columns;
    Tile tile{};
    tile.activation_stride = call.activation_stride;
    tile.steps = call.steps;
    for (std::int64_t v = 0; v < vectors; ++v) {
      const std::int64_t at = column + v * E::columns;
      tile.weights[v] =
          call.weights + at / panel_columns * call.panel_bytes + at % panel_columns * step_k;
    }
    std::int64_t rows = 0;
    for (std::int64_t row = 0; row < call.rows; row += rows) {
      // A last strip of one or two rows would take half as long as a whole one: two halves do not.
      const std::int64_t left_rows = call.rows - row;
      rows = tall || left_rows <= E::rows          ? left_rows
             : left_rows < E::rows + (E::rows / 2) ? (left_rows + 1) / 2
                                                   : E::rows;
      tile.activations =
          static_cast<const unsigned char*>(call.activations) + row * call.activation_stride;
      tile.sums = call.sums + row * group_columns + column;
      find_tile<E>(rows, vectors)(tile);
    }
  }
  return E::target;
}

}  // namespace
}  // namespace octavo::detail
