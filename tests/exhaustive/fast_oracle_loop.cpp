// The loop of the fast oracle, compiled once per instruction set (CMakeLists.txt says which) under
// the name that OCTAVO_ANSWER gives. Vectors are those g++ and clang share; both split them to what
// the instruction set has. No inline function from outside may be used here: its one copy would be
// compiled for whichever set the linker came across first.
#include "fast_oracle.hpp"

namespace octavo::exhaustive {
namespace {

constexpr std::size_t lanes = 16;
using Floats = float __attribute__((vector_size(4 * lanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * lanes)));
using Chars = std::uint8_t __attribute__((vector_size(lanes)));
using Shorts = std::int16_t __attribute__((vector_size(2 * lanes)));

// Bits are handled as signed integers.
template <bool divide>
void answer_loop(const Setting& setting, const AnswerArrays& a) {
  constexpr std::int32_t infinity = 0x7F800000;
  constexpr std::int32_t canonical_nan = 0x7FC00000;
  const Ints magnitude = Ints{} + INT32_MAX;
  const Floats limit = Floats{} + 0x1p22F;    // further out all is saturated
  const Floats shift = Floats{} + 0x1.8p23F;  // x + shift - shift rounds |x| <= 2^22 to even
  const Floats scale = Floats{} + setting.pair.scale;
  const Floats inverse = 1.0F / scale;
  const Ints zero_point = Ints{} + setting.pair.zero_point;
  const Ints q_min = Ints{} + setting.range.min;
  const Ints q_max = Ints{} + setting.range.max;
  for (std::size_t i = 0; i < a.count; i += lanes) {
    Ints bits;
    __builtin_memcpy(&bits, a.inputs + i, sizeof bits);
    const Ints nan = (bits & magnitude) > infinity;  // all ones where true
    const auto x = reinterpret_cast<Floats>(bits & ~nan);
    Floats v = divide ? x / scale : x * inverse;
    v = v > limit ? limit : v;
    v = v < -limit ? -limit : v;
    const Ints level = __builtin_convertvector((v + shift) - shift, Ints) + zero_point;
    Ints q = level < q_min ? q_min : level;
    q = q > q_max ? q_max : q;
    const Floats value = scale * __builtin_convertvector(q - zero_point, Floats);
    const Ints fake = (reinterpret_cast<Ints>(value) & ~nan) | (canonical_nan & nan);
    const Ints keep = (q == level) & ~nan;
    Ints gradient;
    Ints divided;
    __builtin_memcpy(&gradient, a.gradients + i, sizeof gradient);
    __builtin_memcpy(&divided, a.divided + i, sizeof divided);
    gradient &= keep;
    divided &= keep;
    if (setting.wide) {
      const Shorts narrow = __builtin_convertvector(q, Shorts);
      __builtin_memcpy(a.quantize + 2 * i, &narrow, sizeof narrow);
    } else {
      const Chars narrow = __builtin_convertvector(q, Chars);
      __builtin_memcpy(a.quantize + i, &narrow, sizeof narrow);
    }
    __builtin_memcpy(a.fake_quantize + i, &fake, sizeof fake);
    __builtin_memcpy(a.quantize_backward + i, &divided, sizeof divided);
    __builtin_memcpy(a.fake_quantize_backward + i, &gradient, sizeof gradient);
  }
}

}  // namespace

void OCTAVO_ANSWER(const Setting& setting, const AnswerArrays& arrays) {
  if (setting.profile == Profile::onnx) {
    answer_loop<true>(setting, arrays);
  } else {
    answer_loop<false>(setting, arrays);
  }
}

}  // namespace octavo::exhaustive
