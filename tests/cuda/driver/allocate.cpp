// Rows for virtual registers. Two registers that are never alive together share a row, so that the
// registers of a warp stay in the caches of the host. A lane that is not active keeps what it has
// in a row, so that what is alive is a matter of each thread's own path.
#include <algorithm>
#include <array>

#include "tests/cuda/driver/flat.hpp"

namespace standin {
namespace {

using Bits = std::vector<u64>;
void set(Bits& bits, int i) {
  bits[static_cast<u32>(i) / 64] |= u64{1} << (static_cast<u32>(i) % 64);
}
void clear(Bits& bits, int i) {
  bits[static_cast<u32>(i) / 64] &= ~(u64{1} << (static_cast<u32>(i) % 64));
}
bool has(const Bits& bits, int i) {
  return (bits[static_cast<u32>(i) / 64] >> (static_cast<u32>(i) % 64) & 1) != 0;
}

struct Basic {
  std::size_t begin, end;
  std::vector<std::size_t> next;
  std::vector<std::size_t> before;
  Bits live_in, live_out;
  Bits written_in, written_out;  // on every path
};

std::vector<Basic> blocks_of(const FlatKernel& kernel) {
  const std::size_t n = kernel.code.size();
  std::vector<char> begins(n + 1, 0);
  begins[0] = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const Flat& f = kernel.code[i];
    if (!f.jumps) continue;
    begins[i + 1] = 1;
    if (!f.leaves) begins[static_cast<std::size_t>(f.imm)] = 1;
  }
  std::vector<Basic> blocks;
  std::vector<std::size_t> at(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (begins[i] != 0) blocks.push_back({i, i, {}, {}, {}, {}, {}, {}});
    blocks.back().end = i + 1;
    at[i] = blocks.size() - 1;
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Flat& last = kernel.code[blocks[b].end - 1];
    if (last.jumps && !last.leaves)
      blocks[b].next.push_back(at[static_cast<std::size_t>(last.imm)]);
    if ((!last.jumps || last.guard >= 0) && b + 1 < blocks.size()) blocks[b].next.push_back(b + 1);
    for (const std::size_t k : blocks[b].next) blocks[k].before.push_back(b);
  }
  return blocks;
}

template <class F>
void for_uses(const Flat& f, F use) {
  for (const Slot& s : f.slots) {
    if (s.reg >= 0 && !s.written) use(s.reg);
  }
  if (f.guard >= 0) use(f.guard);
}

void find_liveness(const FlatKernel& kernel, std::vector<Basic>& blocks, std::size_t words) {
  for (Basic& b : blocks) b.live_in = b.live_out = Bits(words, 0);
  for (bool changes = true; changes;) {
    changes = false;
    for (std::size_t k = blocks.size(); k-- > 0;) {
      Basic& b = blocks[k];
      for (const std::size_t n : b.next) {
        for (std::size_t i = 0; i < words; ++i) b.live_out[i] |= blocks[n].live_in[i];
      }
      Bits live = b.live_out;
      for (std::size_t i = b.end; i-- > b.begin;) {
        const Flat& f = kernel.code[i];
        for (const Slot& s : f.slots) {
          if (s.reg >= 0 && s.written && (f.guard < 0 || f.jumps)) clear(live, s.reg);
        }
        for_uses(f, [&](int r) { set(live, r); });
      }
      if (live != b.live_in) {
        b.live_in = std::move(live);
        changes = true;
      }
    }
  }
}

void find_doubtful(const FlatKernel& kernel, std::vector<Basic>& blocks, std::size_t words,
                   Allocation& result) {
  for (Basic& b : blocks) b.written_in = b.written_out = Bits(words, ~u64{0});
  blocks[0].written_in.assign(words, 0);
  const auto write = [&](Bits& written, const Flat& f) {
    for (const Slot& s : f.slots) {
      if (s.reg >= 0 && s.written && f.guard < 0) set(written, s.reg);
    }
  };
  for (bool changes = true; changes;) {
    changes = false;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      Basic& b = blocks[k];
      for (const std::size_t p : b.before) {
        for (std::size_t i = 0; i < words; ++i) b.written_in[i] &= blocks[p].written_out[i];
      }
      Bits written = b.written_in;
      for (std::size_t i = b.begin; i < b.end; ++i) write(written, kernel.code[i]);
      if (written != b.written_out) {
        b.written_out = std::move(written);
        changes = true;
      }
    }
  }
  for (const Basic& b : blocks) {
    Bits written = b.written_in;
    for (std::size_t i = b.begin; i < b.end; ++i) {
      for_uses(kernel.code[i], [&](int r) {
        if (has(written, r)) return;
        result.doubtful[static_cast<std::size_t>(r)] = true;
        result.checked[i].push_back(r);
      });
      write(written, kernel.code[i]);
    }
  }
}

struct Interval {
  int reg;
  std::size_t first, last;
};

}  // namespace

Allocation allocate(const FlatKernel& kernel) {
  const std::size_t count = kernel.registers.size();
  const std::size_t words = (count + 63) / 64;
  Allocation result;
  result.row.assign(count, 0);
  result.doubtful.assign(count, false);
  result.checked.resize(kernel.code.size());
  std::vector<Basic> blocks = blocks_of(kernel);
  find_liveness(kernel, blocks, words);
  find_doubtful(kernel, blocks, words, result);

  std::vector<Interval> intervals(count);
  for (std::size_t r = 0; r < count; ++r)
    intervals[r] = {static_cast<int>(r), kernel.code.size(), 0};
  const auto touch = [&](int reg, std::size_t at) {
    Interval& i = intervals[static_cast<std::size_t>(reg)];
    i.first = std::min(i.first, at);
    i.last = std::max(i.last, at);
  };
  for (const Basic& b : blocks) {
    for (std::size_t r = 0; r < count; ++r) {
      if (has(b.live_in, static_cast<int>(r))) touch(static_cast<int>(r), b.begin);
      if (has(b.live_out, static_cast<int>(r))) touch(static_cast<int>(r), b.end - 1);
    }
    for (std::size_t i = b.begin; i < b.end; ++i) {
      for (const Slot& s : kernel.code[i].slots) {
        if (s.reg >= 0) touch(s.reg, i);
      }
      if (kernel.code[i].guard >= 0) touch(kernel.code[i].guard, i);
    }
  }
  std::erase_if(intervals, [](const Interval& i) { return i.first > i.last; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.first < b.first; });

  // Free rows of 64, 128 and 256 bytes; what is in use, by when it ends.
  std::array<std::vector<Ref>, 3> free;
  std::vector<Interval> used;
  const auto later = [](const Interval& a, const Interval& b) { return a.last > b.last; };
  u32 top = register_base;
  u32 now = 0;
  for (const Interval& i : intervals) {
    while (!used.empty() && used.front().last < i.first) {
      const int reg = used.front().reg;
      const u32 bytes = row_bytes(kernel.registers[static_cast<std::size_t>(reg)]);
      free[bytes / 128].push_back(result.row[static_cast<std::size_t>(reg)]);
      now -= bytes / 128;
      std::pop_heap(used.begin(), used.end(), later);
      used.pop_back();
    }
    const u32 bytes = row_bytes(kernel.registers[static_cast<std::size_t>(i.reg)]);
    auto& rows = free[bytes / 128];
    Ref& row = result.row[static_cast<std::size_t>(i.reg)];
    if (rows.empty()) {
      row = top;
      top += bytes;
    } else {
      row = rows.back();
      rows.pop_back();
    }
    now += bytes / 128;
    result.words = std::max(result.words, now);
    used.push_back(i);
    std::push_heap(used.begin(), used.end(), later);
  }
  result.bytes = top;
  return result;
}

}  // namespace standin
