// Choosing a target at run time.
#pragma once

#include <array>

#include "octavo/result.hpp"
#include "octavo/stream.hpp"

namespace octavo::detail {

// Best first, the reference last.
inline constexpr std::array target_order = {
#if defined(__x86_64__)
    Target::amx,   Target::avx512vnni, Target::avx512, Target::avxvnni, Target::avx2,
#else
    Target::sve, Target::i8mm, Target::dotprod, Target::neon,
#endif
    Target::scalar};

// What `stream`, `preference` and OCTAVO_TARGET allow together, as a set of bits 1 << int(target)
// that this CPU has; or why one of them cannot be honoured (threads, backend, target).
Result<std::uint32_t> allowed_targets(const Stream& stream, const PlanPreference& preference);

// Whether the system lets this process run an available target. Tiles must be asked for, once, and
// that grows the state saved by signals: only a plan that would use them does it.
bool may_run(Target target);

// For tests alone, before the library first looks for targets: these count as found, and tiles are
// asked for elsewhere. Who pretends must carry out their instructions.
struct Pretence {
  std::uint32_t targets = 0;  // a set as above
  bool (*ask_for_tiles)() = nullptr;
};
void pretend(const Pretence& made_up);

// The best of those that `has` kernels.
template <class F>
Target best_target(std::uint32_t allowed, F has) {
  for (const Target target : target_order)
    if ((allowed >> static_cast<unsigned>(target) & 1U) != 0 && has(target)) return target;
  return Target::scalar;
}

}  // namespace octavo::detail
