// From run-time types to a template's: the one place where types are told apart.
#pragma once

#include "ops/elementwise/kernels.hpp"

namespace octavo::detail {

/// fn<Element>() for an integer type: Plain<int8_t>, Plain<uint8_t>, Packed<int8_t>,
/// Packed<uint8_t>.
template <template <class> class Plain, template <class> class Packed, class F>
KernelFunction with_integer(DType integer, F fn) {
  switch (integer) {
    case DType::s8:
      return fn.template operator()<Plain<std::int8_t>>();
    case DType::u8:
      return fn.template operator()<Plain<std::uint8_t>>();
    case DType::s4:
      return fn.template operator()<Packed<std::int8_t>>();
    case DType::u4:
      return fn.template operator()<Packed<std::uint8_t>>();
    default:
      return nullptr;
  }
}

/// Find::Find<compute type, element, parameters>(key) for the key's element type.
template <class Find, template <class> class Uniform, template <class> class PerLane>
KernelFunction find_typed(const KernelKey& key) {
  const auto find = [&key]<class C, class T>() {
    if (key.per_lane) return Find::template Find<C, T, PerLane<C>>(key);
    return Find::template Find<C, T, Uniform<C>>(key);
  };
  switch (key.element) {
    case DType::f32:
      return find.template operator()<float, float>();
    case DType::f64:
      return find.template operator()<double, double>();
    case DType::f16:
      return find.template operator()<float, f16>();
    case DType::bf16:
      return find.template operator()<float, bf16>();
    default:
      return nullptr;
  }
}

}  // namespace octavo::detail
