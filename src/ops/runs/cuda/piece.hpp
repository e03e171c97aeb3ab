// Device code: what a thread takes of a tensor at once, 16 bytes or one element, and what it makes
// of it.
#pragma once

namespace octavo::cuda {

/// An element as a pattern: its bits, those of 16 in the upper half of 32. Patterns without a sign
/// are in the order of the numbers, and what is not finite lies above all that is.
template <class T>
struct Pattern {
  using Bits = std::uint32_t;
  static constexpr Bits infinity = std::is_same_v<T, f16> ? 0x7C000000U : 0x7F800000U;
  static constexpr Bits sign = 0x80000000U;
  static constexpr Bits used = sizeof(T) == 2 ? 0xFFFF0000U : 0xFFFFFFFFU;
};
template <>
struct Pattern<double> {
  using Bits = std::uint64_t;
  static constexpr Bits infinity = 0x7FF0000000000000U;
  static constexpr Bits sign = 0x8000000000000000U;
  static constexpr Bits used = ~Bits{0};
};
template <class T>
using BitsOf = typename Pattern<T>::Bits;
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The number of a pattern.
template <class T>
OCTAVO_DEVICE ComputeOf<T> number(BitsOf<T> bits) {
  if constexpr (std::is_same_v<T, f16>) {
    return widen_f16(static_cast<std::uint16_t>(bits >> 16U));
  } else {
    return std::bit_cast<ComputeOf<T>>(bits);
  }
}

/// One element.
template <class T>
OCTAVO_DEVICE BitsOf<T> load_pattern(const void* from, std::int64_t at) {
  if constexpr (sizeof(T) == 2) {
    return std::uint32_t{static_cast<const std::uint16_t*>(from)[at]} << 16U;
  } else {
    return static_cast<const BitsOf<T>*>(from)[at];
  }
}

/// As many elements as have 16 bytes; in memory they are aligned so.
template <class T, bool vector>
struct Piece {
  static constexpr int count = 16 / sizeof(T);
  Vector16 data = {};

  [[nodiscard]] static OCTAVO_DEVICE Piece staged(const void* at) { return {load16(at)}; }
  OCTAVO_DEVICE void stage(void* at) const { store16(at, data); }
  OCTAVO_DEVICE void load(const void* from, std::int64_t at) {
    data = load16(static_cast<const T*>(from) + at);
  }
  /// The first `n` of them; zeros for the others.
  OCTAVO_DEVICE void load_some(const void* from, std::int64_t at, int n) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (i >= n) continue;
      const BitsOf<T> bits = load_pattern<T>(from, at + i);
      if constexpr (sizeof(T) == 8) {
        data.words[2 * i] = static_cast<std::uint32_t>(bits);
        data.words[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32U);
      } else if constexpr (sizeof(T) == 4) {
        data.words[i] = bits;
      } else {
        data.words[i / 2] |= i % 2 == 0 ? bits >> 16U : bits;
      }
    }
  }
  /// A pattern, or one with another element in its unused bits.
  [[nodiscard]] OCTAVO_DEVICE BitsOf<T> raw(int i) const {
    return sizeof(T) == 2 && i % 2 == 1 ? data.words[i / 2] : pattern(i);
  }
  [[nodiscard]] OCTAVO_DEVICE BitsOf<T> pattern(int i) const {
    if constexpr (sizeof(T) == 8) {
      return std::uint64_t{data.words[2 * i + 1]} << 32U | data.words[2 * i];
    } else if constexpr (sizeof(T) == 4) {
      return data.words[i];
    } else {
      return i % 2 == 0 ? data.words[i / 2] << 16U : data.words[i / 2] & 0xFFFF0000U;
    }
  }
};
/// One element, wherever it lies.
template <class T>
struct Piece<T, false> {
  static constexpr int count = 1;
  BitsOf<T> bits = 0;

  [[nodiscard]] static OCTAVO_DEVICE Piece staged(const void* at) {
    return {*static_cast<const BitsOf<T>*>(at)};
  }
  OCTAVO_DEVICE void stage(void* at) const { *static_cast<BitsOf<T>*>(at) = bits; }
  OCTAVO_DEVICE void load(const void* from, std::int64_t at) { bits = load_pattern<T>(from, at); }
  [[nodiscard]] OCTAVO_DEVICE BitsOf<T> pattern(int /*i*/) const { return bits; }
  [[nodiscard]] OCTAVO_DEVICE BitsOf<T> raw(int /*i*/) const { return bits; }
};

template <int count>
struct Integers {
  std::int32_t q[count];
};

/// Writes the integers of a piece of 16 bytes, of `width` bits each, at an address that is aligned
/// to all of them.
template <int count>
OCTAVO_DEVICE void store_piece(void* to, std::int64_t at, const Integers<count>& of, int width) {
  const auto& q = of.q;
  // 2, 4 or 8 integers of 4, 8 or 16 bits: words of what fits.
  if (width == 16) {
    std::uint32_t words[count / 2];
#pragma unroll
    for (int i = 0; i < count / 2; ++i) words[i] = permute(q[2 * i], q[2 * i + 1], 0x5410);
    auto* out = static_cast<std::int16_t*>(to) + at;
    if constexpr (count == 8) {
      store16(out, {{words[0], words[1], words[2], words[3]}});
    } else if constexpr (count == 4) {
      *reinterpret_cast<std::uint64_t*>(out) = std::uint64_t{words[1]} << 32U | words[0];
    } else {
      *reinterpret_cast<std::uint32_t*>(out) = words[0];
    }
    return;
  }
  if (width == 8) {
    auto* out = static_cast<std::uint8_t*>(to) + at;
    std::uint32_t pairs[count / 2];
#pragma unroll
    for (int i = 0; i < count / 2; ++i) pairs[i] = permute(q[2 * i], q[2 * i + 1], 0x0040);
    if constexpr (count == 8) {
      *reinterpret_cast<std::uint64_t*>(out) = std::uint64_t{permute(pairs[2], pairs[3], 0x5410)}
                                                   << 32U |
                                               permute(pairs[0], pairs[1], 0x5410);
    } else if constexpr (count == 4) {
      *reinterpret_cast<std::uint32_t*>(out) = permute(pairs[0], pairs[1], 0x5410);
    } else {
      *reinterpret_cast<std::uint16_t*>(out) = static_cast<std::uint16_t>(pairs[0]);
    }
    return;
  }
  std::uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) all |= (static_cast<std::uint32_t>(q[i]) & 0xFU) << (4 * i);
  auto* out = static_cast<std::uint8_t*>(to) + at / 2;
  if constexpr (count == 8) {
    *reinterpret_cast<std::uint32_t*>(out) = all;
  } else if constexpr (count == 4) {
    *reinterpret_cast<std::uint16_t*>(out) = static_cast<std::uint16_t>(all);
  } else {
    *out = static_cast<std::uint8_t>(all);
  }
}

/// The first `n` of them, n < count: of packed ones whole bytes, with 0 in an unused half.
template <int count>
OCTAVO_DEVICE void store_some(void* to, std::int64_t at, const Integers<count>& of, int width,
                              int n) {
  const auto& q = of.q;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (i >= n) continue;
    if (width == 16) {
      static_cast<std::int16_t*>(to)[at + i] = static_cast<std::int16_t>(q[i]);
    } else if (width == 8) {
      static_cast<std::int8_t*>(to)[at + i] = static_cast<std::int8_t>(q[i]);
    } else if (i % 2 == 0) {
      const std::int32_t upper = i + 1 < n ? q[i + 1] : 0;
      static_cast<std::uint8_t*>(to)[(at + i) / 2] =
          static_cast<std::uint8_t>((q[i] & 0xF) | (upper & 0xF) << 4);
    }
  }
}

/// Writes an integer of each thread that has one. All lanes of the warp take part: where two
/// neighbours share a byte (`pairs`: packed elements without gaps, even ones in even lanes), the
/// even one writes it.
OCTAVO_DEVICE void store_one(void* to, std::int64_t at, std::int32_t q, int width, bool pairs,
                             bool valid) {
  if (width == 16) {
    if (valid) static_cast<std::int16_t*>(to)[at] = static_cast<std::int16_t>(q);
  } else if (width == 8) {
    if (valid) static_cast<std::int8_t*>(to)[at] = static_cast<std::int8_t>(q);
  } else {
    std::int32_t upper = 0;
    if (pairs) upper = shuffle_xor(valid ? q : 0, 1);
    if (valid && (!pairs || at % 2 == 0))
      static_cast<std::uint8_t*>(to)[at / 2] =
          static_cast<std::uint8_t>((q & 0xF) | (upper & 0xF) << 4);
  }
}

}  // namespace octavo::cuda
