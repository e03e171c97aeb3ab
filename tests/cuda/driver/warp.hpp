// What executes: warps of a block, and what they share.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/driver/program.hpp"

namespace standin {

class Memory;

// Lanes that stand at the same instruction.
struct Group {
  u32 pc;
  u32 mask;
};

enum class State : u8 { ready, waits, done };

// One 16-byte part or less of a cp.async that has not landed.
struct AsyncCopy {
  u32 shared;
  u32 bytes;
  u8 data[16];
};

// The bytes of shared memory that are always accessed together (Kernel::granule), and who did so.
// Stamps are generations of the block: each completed barrier begins a new one.
struct Cell {
  u32 write_stamp = 0;
  u32 read_stamp = 0;
  u32 readers = 0;  // bits of warps
  u8 writer = 0;
  u8 atomic = 0;    // written by atomic operations only
  u16 pending = 0;  // a copy that has not landed; or is_gap
};
constexpr u16 is_gap = 2;  // between arrays

struct Barrier {
  u32 expected = 0;  // threads
  u32 arrived = 0;
  u32 warps = 0;    // arrived, as bits
  u32 waiting = 0;  // of these, who wait
  u32 count = 0;    // lanes whose predicate was true
  u32 line = 0;
};

// Memory that the device may touch.
struct Range {
  u64 begin = 0;
  u64 end = 0;
  u8* bytes = nullptr;  // what stands at `begin`, as the driver sees it
};

struct Block;

struct Warp {
  u8* base[2] = {};  // registers, constants
  u32 pc = 0;
  u32 limit = 0xffffffffu;  // the least pc of the other groups
  u32 mask = 0;             // lanes that execute
  u32 active = 0;           // how many
  u32 live = 0;             // lanes that have not exited
  u32 initial = 0;          // lanes that there are
  State state = State::ready;
  u32 index = 0;
  s64 budget = 0;  // backward branches before another warp has its turn
  u64 turns = 0;
  std::vector<Group> groups;   // other lanes, by descending pc
  std::vector<Group> waiting;  // lanes that wait at a `.sync` instruction for others
  Block* block = nullptr;
  const Kernel* kernel = nullptr;
  u8* local = nullptr;    // lane after lane
  u8* written = nullptr;  // for each byte of `local`: is it written?
  u32 local_bytes = 0;    // of a lane
  bool ends_turn = false;
  u64 warp_instructions = 0;
  u64 thread_instructions = 0;
  // What waits of cp.async: the copies of each committed group, oldest first, and the uncommitted.
  std::vector<std::vector<AsyncCopy>> committed;
  std::vector<AsyncCopy> uncommitted;
  u32 barrier = 0;   // that it waits at
  u8 reduction = 0;  // of bar.red, and the row that it writes
  Ref barrier_result = 0;
  // The generations of other warps before which all is known to have happened (see shared.cpp).
  std::vector<u32> seen;
  alignas(64) u32 lanes[lane_count] = {};    // the mask as words of all or no bits
  alignas(64) u64 address[lane_count] = {};  // of the memory instruction that is executed
};

struct Block {
  const Kernel* kernel = nullptr;
  Counters* counters = nullptr;
  bool counting = false;
  Memory* memory = nullptr;
  int device = 0;
  u32 id[3] = {};
  u32 threads = 0;
  u8* shared = nullptr;
  u32 shared_bytes = 0;
  std::vector<Cell>* cells = nullptr;
  u32 granule_shift = 4;
  u32 base_stamp = 0;  // stamps below it are of earlier blocks
  u32 generation = 1;
  const u8* params = nullptr;
  std::vector<Range>* ranges = nullptr;  // what each instruction touched last
  std::vector<Warp> warps;
  Barrier barriers[16];
};

// The windows in which shared, local and constant memory stand among generic addresses.
constexpr u64 window_bytes = u64{1} << 24;
struct Windows {
  u64 shared = 0;
  u64 local = 0;
  u64 constant = 0;
};
extern Windows windows;

// The allocation in which [address, address + bytes) is; a fault if there is none.
Range range_of(const Block& block, u64 address, u32 bytes, int lane);

// Checks of shared memory, shared.cpp. `offset` is aligned to and within shared memory.
void shared_read(Warp& w, u32 offset, u32 bytes, int lane);
void shared_write(Warp& w, u32 offset, u32 bytes, int lane, bool atomic = false);
void shared_pending(Warp& w, u32 offset, u32 bytes, int lane);
void shared_landed(Warp& w, u32 offset, u32 bytes);

// barrier.cpp: a warp comes to a barrier. `kind` is what it is given then: 0 nothing, else how many
// lanes of the block, whether all, or whether any had a true predicate (`count` of this warp's
// have), in the row `result`.
enum class Reduction : u8 { none, count, all, any };
void arrive(Warp& w, u32 id, u32 threads, bool waits, Reduction kind, Ref result, u32 count,
            u32 line);
// No warp of the block can go on: says why.
[[noreturn]] void deadlock(Block& block);

// Counting of memory requests, count.cpp.
void count_global(Block& block, const u64* address, u32 mask, u32 bytes, bool writes);
void count_shared(Block& block, const u64* offset, u32 mask, u32 bytes);

[[noreturn]] void fault(int code, const std::string& what, int lane = -1);

// CUresults of faults.
constexpr int illegal_address = 700;
constexpr int misaligned_address = 716;
constexpr int illegal_instruction = 715;
constexpr int launch_failed = 719;
constexpr int device_assert = 710;

}  // namespace standin
