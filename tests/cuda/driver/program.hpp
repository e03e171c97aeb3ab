// A kernel as it is executed: a flat array of instructions, whose operands are rows of 32 lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// The files that execute are compiled once for each instruction set of the host that matters, in a
// namespace of its own.
#ifndef STANDIN_TARGET
#define STANDIN_TARGET generic
#endif

namespace standin {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// Addresses, of the host too, are numbers until something is read or written there.
template <class T>
[[gnu::always_inline]] inline T* at_address(u64 address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

constexpr u32 lane_count = 32;
constexpr u32 all_lanes = 0xffffffffu;

struct Warp;
struct Inst;
using Run = void (*)(Warp&, const Inst&);

// Where a variable or an address is. All but generic addresses and those of global memory are
// offsets within the space.
enum class Space : u8 { generic, global, shared, local, param, constant };

// A row is 32 lanes of 2, 4 or 8 bytes; a predicate has 4, all bits of which are the same. A
// reference to a row is its offset in bytes (of 64) in the registers of the warp or, with bit 0, in
// the constants of the kernel.
using Ref = u32;
constexpr Ref in_constants = 1;
constexpr Ref negated = 2;  // (guards only)

struct alignas(64) Inst {
  Run run = nullptr;
  Ref ref[5] = {};            // the first operands, in the order of the text
  Space space{};              // of a memory instruction
  u8 narrow = 0;              // bit n: the address that is operand n of addresses has 32 bits
  u16 bytes = 0;              // of cp.async
  const Ref* list = nullptr;  // all of them
  s64 imm = 0;                // offset of the first address, target of a branch, or an immediate
  s64 imm2 = 0;               // offset of the second address
  Ref guard = 0;              // (row 0 is no predicate: 0 is "none")
  u32 line = 0;
};

// Rows that every warp has before its registers.
enum Special : u32 {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  dynamic_smem_size,
  total_smem_size,
  special_rows
};
constexpr u32 word_row = lane_count * 4;
constexpr u32 register_base = special_rows * word_row;

struct Counters {
  u64 launches = 0;
  u64 blocks = 0;
  u64 warp_instructions = 0;
  u64 thread_instructions = 0;
  u64 mma = 0;                  // mma.sync of a warp
  u64 double_instructions = 0;  // f64 arithmetic, by warps
  u64 global_requests = 0;      // instructions of a warp that touch global memory
  u64 global_bytes_read = 0;    // bytes that lanes ask for
  u64 global_bytes_written = 0;
  u64 sectors = 0;             // of 32 bytes, distinct within a request
  u64 ideal_sectors = 0;       // as many as the distinct bytes would fill
  u64 touched_bytes_read = 0;  // distinct sectors of a launch, in bytes
  u64 touched_bytes_written = 0;
  u64 shared_requests = 0;
  u64 shared_conflicts = 0;  // further passes because of bank conflicts
  u64 atomics = 0;
};

struct Kernel {
  std::string name;
  std::vector<Inst> code;
  std::vector<std::unique_ptr<Ref[]>> lists;
  u8* constants = nullptr;
  std::unique_ptr<u8[]> constant_storage;
  u32 register_bytes = 0;  // special rows included
  u32 zeroed_from = 0;     // rows of written-marks, zeroed when a warp starts, up to register_bytes
  u32 registers = 0;       // of 32 bits a thread, about
  u32 param_bytes = 0;
  std::vector<u32> param_sizes;
  std::vector<u32> param_offsets;
  u32 shared_bytes = 0;  // static
  // Behind each array there are some bytes that nobody may touch: they do not count as the
  // kernel's.
  std::vector<std::pair<u32, u32>> gaps;
  u32 gap_bytes = 0;
  u32 local_bytes = 0;  // a thread
  u32 granule = 16;     // bytes of shared memory that are always accessed together
  u32 max_threads = 1024;
  int max_dynamic_shared = 48 * 1024;
  const u8* const_bank = nullptr;
  u32 const_bytes = 0;
  Counters counters;
};

// What a kernel did wrong. `code` is a CUresult.
struct Fault : std::runtime_error {
  Fault(int error, const std::string& what, int which = -1)
      : std::runtime_error(what),
        code(error),
        lane(which) {}
  // With the kernel, line, block and thread in the text.
  Fault at(const Warp& w) const;
  int code;
  int lane;
};

// Why a PTX text was refused.
struct Refused : std::runtime_error {
  Refused(u32 line, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + ": " + what) {}
};

// How an opcode is executed. `operands` has a letter for each operand: P, H, W, D are predicates
// and registers of 16, 32 and 64 bits, capital where written; { } encloses a vector, [ is an
// address, i an immediate.
struct Operation {
  Run run = nullptr;
  std::string operands;
};
using Operations = std::map<std::string, Operation, std::less<>>;

}  // namespace standin
