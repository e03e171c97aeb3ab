// Who reads and writes which bytes of shared memory: races between warps, bytes that nobody has
// written, copies that have not landed.
#include <bit>

#include "tests/cuda/driver/warp.hpp"

namespace standin {
namespace {

struct Cells {
  Cell* first;
  u32 count;
};

Cells cells_of(const Warp& w, u32 offset, u32 bytes) {
  const u32 shift = w.block->granule_shift;
  return {w.block->cells->data() + (offset >> shift), bytes >> shift == 0 ? 1 : bytes >> shift};
}

std::string where(u32 offset, u32 bytes) {
  return " (" + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
         " of shared memory)";
}

[[noreturn, gnu::noinline]] void race(const char* what, u32 other, u32 offset, u32 bytes,
                                      int lane) {
  fault(launch_failed,
        std::string("a race: ") + what + " warp " + std::to_string(other) +
            " without a barrier between" + where(offset, bytes),
        lane);
}

// A warp other than w that read the cell after what w knows of it; or -1.
int unordered_reader(const Warp& w, const Cell& cell) {
  if (cell.read_stamp < w.block->base_stamp) return -1;
  for (u32 left = cell.readers & ~(1u << w.index); left != 0; left &= left - 1) {
    const u32 v = static_cast<u32>(std::countr_zero(left));
    if (cell.read_stamp >= w.seen[v]) return static_cast<int>(v);
  }
  return -1;
}

[[noreturn, gnu::noinline]] void busy(const Cell& cell, bool reads, u32 offset, u32 bytes,
                                      int lane) {
  if (cell.pending == is_gap) {
    fault(illegal_address, "access of shared memory between two arrays" + where(offset, bytes),
          lane);
  }
  fault(launch_failed,
        std::string(reads ? "shared memory is read before the cp.async into it was waited for"
                          : "shared memory is written while a cp.async into it has not landed") +
            where(offset, bytes),
        lane);
}

bool unordered_writer(const Warp& w, const Cell& cell) {
  return cell.write_stamp >= w.block->base_stamp && cell.writer != w.index &&
         cell.write_stamp >= w.seen[cell.writer];
}

}  // namespace

void shared_read(Warp& w, u32 offset, u32 bytes, int lane) {
  const Block& block = *w.block;
  const u32 bit = 1u << w.index;
  const Cells cells = cells_of(w, offset, bytes);
  for (Cell* c = cells.first; c != cells.first + cells.count; ++c) {
    if (c->pending != 0) busy(*c, true, offset, bytes, lane);
    if (c->write_stamp < block.base_stamp) {
      fault(launch_failed, "shared memory is read before it is written" + where(offset, bytes),
            lane);
    }
    if (unordered_writer(w, *c) || (c->atomic == 2 && c->write_stamp == block.generation)) {
      race("this was written by", c->writer, offset, bytes, lane);
    }
    if (c->read_stamp == block.generation) {
      c->readers |= bit;
    } else {
      c->readers = unordered_reader(w, *c) >= 0 ? c->readers | bit : bit;
      c->read_stamp = block.generation;
    }
  }
}

void shared_write(Warp& w, u32 offset, u32 bytes, int lane, bool atomic) {
  const Block& block = *w.block;
  const Cells cells = cells_of(w, offset, bytes);
  for (Cell* c = cells.first; c != cells.first + cells.count; ++c) {
    if (c->pending != 0) busy(*c, false, offset, bytes, lane);
    if (atomic && c->write_stamp < block.base_stamp) {
      fault(launch_failed, "shared memory is read before it is written" + where(offset, bytes),
            lane);
    }
    const bool other = unordered_writer(w, *c);
    if (other && !(atomic && c->atomic != 0))
      race("this was written by", c->writer, offset, bytes, lane);
    const int reader = unordered_reader(w, *c);
    if (reader >= 0) race("this was read by", static_cast<u32>(reader), offset, bytes, lane);
    const bool several = other || (c->atomic == 2 && c->write_stamp == block.generation);
    c->atomic = !atomic ? 0 : several ? 2 : 1;
    c->writer = static_cast<u8>(w.index);
    c->write_stamp = block.generation;
  }
}

void shared_pending(Warp& w, u32 offset, u32 bytes, int lane) {
  // The bytes may arrive from now on: as a write, it must not race.
  const Cells cells = cells_of(w, offset, bytes);
  for (Cell* c = cells.first; c != cells.first + cells.count; ++c) {
    const int reader = unordered_reader(w, *c);
    if (reader >= 0) race("this was read by", static_cast<u32>(reader), offset, bytes, lane);
    if (unordered_writer(w, *c)) race("this was written by", c->writer, offset, bytes, lane);
    if (c->pending != 0) busy(*c, false, offset, bytes, lane);
    c->pending = 1;
  }
}

void shared_landed(Warp& w, u32 offset, u32 bytes) {
  const Cells cells = cells_of(w, offset, bytes);
  for (Cell* c = cells.first; c != cells.first + cells.count; ++c) {
    c->pending = 0;
    c->atomic = 0;
    c->writer = static_cast<u8>(w.index);
    c->write_stamp = w.block->generation;
  }
}

}  // namespace standin
