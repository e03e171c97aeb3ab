// The loop of all kernels on weights in groups. Each file that includes this is compiled for its
// own instruction set, and an Engine of its own says what a vector is:
//
//     target                   it is compiled for
//     columns                  of a vector, a divisor of 16
//     rows                     of a tile
//     together(chains)         vectors of columns at a time, of bytes by more than two rows
//     one_by_one               whether one row of nibbles reads a panel after the other
//     steps_at_once            by more than two rows: without a branch between them
//     ahead(chains)            bytes that few rows ask memory for beforehand, in each panel
//     whole_bytes              whether `add` takes any u8, not only nibbles
//     Activation, Weights, Sums, Floats           types
//     activation(p)            four values, repeated for each column
//     load(p)                  codes; low(w), high(w) the nibbles of bytes, upper(w) = w & 0xF0
//     add(s, w, a)             s + the products of four codes of each column
//     add_bytes(s, w, a)       the same for any u8
//     add_rows<chains, nibbles>(a, codes, steps, s)    where it has one, all of that, in its own
//                              order of activations
//     zero(), repeated(v), integers(p), bytes(p), plus, minus, times, times256, sixteenth     of
//     Sums no_value(), value(s), fma, sum, scales(p, type, column), store                       of
//     Floats
//
// Everything here has internal linkage, or a copy made for one instruction set might run on
// another.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/linear/cpu/group.hpp"

namespace octavo::detail {
namespace {

// `count` vectors of columns at a time, whatever panels they lie in: of few rows several, since one
// has too few sums to hide the latency of products, and panels are read faster side by side.
template <class E, int rows, int parts, bool nibbles, int count>
struct GroupTile {
  static constexpr int chains = rows * parts;
  static constexpr std::int64_t code_bytes = nibbles ? 64 : 128;  // of a step
  using Sums = typename E::Sums;
  using Floats = typename E::Floats;
  using Codes = const unsigned char* [count];

  // Vectors of columns are counted through all panels.
  static constexpr int per_panel = 16 / static_cast<int>(E::columns);
  static constexpr int panel_of(int vector) { return vector / per_panel; }
  static constexpr std::int64_t column_of(int vector) { return vector % per_panel * E::columns; }

  // Of few rows memory decides, and hardware alone asks it too late: for the lines of the first
  // vector, which the others share. Of many, bytes are in the second cache, which is nearer. (It
  // never faults, whatever is there.)
  static void ask_ahead(int v, const unsigned char* at, std::int64_t bytes = code_bytes) {
    constexpr std::int64_t ahead = chains > 2 ? 1024 : E::ahead(chains);
    if ((chains > 2 && nibbles) || v % per_panel != 0) return;
    for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + ahead + line);
  }

  // Nibbles by one row: all bits, and the upper half alone, are one operation less for each byte.
  // Two sums of each hide the latency. The upper halves count 16 times, and must fit 32 bits so, or
  // the division would be wrong: 4 * 2^14 products by 240 * 128 do.
  static constexpr std::int64_t piece = std::int64_t{1} << 14;
  static constexpr int depth = count > 2 ? 1 : 2;
  static void add_piece(const std::int8_t* a, const Codes& codes, std::int64_t steps,
                        Sums (&s)[count][chains][2]) {
    Sums all[count][depth];
    Sums high[count][depth];
    for (int v = 0; v < count; ++v)
      for (int j = 0; j < depth; ++j) all[v][j] = high[v][j] = E::zero();
    const auto step = [&](std::int64_t i, int j) {
      const auto x = E::activation(a + i * 4);
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v) {
        ask_ahead(v, codes[v] + i * code_bytes);
        const auto w = E::load(codes[v] + i * code_bytes);
        all[v][j] = E::add(all[v][j], w, x);
        high[v][j] = E::add(high[v][j], E::upper(w), x);
      }
    };
    // (The odd step comes first: after the loop it would cost copies of all sums in it.)
    std::int64_t i = steps % depth;
    if (i != 0) step(0, 0);
    for (; i < steps; i += depth) {
#pragma GCC unroll 2
      for (int j = 0; j < depth; ++j) step(i + j, j);
    }
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      if constexpr (depth == 2) {
        all[v][0] = E::plus(all[v][0], all[v][1]);
        high[v][0] = E::plus(high[v][0], high[v][1]);
      }
      s[v][0][0] = E::plus(s[v][0][0], E::minus(all[v][0], high[v][0]));
      s[v][0][1] = E::plus(s[v][0][1], E::sixteenth(high[v][0]));
    }
  }

  // Products of one group.
  static void add(const std::int8_t* a, Codes& codes, std::int64_t steps,
                  Sums (&s)[count][chains][2]) {
    if constexpr (requires { E::template add_rows<chains, nibbles>(a, codes[0], steps, s[0]); }) {
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v)
        E::template add_rows<chains, nibbles>(a, codes[v], steps, s[v]);
    } else if constexpr (chains == 1 && nibbles && E::whole_bytes) {
      for (; steps > piece; steps -= piece, a += piece * 4) {
        add_piece(a, codes, piece, s);
        for (int v = 0; v < count; ++v) codes[v] += piece * code_bytes;
      }
      add_piece(a, codes, steps, s);
    } else {
      constexpr int at_once = chains > 2 ? E::steps_at_once : 1;
      std::int64_t i = 0;
      if constexpr (at_once > 1)
        for (; i + at_once <= steps; i += at_once) {
#pragma GCC unroll 8
          for (int j = 0; j < at_once; ++j, a += std::int64_t{4} * chains)
            add_step(a, codes, i + j, s);
        }
      for (; i < steps; ++i, a += std::int64_t{4} * chains) add_step(a, codes, i, s);
    }
  }

  [[gnu::always_inline]] static void add_step(const std::int8_t* a, const Codes& codes,
                                              std::int64_t i, Sums (&s)[count][chains][2]) {
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      const unsigned char* at = codes[v] + i * code_bytes;
      ask_ahead(v, at);
      typename E::Weights w[2];
      if constexpr (nibbles) {
        const auto both = E::load(at);
        w[0] = E::low(both);
        w[1] = E::high(both);
      } else {
        w[0] = E::load(at);
        w[1] = E::load(at + 64);
      }
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) {
        const auto x = E::activation(a + std::ptrdiff_t{r} * 4);
        if constexpr (nibbles) {
          s[v][r][0] = E::add(s[v][r][0], w[0], x);
          s[v][r][1] = E::add(s[v][r][1], w[1], x);
        } else {
          s[v][r][0] = E::add_bytes(s[v][r][0], w[0], x);
          s[v][r][1] = E::add_bytes(s[v][r][1], w[1], x);
        }
      }
    }
  }

  // What is taken off the sums of group g, as their first value.
  template <bool plain>
  static void start(const GroupCall& call, int first, std::int64_t g, const std::int32_t* row_sums,
                    Sums (&s)[count][chains][2]) {
    if (plain || call.zero_points[0] == nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) {
        const Sums off = E::repeated(-call.zero * row_sums[r]);
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) s[v][r][0] = s[v][r][1] = off;
      }
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v) {
        const unsigned char* zeros =
            call.zero_points[panel_of(first + v)] + g * wide_columns + column_of(first + v);
        const Sums zero0 = E::bytes(zeros);
        const Sums zero1 = E::bytes(zeros + 16);
#pragma GCC unroll 8
        for (int r = 0; r < chains; ++r) {
          const Sums sum = E::repeated(-row_sums[r]);
          s[v][r][0] = E::times(zero0, sum);
          s[v][r][1] = E::times(zero1, sum);
        }
      }
    }
    if (plain || call.row_zeros == nullptr) return;
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      const std::int32_t* sums =
          call.column_sums[panel_of(first + v)] + g * wide_columns + column_of(first + v);
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) {
        const Sums zero = E::repeated(call.row_zeros[r]);
        s[v][r][0] = E::minus(s[v][r][0], E::times(E::integers(sums), zero));
        s[v][r][1] = E::minus(s[v][r][1], E::times(E::integers(sums + 16), zero));
      }
    }
  }

  // A group may be so short that to ask in each what all have alike takes up to a fifth of the
  // time: symmetric weights with scales of 16 bits, as most are, have a loop of their own.
  static void run(const GroupCall& call, int first) {
    if (call.zero_points[0] == nullptr && call.row_zeros == nullptr) {
      if (call.scale_type == DType::f16) return run_all<true, DType::f16>(call, first);
      if (call.scale_type == DType::bf16) return run_all<true, DType::bf16>(call, first);
    }
    run_all<false>(call, first);
  }

  // `plain`: no zero points; and then scales of one type.
  template <bool plain, DType of_scales = DType::f32>
  static void run_all(const GroupCall& call, int first) {
    const DType scale_type = plain ? of_scales : call.scale_type;
    const std::int64_t scale_bytes = wide_columns * bits(scale_type) / 8;
    const std::int64_t group_bytes = scale_bytes + call.steps * code_bytes;
    Floats pending[3][count][rows][2];
    Floats y[count][rows][2];
    int levels = 0;
    std::int64_t g = 0;
    const std::int8_t* a = call.activations;
    const unsigned char* at[count];
    for (int v = 0; v < count; ++v) at[v] = call.weights[panel_of(first + v)];
    const std::int32_t* row_sums = call.row_sums;
    for (int j = 0;;) {
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) y[v][r][0] = y[v][r][1] = E::no_value();
      }
      for (; g < call.segment[j].end; ++g) {
        Sums s[count][chains][2];
        Codes codes;
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
          ask_ahead(v, at[v], scale_bytes);
          codes[v] = at[v] + scale_bytes + column_of(first + v) * 4;
        }
        start<plain>(call, first, g, row_sums, s);
        add(a, codes, call.steps, s);
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
          const std::int64_t q = column_of(first + v);
          const Floats scale0 = E::scales(at[v], scale_type, q);
          const Floats scale1 = E::scales(at[v], scale_type, q + 16);
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            if constexpr (parts == 2) {
              s[v][r][0] = E::plus(E::times256(s[v][2 * r][0]), s[v][2 * r + 1][0]);
              s[v][r][1] = E::plus(E::times256(s[v][2 * r][1]), s[v][2 * r + 1][1]);
            }
            y[v][r][0] = E::fma(E::value(s[v][r][0]), scale0, y[v][r][0]);
            y[v][r][1] = E::fma(E::value(s[v][r][1]), scale1, y[v][r][1]);
          }
          at[v] += group_bytes;
        }
        a += call.steps * 4 * chains;
        row_sums += chains;
      }
      for (int i = call.segment[j].merges; i > 0; --i) {
        --levels;
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            y[v][r][0] = E::sum(pending[levels][v][r][0], y[v][r][0]);
            y[v][r][1] = E::sum(pending[levels][v][r][1], y[v][r][1]);
          }
        }
      }
      if (++j == call.segments) break;
#pragma GCC unroll 4
      for (int v = 0; v < count; ++v) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          pending[levels][v][r][0] = y[v][r][0];
          pending[levels][v][r][1] = y[v][r][1];
        }
      }
      ++levels;
    }
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      float* to = call.values + panel_of(first + v) * wide_columns + column_of(first + v);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        E::store(y[v][r][0], to + r * group_columns);
        E::store(y[v][r][1], to + r * group_columns + 16);
      }
    }
  }

  static void sums(const GroupSumsCall& call, int first) {
    Sums s[count][chains][2];
    Codes codes;
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      codes[v] = call.codes[panel_of(first + v)] + column_of(first + v) * 4;
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) s[v][r][0] = s[v][r][1] = E::zero();
    }
    add(call.activations, codes, call.steps, s);
#pragma GCC unroll 4
    for (int v = 0; v < count; ++v) {
      std::int32_t* to = call.sums + panel_of(first + v) * wide_columns + column_of(first + v);
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) {
        E::store(s[v][r][0], to + r * group_columns);
        E::store(s[v][r][1], to + r * group_columns + 16);
      }
    }
  }
};

// All columns of a call.
template <class E, int rows, int parts, bool nibbles>
struct GroupColumns {
  template <int count>
  using Tile = GroupTile<E, rows, parts, nibbles, count>;
  static constexpr int per_panel = Tile<1>::per_panel;
  static constexpr int chains = rows * parts;
  static constexpr int together = chains == 1 && nibbles && E::one_by_one ? 1
                                  : chains <= 2 ? (per_panel > 2 ? per_panel : 2)
                                  : nibbles     ? 1
                                                : E::together(chains);

  static void run(const GroupCall& call) {
    const int all = call.panels * per_panel;
    int v = 0;
    for (; v + together <= all; v += together) Tile<together>::run(call, v);
    for (; v < all; ++v) Tile<1>::run(call, v);
  }
  static void sums(const GroupSumsCall& call) {
    const int all = call.panels * per_panel;
    int v = 0;
    for (; v + together <= all; v += together) Tile<together>::sums(call, v);
    for (; v < all; ++v) Tile<1>::sums(call, v);
  }
};

// For every number of rows. (No std::array: its functions would be shared by all instruction sets.)
template <class E, int parts, bool nibbles, class Indices>
struct GroupTiles;
template <class E, int parts, bool nibbles, std::size_t... i>
struct GroupTiles<E, parts, nibbles, std::index_sequence<i...>> {
  static constexpr void (*run[])(const GroupCall&) = {
      GroupColumns<E, static_cast<int>(i) + 1, parts, nibbles>::run...};
  static constexpr void (*sums[])(const GroupSumsCall&) = {
      GroupColumns<E, static_cast<int>(i) + 1, parts, nibbles>::sums...};
};
template <class E, int parts, bool nibbles>
using GroupTilesOf = GroupTiles<E, parts, nibbles, std::make_index_sequence<E::rows / parts>>;

template <class E>
Target run_groups(const GroupCall& call, bool nibbles) {
  const int i = call.rows - 1;
  const auto tile =
      call.parts == 1
          ? (nibbles ? GroupTilesOf<E, 1, true>::run[i] : GroupTilesOf<E, 1, false>::run[i])
          : (nibbles ? GroupTilesOf<E, 2, true>::run[i] : GroupTilesOf<E, 2, false>::run[i]);
  tile(call);
  return E::target;
}

template <class E>
Target sum_groups(const GroupSumsCall& call, bool nibbles) {
  const int i = call.rows - 1;
  const auto tile =
      call.parts == 1
          ? (nibbles ? GroupTilesOf<E, 1, true>::sums[i] : GroupTilesOf<E, 1, false>::sums[i])
          : (nibbles ? GroupTilesOf<E, 2, true>::sums[i] : GroupTilesOf<E, 2, false>::sums[i]);
  tile(call);
  return E::target;
}

}  // namespace
}  // namespace octavo::detail
