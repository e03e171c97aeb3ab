// Rows of int4 weights as checkpoints have them (compressed-tensors, pack-quantized): q + 8 in
// nibbles, the first in the lowest bits, each row padded with zeros to whole words of 32 bits.
// These are the library's nibbles with one bit turned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/dtype.hpp"

namespace octavo::offline {

/// The words of a row.
constexpr std::int64_t packed_words(std::int64_t channels) { return (channels + 7) / 8; }
constexpr std::size_t packed_bytes(std::int64_t channels) {
  return static_cast<std::size_t>(packed_words(channels) * 4);
}

/// From one form to the other, in either direction: what the nibbles of a row take.
inline void turn_nibbles(const std::byte* from, std::int64_t channels, std::byte* to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(DType::s4, channels));
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i] ^ std::byte{0x88};
  if (channels % 2 != 0) to[bytes - 1] &= std::byte{0x0F};  // (the other half stands for nothing)
}

/// Rows of s4, as the library packs them, to those of a checkpoint.
inline void pack_rows(std::span<const std::byte> from, std::int64_t rows, std::int64_t channels,
                      std::span<std::byte> to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(DType::s4, channels));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::byte* out = &to[row * packed_bytes(channels)];
    turn_nibbles(&from[row * bytes], channels, out);
    std::fill(out + bytes, out + packed_bytes(channels), std::byte{0});
  }
}

/// And back.
inline void unpack_rows(std::span<const std::byte> from, std::int64_t rows, std::int64_t channels,
                        std::span<std::byte> to) {
  const auto bytes = static_cast<std::size_t>(bytes_for(DType::s4, channels));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
    turn_nibbles(&from[row * packed_bytes(channels)], channels, &to[row * bytes]);
}

}  // namespace octavo::offline
