// Launches: the blocks of a grid one after the other, in an order that the seed chooses.
#include "tests/cuda/driver/launch.hpp"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/cuda/driver/count.hpp"
#include "tests/cuda/driver/engine.hpp"

namespace standin {
namespace {

// Rows want addresses of 64; what is allocated is kept for the next launch.
class Buffer {
 public:
  u8* of(u64 bytes) {
    if (bytes > size_) {
      std::free(bytes_);
      size_ = (bytes + 4095) / 4096 * 4096;
      bytes_ = static_cast<u8*>(std::aligned_alloc(4096, size_));
      if (bytes_ == nullptr) throw std::bad_alloc();
    }
    return bytes_;
  }

 private:
  u8* bytes_ = nullptr;
  u64 size_ = 0;
};

struct Storage {
  Buffer registers;
  Buffer local;
  Buffer shared;
  std::vector<Cell> cells;
  std::vector<Range> ranges;
  std::vector<Warp> warps;
  u32 generation = 1;
};

void fill(Warp& w, Special row, u32 value) {
  u32* r = reinterpret_cast<u32*>(w.base[0] + u64{row} * word_row);
  for (u32 l = 0; l < lane_count; ++l) r[l] = value;
}

// What stays the same in all blocks.
void prepare(Warp& w, u32 index, const Launch& launch, Block& block) {
  const Kernel& k = *launch.kernel;
  w.index = index;
  w.kernel = &k;
  w.base[1] = k.constants;
  w.initial = 0;
  auto row = [&](Special r) { return reinterpret_cast<u32*>(w.base[0] + u64{r} * word_row); };
  for (u32 l = 0; l < lane_count; ++l) {
    const u32 t = index * lane_count + l;
    if (t < block.threads) w.initial |= 1u << l;
    row(tid_x)[l] = t % launch.threads[0];
    row(tid_y)[l] = t / launch.threads[0] % launch.threads[1];
    row(tid_z)[l] = t / launch.threads[0] / launch.threads[1];
    row(laneid)[l] = l;
    row(lanemask_eq)[l] = 1u << l;
    row(lanemask_lt)[l] = (1u << l) - 1;
    row(lanemask_le)[l] = (1u << l) | ((1u << l) - 1);
    row(lanemask_gt)[l] = ~((1u << l) | ((1u << l) - 1));
    row(lanemask_ge)[l] = ~((1u << l) - 1);
  }
  for (u32 d = 0; d < 3; ++d) {
    fill(w, static_cast<Special>(ntid_x + d), launch.threads[d]);
    fill(w, static_cast<Special>(nctaid_x + d), launch.grid[d]);
  }
  fill(w, warpid, index);
  fill(w, nwarpid, (block.threads + 31) / 32);
  fill(w, dynamic_smem_size, launch.dynamic_shared);
  fill(w, total_smem_size, k.shared_bytes + launch.dynamic_shared);
}

void begin(Warp& w, const Block& block) {
  const Kernel& k = *block.kernel;
  w.pc = 0;
  w.limit = 0xffffffffu;
  w.mask = w.live = w.initial;
  w.state = State::ready;
  w.turns = 0;
  w.groups.clear();
  w.waiting.clear();
  w.committed.clear();
  w.uncommitted.clear();
  w.seen.assign(block.warps.size(), block.generation);
  std::memset(w.base[0] + k.zeroed_from, 0, k.register_bytes - k.zeroed_from);
  if (k.local_bytes != 0) std::memset(w.written, 0, u64{k.local_bytes} * lane_count);
  for (u32 d = 0; d < 3; ++d) fill(w, static_cast<Special>(ctaid_x + d), block.id[d]);
}

// No copy is on its way when a block begins.
void forget_copies(Block& block) {
  for (Warp& w : block.warps) {
    for (const auto& group : w.committed) {
      for (const AsyncCopy& c : group) shared_landed(w, c.shared, c.bytes);
    }
    for (const AsyncCopy& c : w.uncommitted) shared_landed(w, c.shared, c.bytes);
  }
}

// A host thread may have asked for subnormals to be flushed.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

void run_blocks(const Launch& launch, Block& block, Storage& storage, u64 seed) {
  const u64 count = u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  // With a seed: a stride that visits each block once, from somewhere.
  u64 at = 0;
  u64 stride = 1;
  if (seed != 0) {
    at = seed % count;
    stride = (seed / 7 | 1) % count;
    while (stride == 0 || std::gcd(stride, count) != 1) ++stride;
  }
  for (u64 n = 0; n < count; ++n, at = (at + stride) % count) {
    block.id[0] = static_cast<u32>(at % launch.grid[0]);
    block.id[1] = static_cast<u32>(at / launch.grid[0] % launch.grid[1]);
    block.id[2] = static_cast<u32>(at / launch.grid[0] / launch.grid[1]);
    block.base_stamp = ++block.generation;
    if (block.generation > 0x80000000u) {
      storage.cells.assign(storage.cells.size(), Cell{});
      block.base_stamp = block.generation = 1;
    }
    for (Barrier& b : block.barriers) b = Barrier{};
    for (Warp& w : block.warps) begin(w, block);
    engine().run_block(block, seed == 0 ? 0 : seed + n);
    forget_copies(block);
  }
}

}  // namespace

void execute(const Launch& launch, Memory& memory, u64 seed, bool counting) {
  static Storage storage;
  Kernel& k = *launch.kernel;
  Block block;
  block.kernel = &k;
  block.counters = &k.counters;
  block.counting = counting;
  block.memory = &memory;
  block.device = launch.device;
  block.threads = launch.threads[0] * launch.threads[1] * launch.threads[2];
  block.shared_bytes = k.shared_bytes + k.gap_bytes + launch.dynamic_shared;
  block.shared = storage.shared.of(block.shared_bytes + 64);
  block.granule_shift = static_cast<u32>(__builtin_ctz(k.granule));
  const u64 cells = (block.shared_bytes >> block.granule_shift) + 1;
  if (storage.cells.size() < cells) storage.cells.resize(cells);
  block.cells = &storage.cells;
  const auto set_gaps = [&](u16 pending) {
    for (const auto& [first, end] : k.gaps) {
      const u32 below = (1u << block.granule_shift) - 1;
      for (u32 c = (first + below) >> block.granule_shift; c < end >> block.granule_shift; ++c) {
        if (c < cells) storage.cells[c].pending = pending;
      }
    }
  };
  set_gaps(is_gap);
  block.params = launch.params.data();
  storage.ranges.assign(k.code.size(), Range{});
  block.ranges = &storage.ranges;
  block.generation = storage.generation;

  const u32 warps = (block.threads + 31) / 32;
  const u64 registers = (u64{k.register_bytes} + 63) / 64 * 64;
  const u64 local = u64{k.local_bytes} * lane_count;
  u8* register_bytes = storage.registers.of(registers * warps);
  u8* local_bytes = storage.local.of(2 * local * warps + 64);
  block.warps.swap(storage.warps);
  block.warps.resize(warps);
  for (u32 i = 0; i < warps; ++i) {
    Warp& w = block.warps[i];
    w.block = &block;
    w.base[0] = register_bytes + registers * i;
    w.local = local_bytes + 2 * local * i;
    w.written = w.local + local;
    w.local_bytes = k.local_bytes;
    w.warp_instructions = w.thread_instructions = 0;
    prepare(w, i, launch, block);
  }
  const DefaultFloats floats;
  if (counting) begin_counting();
  const auto finish = [&] {
    for (const Warp& w : block.warps) {
      k.counters.warp_instructions += w.warp_instructions;
      k.counters.thread_instructions += w.thread_instructions;
    }
    if (counting) end_counting(k.counters);
    set_gaps(0);
    storage.generation = block.generation + 1;
    storage.warps.swap(block.warps);
  };
  try {
    run_blocks(launch, block, storage, seed);
  } catch (...) {
    forget_copies(block);
    finish();
    throw;
  }
  finish();
  ++k.counters.launches;
  k.counters.blocks += u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
}

void fault(int code, const std::string& what, int lane) { throw Fault(code, what, lane); }

Fault Fault::at(const Warp& w) const {
  const Block& b = *w.block;
  std::string text = "kernel " + w.kernel->name;
  if (w.pc > 0 && w.pc <= w.kernel->code.size())
    text += ", line " + std::to_string(w.kernel->code[w.pc - 1].line);
  const auto triple = [](u32 x, u32 y, u32 z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  text += ", block " + triple(b.id[0], b.id[1], b.id[2]);
  const auto value = [&](Special r, int l) {
    return reinterpret_cast<const u32*>(w.base[0] + u64{r} * word_row)[l];
  };
  if (lane >= 0)
    text += ", thread " + triple(value(tid_x, lane), value(tid_y, lane), value(tid_z, lane));
  else
    text += ", warp " + std::to_string(w.index);
  return Fault(code, text + ": " + what(), lane);
}

}  // namespace standin
