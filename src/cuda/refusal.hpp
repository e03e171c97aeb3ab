// Refusals of values that only the device can see. Of host and device.
//
// A run whose scales or zero points are arrays has them checked in front of it on the stream. What
// is wrong with them is written down in the stream's `latest` record, and the run's kernels, who
// read it first, then write nothing. Before the next check, and when the host synchronizes,
// `latest` becomes `first`, unless there is one. So one record for the run at hand and one for the
// host is all it takes, whatever is queued, also where a graph replays it.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo::cuda {

inline constexpr std::uint64_t nothing_wrong = ~std::uint64_t{0};

struct Refusal {
  std::uint64_t key;     // nothing_wrong, or the number of the check in its run << 48 | index
  std::uint64_t bits;    // of the value, as it is stored
  std::uint64_t word;    // a function of the host's that makes an Error of it: WordRefusal
  std::uint64_t detail;  // what that wants to know besides

  [[nodiscard]] constexpr std::int64_t index() const {
    return static_cast<std::int64_t>(key & ((std::uint64_t{1} << 48U) - 1));
  }
};

/// In device memory, one for each stream. All ones: nothing was ever wrong.
struct RefusalState {
  Refusal first;   // since the host asked
  Refusal latest;  // of the last run that was checked
  std::uint64_t blocks_done;
};

/// What a value must be.
enum class Rule : std::uint8_t {
  divisor,  ///< numerics::is_divisor, in the compute type
  finite,   ///< numerics::is_finite, in the compute type
  range,    ///< of integers: low to high
};

/// One array of values.
struct Check {
  const void* values = nullptr;
  std::int64_t count = 0;
  DType type = DType::f32;     // of the values: floats, or s32 with Rule::range
  DType compute = DType::f32;  // f32 or f64, with the other rules
  Rule rule = Rule::finite;
  std::int32_t low = 0;
  std::int32_t high = 0;
  void* converted =
      nullptr;  // where the values go in the compute type, refused or not; null: nowhere
  std::uint64_t word = 0;
  std::uint64_t detail = 0;
};

inline constexpr int max_checks = 6;
inline constexpr unsigned check_threads = 512;

struct CheckArgs {
  Check checks[max_checks];  // in the CPU's order
  int count = 0;
  RefusalState* state = nullptr;
};

struct FoldArgs {
  RefusalState* state = nullptr;
};

/// Of a refusal that the host knows of already: it is written down in its turn.
struct RefuseArgs {
  Refusal refusal;
  RefusalState* state = nullptr;
};

}  // namespace octavo::cuda
