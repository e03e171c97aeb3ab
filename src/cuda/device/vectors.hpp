// Elements of every type, several at a time: as many as are given, in one access where they are of
// up to 16 bytes and lie where a multiple of that many bytes does.
#pragma once

#include "cuda/device/device.hpp"

namespace octavo::cuda {

/// `bytes` of memory in registers.
template <unsigned bytes>
struct Packet {
  static constexpr unsigned count = bytes < 4 ? 1 : bytes / 4;
  std::uint32_t words[count] = {};

  OCTAVO_DEVICE void load(const void* from) {
    if constexpr (bytes == 16) {
      const Vector16 v = load16(from);
      for (unsigned i = 0; i < 4; ++i) words[i] = v.words[i];
    } else if constexpr (bytes == 8) {
      const auto v = *static_cast<const std::uint64_t*>(from);
      words[0] = static_cast<std::uint32_t>(v);
      words[1] = static_cast<std::uint32_t>(v >> 32U);
    } else if constexpr (bytes == 4) {
      words[0] = *static_cast<const std::uint32_t*>(from);
    } else if constexpr (bytes == 2) {
      words[0] = *static_cast<const std::uint16_t*>(from);
    } else {
      static_assert(bytes == 1);
      words[0] = *static_cast<const std::uint8_t*>(from);
    }
  }
  OCTAVO_DEVICE void store(void* to) const {
    if constexpr (bytes == 16) {
      store16(to, {{words[0], words[1], words[2], words[3]}});
    } else if constexpr (bytes == 8) {
      *static_cast<std::uint64_t*>(to) = std::uint64_t{words[1]} << 32U | words[0];
    } else if constexpr (bytes == 4) {
      *static_cast<std::uint32_t*>(to) = words[0];
    } else if constexpr (bytes == 2) {
      *static_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(words[0]);
    } else {
      static_assert(bytes == 1);
      *static_cast<std::uint8_t*>(to) = static_cast<std::uint8_t>(words[0]);
    }
  }
};

/// Whole elements of 4 or 8 bytes, 16 bytes (or what they come to, if less) at a time.
template <unsigned count, class T>
OCTAVO_DEVICE void load_consecutive(const T* from, T (&to)[count]) {
  constexpr unsigned bytes = count * sizeof(T);
  constexpr unsigned at_once = (bytes < 16 ? bytes : 16) / sizeof(T);
#pragma unroll
  for (unsigned first = 0; first < count; first += at_once) {
    Packet<at_once * sizeof(T)> packet;
    packet.load(from + first);
#pragma unroll
    for (unsigned i = 0; i < at_once; ++i) {
      if constexpr (sizeof(T) == 8) {
        to[first + i] =
            std::bit_cast<T>(std::uint64_t{packet.words[2 * i + 1]} << 32U | packet.words[2 * i]);
      } else {
        to[first + i] = std::bit_cast<T>(packet.words[i]);
      }
    }
  }
}

/// `bits` of the i-th element of packed words, i known to the compiler.
template <unsigned element_bits, unsigned count>
OCTAVO_DEVICE std::uint32_t lane_of(const std::uint32_t (&words)[count], unsigned i) {
  if constexpr (element_bits == 32) {
    return words[i];
  } else {
    return words[i * element_bits / 32] >> (i * element_bits % 32) & ((1U << element_bits) - 1U);
  }
}
template <unsigned element_bits, unsigned count>
OCTAVO_DEVICE void set_lane(std::uint32_t (&words)[count], unsigned i, std::uint32_t value) {
  if constexpr (element_bits == 32) {
    words[i] = value;
  } else {
    words[i * element_bits / 32] |= (value & ((1U << element_bits) - 1U))
                                    << (i * element_bits % 32);
  }
}

/// Integers of 4, 8 or 16 bits, signed or not: `sign` is the value of their sign bit, or 0.
template <unsigned element_bits>
struct IntegerLanes {
  static constexpr unsigned bits = element_bits;
  using Value = std::int32_t;
  OCTAVO_DEVICE static Value with_sign(std::uint32_t value, std::int32_t sign) {
    return (static_cast<std::int32_t>(value) ^ sign) - sign;
  }
  OCTAVO_DEVICE static const void* at(const void* data, std::int64_t i) {
    return static_cast<const char*>(data) + (bits == 4 ? i >> 1 : i * (bits / 8));
  }
  OCTAVO_DEVICE static Value read(const void* data, std::int64_t i, std::int32_t sign) {
    Packet<bits == 16 ? 2 : 1> packet;
    packet.load(at(data, i));
    if constexpr (bits == 4) {
      return with_sign(packet.words[0] >> ((i & 1) * 4) & 0xFU, sign);
    } else {
      return with_sign(packet.words[0], sign);
    }
  }
  template <unsigned lanes>
  struct Lanes : Packet<(lanes * bits + 7) / 8> {
    using Memory = Packet<(lanes * bits + 7) / 8>;
    OCTAVO_DEVICE void load(const void* data, std::int64_t i) { Memory::load(at(data, i)); }
    OCTAVO_DEVICE void store(void* data, std::int64_t i) const {
      Memory::store(const_cast<void*>(at(data, i)));
    }
    OCTAVO_DEVICE Value get(unsigned i, std::int32_t sign) const {
      return with_sign(lane_of<bits>(this->words, i), sign);
    }
    OCTAVO_DEVICE void set(unsigned i, Value value) {
      set_lane<bits>(this->words, i, static_cast<std::uint32_t>(value));
    }
  };
};

/// Floats of a type, as numbers of its compute type.
template <DType type>
struct FloatLanes {
  using Row = numerics::Type<type>;
  using Storage = typename Row::Storage;
  using Value = typename Row::Compute;
  static constexpr unsigned bits = sizeof(Storage) * 8;
  static constexpr unsigned lanes = 16 / sizeof(Storage);
  OCTAVO_DEVICE static float widen(std::uint16_t value) {
    if constexpr (type == DType::f16) {
      return widen_f16(value);
    } else {
      return numerics::widen(bf16{value});
    }
  }
  OCTAVO_DEVICE static Value read(const void* data, std::int64_t i, std::int32_t /*sign*/) {
    if constexpr (bits == 16) {
      return widen(static_cast<const std::uint16_t*>(data)[i]);
    } else {
      return Row::read(data, i);
    }
  }
  template <unsigned lanes>
  struct Lanes : Packet<lanes * sizeof(Storage)> {
    using Memory = Packet<lanes * sizeof(Storage)>;
    OCTAVO_DEVICE void load(const void* data, std::int64_t i) {
      Memory::load(static_cast<const Storage*>(data) + i);
    }
    OCTAVO_DEVICE void store(void* data, std::int64_t i) const {
      Memory::store(static_cast<Storage*>(data) + i);
    }
    OCTAVO_DEVICE Value get(unsigned i, std::int32_t /*sign*/) const {
      if constexpr (bits == 64) {
        return std::bit_cast<double>(std::uint64_t{this->words[2 * i + 1]} << 32U |
                                     this->words[2 * i]);
      } else if constexpr (bits == 32) {
        return std::bit_cast<float>(this->words[i]);
      } else {
        return widen(static_cast<std::uint16_t>(lane_of<16>(this->words, i)));
      }
    }
    OCTAVO_DEVICE void set(unsigned i, Value value) {
      if constexpr (bits == 64) {
        const auto both = std::bit_cast<std::uint64_t>(value);
        this->words[2 * i] = static_cast<std::uint32_t>(both);
        this->words[2 * i + 1] = static_cast<std::uint32_t>(both >> 32U);
      } else if constexpr (bits == 32) {
        this->words[i] = std::bit_cast<std::uint32_t>(value);
      } else if constexpr (type == DType::f16) {
        set_lane<16>(this->words, i, narrow_f16(value));
      } else {
        set_lane<16>(this->words, i, numerics::narrow_bf16(value).bits);
      }
    }
  };
};

}  // namespace octavo::cuda
