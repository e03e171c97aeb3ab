// The loop of all kernels on weights in groups. Each file that includes this is compiled for its
// own instruction set, and an Engine of its own says what a vector is:
//
//     target                   it is compiled for
//     columns                  of a vector, a divisor of 16
//     rows                     of a tile
//     whole_bytes              whether `add` takes any u8, not only nibbles
//     Activation, Weights, Sums, Floats           types
//     activation(p)            four values, repeated for each column
//     load(p)                  codes; low(w), high(w) the nibbles of bytes, upper(w) = w & 0xF0
//     add(s, w, a)             s + the products of four codes of each column
//     add_bytes(s, w, a)       the same for any u8
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

template <class E, int rows, int parts, bool nibbles>
struct GroupTile {
  static constexpr int chains = rows * parts;
  static constexpr std::int64_t code_bytes = nibbles ? 64 : 128;  // of a step
  using Sums = typename E::Sums;
  using Floats = typename E::Floats;

  // Nibbles by one row: all bits, and the upper half alone, are one operation less for each byte.
  // Two sums of each hide the latency. The upper halves count 16 times, and must fit 32 bits so, or
  // the division would be wrong: 4 * 2^14 products by 240 * 128 do.
  static constexpr std::int64_t piece = std::int64_t{1} << 14;
  static void add_piece(const std::int8_t* a, const unsigned char* codes, std::int64_t steps,
                        Sums (&s)[chains][2]) {
    Sums all[2] = {E::zero(), E::zero()};
    Sums high[2] = {E::zero(), E::zero()};
    std::int64_t i = 0;
    for (; i + 2 <= steps; i += 2) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const auto w = E::load(codes + (i + j) * code_bytes);
        const auto x = E::activation(a + (i + j) * 4);
        all[j] = E::add(all[j], w, x);
        high[j] = E::add(high[j], E::upper(w), x);
      }
    }
    if (i < steps) {
      const auto w = E::load(codes + i * code_bytes);
      const auto x = E::activation(a + i * 4);
      all[0] = E::add(all[0], w, x);
      high[0] = E::add(high[0], E::upper(w), x);
    }
    const Sums h = E::plus(high[0], high[1]);
    s[0][0] = E::plus(s[0][0], E::minus(E::plus(all[0], all[1]), h));
    s[0][1] = E::plus(s[0][1], E::sixteenth(h));
  }

  // Products of one group.
  static void add(const std::int8_t* a, const unsigned char* codes, std::int64_t steps,
                  Sums (&s)[chains][2]) {
    if constexpr (chains == 1 && nibbles && E::whole_bytes) {
      for (; steps > 0; steps -= piece, codes += piece * code_bytes, a += piece * 4)
        add_piece(a, codes, steps < piece ? steps : piece, s);
    } else {
      for (std::int64_t i = 0; i < steps; ++i, codes += code_bytes, a += std::int64_t{4} * chains) {
        typename E::Weights w[2];
        if constexpr (nibbles) {
          const auto both = E::load(codes);
          w[0] = E::low(both);
          w[1] = E::high(both);
        } else {
          w[0] = E::load(codes);
          w[1] = E::load(codes + 64);
        }
#pragma GCC unroll 8
        for (int r = 0; r < chains; ++r) {
          const auto x = E::activation(a + std::ptrdiff_t{r} * 4);
          if constexpr (nibbles) {
            s[r][0] = E::add(s[r][0], w[0], x);
            s[r][1] = E::add(s[r][1], w[1], x);
          } else {
            s[r][0] = E::add_bytes(s[r][0], w[0], x);
            s[r][1] = E::add_bytes(s[r][1], w[1], x);
          }
        }
      }
    }
  }

  static void run(const GroupCall& call) {
    const std::int64_t scale_bytes = call.scale_type == DType::f32 ? 128 : 64;
    const std::int64_t group_bytes = scale_bytes + call.steps * code_bytes;
    for (std::int64_t q = 0; q < 16; q += E::columns) {
      Floats pending[3][rows][2];
      Floats y[rows][2];
      int levels = 0;
      std::int64_t g = 0;
      const std::int8_t* a = call.activations;
      const unsigned char* at = call.weights;
      const std::int32_t* row_sums = call.row_sums;
      int j = 0;
      do {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) y[r][0] = y[r][1] = E::no_value();
        for (; g < call.segment_ends[j]; ++g) {
          Sums s[chains][2];
          if (call.zero_points == nullptr) {
#pragma GCC unroll 8
            for (int r = 0; r < chains; ++r)
              s[r][0] = s[r][1] = E::repeated(-call.zero * row_sums[r]);
          } else {
            const Sums zero0 = E::bytes(call.zero_points + g * wide_columns + q);
            const Sums zero1 = E::bytes(call.zero_points + g * wide_columns + 16 + q);
#pragma GCC unroll 8
            for (int r = 0; r < chains; ++r) {
              const Sums sum = E::repeated(-row_sums[r]);
              s[r][0] = E::times(zero0, sum);
              s[r][1] = E::times(zero1, sum);
            }
          }
          if (call.row_zeros != nullptr) {
            const std::int32_t* sums = call.column_sums + g * wide_columns + q;
#pragma GCC unroll 8
            for (int r = 0; r < chains; ++r) {
              const Sums zero = E::repeated(call.row_zeros[r]);
              s[r][0] = E::minus(s[r][0], E::times(E::integers(sums), zero));
              s[r][1] = E::minus(s[r][1], E::times(E::integers(sums + 16), zero));
            }
          }
          add(a, at + scale_bytes + q * 4, call.steps, s);
          const Floats scale0 = E::scales(at, call.scale_type, q);
          const Floats scale1 = E::scales(at, call.scale_type, q + 16);
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            if constexpr (parts == 2) {
              s[r][0] = E::plus(E::times256(s[2 * r][0]), s[2 * r + 1][0]);
              s[r][1] = E::plus(E::times256(s[2 * r][1]), s[2 * r + 1][1]);
            }
            y[r][0] = E::fma(E::value(s[r][0]), scale0, y[r][0]);
            y[r][1] = E::fma(E::value(s[r][1]), scale1, y[r][1]);
          }
          a += call.steps * 4 * chains;
          at += group_bytes;
          row_sums += chains;
        }
        for (int full = j; (full & 1) != 0; full >>= 1) {
          --levels;
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            y[r][0] = E::sum(pending[levels][r][0], y[r][0]);
            y[r][1] = E::sum(pending[levels][r][1], y[r][1]);
          }
        }
        if (j + 1 < call.segments) {
#pragma GCC unroll 8
          for (int r = 0; r < rows; ++r) {
            pending[levels][r][0] = y[r][0];
            pending[levels][r][1] = y[r][1];
          }
          ++levels;
        }
      } while (++j < call.segments);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        E::store(y[r][0], call.values + r * group_columns + q);
        E::store(y[r][1], call.values + r * group_columns + 16 + q);
      }
    }
  }

  static void sums(const GroupSumsCall& call) {
    for (std::int64_t q = 0; q < 16; q += E::columns) {
      Sums s[chains][2];
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) s[r][0] = s[r][1] = E::zero();
      add(call.activations, call.codes + q * 4, call.steps, s);
#pragma GCC unroll 8
      for (int r = 0; r < chains; ++r) {
        E::store(s[r][0], call.sums + r * group_columns + q);
        E::store(s[r][1], call.sums + r * group_columns + 16 + q);
      }
    }
  }
};

// For every number of rows. (No std::array: its functions would be shared by all instruction sets.)
template <class E, int parts, bool nibbles, class Indices>
struct GroupTiles;
template <class E, int parts, bool nibbles, std::size_t... i>
struct GroupTiles<E, parts, nibbles, std::index_sequence<i...>> {
  static constexpr void (*run[])(const GroupCall&) = {
      GroupTile<E, static_cast<int>(i) + 1, parts, nibbles>::run...};
  static constexpr void (*sums[])(const GroupSumsCall&) = {
      GroupTile<E, static_cast<int>(i) + 1, parts, nibbles>::sums...};
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
