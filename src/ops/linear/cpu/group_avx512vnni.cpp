// AVX-512 VNNI: codes are the unsigned operand of vpdpbusd, activations the signed one.
#include <immintrin.h>

#include <cstring>

#include "ops/linear/cpu/group-inl.hpp"
#include "ops/linear/cpu/group_512-inl.hpp"

namespace octavo::detail {
namespace N_AVX512VNNI_GROUP {

struct Engine : Vectors512 {
  static constexpr Target target = Target::avx512vnni;
  static constexpr int rows = 8;
  // (Both panels of a pair: a broadcast of activations serves four products, not two. Four
  // instructions a cycle are few beside two products.)
  static constexpr int together(int chains) { return chains <= 6 ? 2 : 1; }
  static constexpr bool whole_bytes = true;
  // (No intrinsic, as in dot_avx512vnni.cpp.)
  static Sums add(Sums s, Weights w, Activation a) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(w), "v"(a));
    return s;
  }
  static Sums add_bytes(Sums s, Weights w, Activation a) { return add(s, w, a); }
};

}  // namespace N_AVX512VNNI_GROUP

// (Each block of rows would take nibbles apart anew, which costs more than to write them down once
// where there are this many rows.)
const GroupKernel group_avx512vnni{.rows = N_AVX512VNNI_GROUP::Engine::rows,
                                   .many_rows = 6,
                                   .few = 31,
                                   .run = run_groups<N_AVX512VNNI_GROUP::Engine>,
                                   .sums = sum_groups<N_AVX512VNNI_GROUP::Engine>,
                                   .widen = widen<N_AVX512VNNI_GROUP::Engine>};

}  // namespace octavo::detail
