// Choosing a target at run time.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/result.hpp"
#include "octavo/stream.hpp"

namespace octavo::detail {

// Where a plan may run.
struct Allowed {
  Backend backend = Backend::cpu;
  std::uint32_t targets = 1;  // of the CPU: a set of bits 1 << int(target) that it has
  int threads = 1;            // of the stream
  int device = 0;             // likewise, of several that a backend has

  [[nodiscard]] bool has(Backend where, Target target) const {
    return where == backend &&
           (backend != Backend::cpu || (targets >> static_cast<unsigned>(target) & 1U) != 0);
  }
};

// What `stream`, `preference` and OCTAVO_TARGET allow together; or why one of them cannot be
// honoured (threads, backend, target).
Result<Allowed> allowed_places(const Stream& stream, const PlanPreference& preference);

// Whether the system lets this process run an available target. Tiles must be asked for, once, and
// that grows the state saved by signals: only a plan that would use them does it.
bool may_run(Target target);

// Whether this CPU has vector units for logic and conversions beside those that multiply, as AMD's
// have; Intel's that multiply two vectors of 512 bits in a cycle do all else by the same units.
// Kernels may differ by it, never a bit.
bool has_logic_beside_products();

// For tests alone, before the library first looks for targets: these count as found, and tiles are
// asked for elsewhere. Who pretends must carry out their instructions.
struct Pretence {
  std::uint32_t targets = 0;  // a set as above
  bool (*ask_for_tiles)() = nullptr;
};
void pretend(const Pretence& made_up);
/// For tests alone: what has_logic_beside_products says of plans that are selected from now on.
void pretend_logic_beside_products(std::optional<bool> answer);

}  // namespace octavo::detail
