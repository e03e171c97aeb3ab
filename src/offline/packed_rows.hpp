// Rows of integers as checkpoints have them (compressed-tensors, pack-quantized): q + 8 in nibbles
// or q + 128 in bytes, the first in the lowest bits, each row padded with zeros to whole words of
// 32 bits. These are the library's integers with one bit turned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/dtype.hpp"

namespace octavo::offline {

/// The words of a row of s4 or s8.
constexpr std::int64_t packed_words(DType code, std::int64_t channels) {
  return code == DType::s4 ? (channels + 7) / 8 : (channels + 3) / 4;
}
constexpr std::size_t packed_bytes(DType code, std::int64_t channels) {
  return static_cast<std::size_t>(packed_words(code, channels) * 4);
}

/// From one form to the other, in either direction: what the integers of a row take.
inline void turn_row(DType code, const std::byte* from, std::int64_t channels, std::byte* to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(code, channels));
  const std::byte bit = code == DType::s4 ? std::byte{0x88} : std::byte{0x80};
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i] ^ bit;
  // (The other half stands for nothing.)
  if (code == DType::s4 && channels % 2 != 0) to[bytes - 1] &= std::byte{0x0F};
}

/// Rows as the library has them to those of a checkpoint.
inline void pack_rows(DType code, std::span<const std::byte> from, std::int64_t rows,
                      std::int64_t channels, std::span<std::byte> to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(code, channels));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::byte* out = &to[row * packed_bytes(code, channels)];
    turn_row(code, &from[row * bytes], channels, out);
    std::fill(out + bytes, out + packed_bytes(code, channels), std::byte{0});
  }
}

/// And back.
inline void unpack_rows(DType code, std::span<const std::byte> from, std::int64_t rows,
                        std::int64_t channels, std::span<std::byte> to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(code, channels));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
    turn_row(code, &from[row * packed_bytes(code, channels)], channels, &to[row * bytes]);
}

/// Zero points of int4 weights, [rows, groups], are packed the other way: + 8, eight rows to a
/// word, the first in the lowest nibble; nibbles beyond the last row are 0.
inline void pack_zero_points(std::span<const std::int32_t> from, std::int64_t rows,
                             std::int64_t groups, std::span<std::uint32_t> to) {
  std::fill(to.begin(), to.end(), 0U);
  const auto width = static_cast<std::size_t>(groups);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
    for (std::size_t g = 0; g < width; ++g)
      to[row / 8 * width + g] |= static_cast<std::uint32_t>(from[row * width + g] + 8)
                                 << (row % 8 * 4);
}

/// One of them.
inline std::int32_t zero_point_at(std::span<const std::byte> words, std::int64_t groups,
                                  std::int64_t row, std::int64_t group) {
  // Words are little-endian: a nibble is found by its byte.
  const auto word = static_cast<std::size_t>(row / 8 * groups + group);
  const auto place = static_cast<std::size_t>(row % 8);
  const auto byte = std::to_integer<unsigned>(words[word * 4 + place / 2]);
  return static_cast<std::int32_t>(byte >> (place % 2 * 4) & 15U) - 8;
}

}  // namespace octavo::offline
