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
  static constexpr bool whole_bytes = true;
  // (No intrinsic, as in dot_avx512vnni.cpp.)
  static Sums add(Sums s, Weights w, Activation a) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(w), "v"(a));
    return s;
  }
  static Sums add_bytes(Sums s, Weights w, Activation a) { return add(s, w, a); }
};

// Two units multiply, and they alone do all else on whole vectors; four instructions are begun in a
// cycle, which is few beside two products: so both panels of a pair, where a broadcast of
// activations serves four products, not two.
struct BusyEngine : Engine {
  static constexpr int together(int chains) { return chains <= 6 ? 2 : 1; }
};

// Units of their own take nibbles apart and convert sums, and instructions are begun eight at a
// time: so one panel, whose sums of both kinds stay in registers, and no branch within a group of
// 32, which would keep the next one from beginning before the sums of this one are there. One row
// of nibbles asks memory so far ahead that it finds the next panel: one stream, for two together
// are a tenth faster where weights are in the caches, and a third slower where small ones are not.
struct IdleEngine : Engine {
  static constexpr bool one_by_one = true;
  static constexpr int steps_at_once = 8;
  static constexpr std::int64_t ahead(int chains) { return chains == 1 ? 8192 : 4096; }
};

}  // namespace N_AVX512VNNI_GROUP

// (Each block of rows would take nibbles apart anew, which costs more than to write them down once
// where there are this many rows.)
const GroupKernel group_avx512vnni{.rows = N_AVX512VNNI_GROUP::Engine::rows,
                                   .many_rows = 6,
                                   .few = 31,
                                   .run = run_groups<N_AVX512VNNI_GROUP::BusyEngine>,
                                   .sums = sum_groups<N_AVX512VNNI_GROUP::BusyEngine>,
                                   .widen = widen<N_AVX512VNNI_GROUP::Engine>};
// (Beside products that costs nothing here. Sums of 8 rows are too many for the registers.)
const GroupKernel group_avx512vnni_idle{.rows = N_AVX512VNNI_GROUP::Engine::rows,
                                        .many_rows = 6,
                                        .few = 31,
                                        .run = run_groups<N_AVX512VNNI_GROUP::IdleEngine>,
                                        .sums = sum_groups<N_AVX512VNNI_GROUP::IdleEngine>};

}  // namespace octavo::detail
