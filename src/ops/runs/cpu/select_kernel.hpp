// From the types of a key to a template's.
#pragma once

#include "numerics/types.hpp"
#include "ops/runs/cpu/call.hpp"

namespace octavo::detail {

/// fn<Plain<T>>() or, of two to a byte, fn<Packed<T>>() for an integer type; null for any other.
template <template <class> class Plain, template <class> class Packed, class F>
KernelFunction with_integer(DType integer, F fn) {
  return numerics::find_type(numerics::IntegerTypes(), integer,
                             [&fn]<DType type>() -> KernelFunction {
                               using Lane = typename numerics::Type<type>::Lane;
                               if constexpr (is_packed(type)) {
                                 return fn.template operator()<Packed<Lane>>();
                               } else {
                                 return fn.template operator()<Plain<Lane>>();
                               }
                             });
}

/// Find::Find<compute type, element, parameters>(key) for the key's element type; null for any
/// other.
template <class Find, template <class> class Uniform, template <class> class PerLane>
KernelFunction find_typed(const KernelKey& key) {
  return numerics::find_type(numerics::FloatTypes(), key.element,
                             [&key]<DType type>() -> KernelFunction {
                               using T = typename numerics::Type<type>::Storage;
                               using C = typename numerics::Type<type>::Compute;
                               if (key.per_lane) return Find::template Find<C, T, PerLane<C>>(key);
                               return Find::template Find<C, T, Uniform<C>>(key);
                             });
}

}  // namespace octavo::detail
