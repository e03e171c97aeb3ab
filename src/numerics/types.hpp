// One row for each type: how an element is held, read and written, and what is computed in. And the
// one way from a type that is known at run time to one that is known to the compiler.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "numerics/half.hpp"
#include "octavo/dtype.hpp"

namespace octavo::numerics {

/// Elements one after another, each a C++ object of its own.
template <class T, class C>
struct WholeType {
  using Storage = T;
  using Lane = T;     // one element, unpacked
  using Compute = C;  // what arithmetic is done in; of integers, what they become exactly
  /// As a number of the compute type, or an integer.
  static auto read(const void* data, std::int64_t i) {
    const T value = static_cast<const T*>(data)[i];
    if constexpr (requires { widen(value); }) {
      return widen(value);
    } else {
      return value;
    }
  }
  template <class V>
  static void write(void* data, std::int64_t i, V value) {
    T& to = static_cast<T*>(data)[i];
    if constexpr (std::is_same_v<T, f16>) {
      to = narrow_f16(value);
    } else if constexpr (std::is_same_v<T, bf16>) {
      to = narrow_bf16(value);
    } else {
      to = static_cast<T>(value);
    }
  }
};

/// Two to a byte, the even one in the lower half.
template <class T>
struct NibbleType {
  using Storage = std::uint8_t;
  using Lane = T;
  using Compute = float;
  static std::int32_t read(const void* data, std::int64_t i) {
    // Shifts, not divisions: indices are negative where strides are.
    const int byte = static_cast<const std::uint8_t*>(data)[i >> 1];
    const int nibble = (byte >> ((i & 1) * 4)) & 0xF;
    return std::is_signed_v<T> ? (nibble ^ 8) - 8 : nibble;
  }
  /// An even element clears its byte, so the unused half of an odd row's last byte is 0. Elements
  /// of a row are written in order, by one thread.
  static void write(void* data, std::int64_t i, std::int32_t value) {
    std::uint8_t& byte = static_cast<std::uint8_t*>(data)[i >> 1];
    byte = static_cast<std::uint8_t>((i & 1) == 0 ? value & 0xF : byte | ((value & 0xF) << 4));
  }
};

/// A type without a row does not compile.
template <DType type>
struct Type;
template <>
struct Type<DType::f32> : WholeType<float, float> {};
template <>
struct Type<DType::f64> : WholeType<double, double> {};
template <>
struct Type<DType::f16> : WholeType<f16, float> {};
template <>
struct Type<DType::bf16> : WholeType<bf16, float> {};
template <>
struct Type<DType::s8> : WholeType<std::int8_t, float> {};
template <>
struct Type<DType::u8> : WholeType<std::uint8_t, float> {};
template <>
struct Type<DType::s4> : NibbleType<std::int8_t> {};
template <>
struct Type<DType::u4> : NibbleType<std::uint8_t> {};
template <>
struct Type<DType::s16> : WholeType<std::int16_t, float> {};
template <>
struct Type<DType::s32> : WholeType<std::int32_t, double> {};

/// The types that a family of operations admits. What is not listed is refused, in these words.
template <DType... types>
struct TypeList {
  [[nodiscard]] static constexpr bool has(DType type) { return ((type == types) || ...); }
  /// "f32, f64, f16 or bf16"
  [[nodiscard]] static std::string words() {
    std::string text;
    std::size_t left = sizeof...(types);
    ((text += name(types), --left, text += left > 1 ? ", " : left == 1 ? " or " : ""), ...);
    return text;
  }
};

using FloatTypes = TypeList<DType::f32, DType::f64, DType::f16, DType::bf16>;
using ByteTypes = TypeList<DType::s8, DType::u8>;
// Of quantize, dequantize and dynamic ranges; and those of them that mode symmetric is for.
using IntegerTypes = TypeList<DType::s8, DType::u8, DType::s4, DType::u4, DType::s16>;
using SymmetricTypes = TypeList<DType::s8, DType::s4, DType::s16>;
// Of observers, likewise.
using CalibratedTypes = TypeList<DType::s8, DType::u8, DType::s4, DType::u4>;
using SymmetricCalibratedTypes = TypeList<DType::s8, DType::s4>;

/// fn<type>() for a type of the list; a default result, which for a search is none, for any other.
template <DType... types, class F>
auto find_type(TypeList<types...> /*list*/, DType type, F&& fn) {
  std::common_type_t<decltype(fn.template operator()<types>())...> result{};
  (void)((type == types ? (result = fn.template operator()<types>(), true) : false) || ...);
  return result;
}

/// fn<type>() for a type of the list. Any other is a mistake of the caller's, who has not checked.
template <DType... types, class F>
void with_type(TypeList<types...> /*list*/, DType type, F&& fn) {
  if (((type == types ? (fn.template operator()<types>(), true) : false) || ...)) return;
  std::fprintf(stderr, "octavo: a type (%d) that was not checked\n", static_cast<int>(type));
  std::abort();
}

}  // namespace octavo::numerics
