// Tensors as bytes, element by element, and a digest of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/tensor.hpp"
#include "testing/floats.hpp"

namespace octavo::testing {

using Bytes = std::vector<std::byte>;

[[nodiscard]] inline std::int64_t product(const Shape& shape, int first, int last) {
  std::int64_t n = 1;
  for (int i = first; i < last; ++i) n *= shape[i];
  return n;
}
[[nodiscard]] inline std::int64_t numel(const Shape& shape) {
  return product(shape, 0, shape.rank());
}

/// Contiguous tensors of any type, element by element; rows of packed types start on a byte.
class Elements {
 public:
  Elements(DType type, const Shape& shape)
      : type_(type),
        cols_(shape.rank() == 0 ? 1 : shape[shape.rank() - 1]) {
    rows_ = cols_ == 0 ? 0 : numel(shape) / cols_;
  }
  [[nodiscard]] std::int64_t bytes() const { return rows_ * bytes_for(type_, cols_); }

  /// The bits of a float; the value of an integer.
  [[nodiscard]] std::int64_t get(const void* data, std::int64_t i) const {
    if (!is_packed(type_)) {
      const std::uint64_t bits = load_bits(data, octavo::bits(type_) / 8, i);
      if (type_ == DType::s8) return static_cast<std::int8_t>(bits);
      if (type_ == DType::s16) return static_cast<std::int16_t>(bits);
      return static_cast<std::int64_t>(bits);
    }
    const auto byte = static_cast<int>(static_cast<const std::byte*>(data)[byte_of(i)]);
    const int nibble = (byte >> shift_of(i)) & 15;
    return type_ == DType::s4 && nibble > 7 ? nibble - 16 : nibble;
  }
  /// Writing the last element of an odd row clears the padding beside it, as kernels do.
  void set(void* data, std::int64_t i, std::int64_t value) const {
    if (!is_packed(type_)) {
      store_bits(data, octavo::bits(type_) / 8, i, static_cast<std::uint64_t>(value));
      return;
    }
    std::byte& byte = static_cast<std::byte*>(data)[byte_of(i)];
    const auto nibble = static_cast<std::byte>(value & 15);
    byte = shift_of(i) == 0 ? nibble : (byte & std::byte{15}) | nibble << 4;
  }

 private:
  [[nodiscard]] std::int64_t byte_of(std::int64_t i) const {
    return i / cols_ * bytes_for(type_, cols_) + i % cols_ / 2;
  }
  [[nodiscard]] int shift_of(std::int64_t i) const { return i % cols_ % 2 == 0 ? 0 : 4; }

  DType type_;
  std::int64_t cols_;
  std::int64_t rows_ = 0;
};

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      state_ = (state_ ^ static_cast<std::uint64_t>(static_cast<const std::byte*>(data)[i])) *
               0x100000001b3ULL;
  }
  void add(const Bytes& bytes) { add(bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace octavo::testing
