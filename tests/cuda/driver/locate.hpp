// Where the bytes of a memory instruction are, checked.
#pragma once

#include "tests/cuda/driver/lanes.hpp"

namespace standin::STANDIN_TARGET {

enum class Access : u8 { read, write, atomic };

struct Located {
  alignas(64) u64 host[lane_count];  // addresses for the driver; of lanes that are not active: any
  bool contiguous = false;  // all lanes are active, and each begins where the one before ends
  bool uniform = false;     // all lanes are active, and at the same address
};

// `operand` is the row of addresses, which is the instruction's address number `which` (0 or 1).
void locate(Warp& w, const Inst& i, Ref operand, u32 which, u32 bytes, Access access, Located& at);

// Offsets in shared memory, checked for bounds and alignment only.
void locate_shared(Warp& w, const Inst& i, Ref operand, u32 which, u32 bytes, u64* offsets);

}  // namespace standin::STANDIN_TARGET
