// The limit: what the memory system allows. The same loads and stores as an operation, with no
// arithmetic between them, spread statically over the same number of threads. Plain stores,
// non-temporal stores, and non-temporal stores with the loads prefetched compete; the fastest is
// the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "measuring/competitor.hpp"

namespace octavo::measuring {

// What an operation reads and writes. Buffers start on a cache line; the longer side is 1 to 16
// times the shorter one, a power of two. `second`, if there is one, is a second input (a gradient),
// and all three are equally long. Without an output the input, of at least 256 bytes, is only read.
struct Traffic {
  const std::byte* input = nullptr;
  const std::byte* second = nullptr;
  std::byte* output = nullptr;
  std::int64_t input_bytes = 0;
  std::int64_t output_bytes = 0;

  [[nodiscard]] std::int64_t bytes() const { return (second ? 2 : 1) * input_bytes + output_bytes; }
};

// Adds the competitors of kind `limit`. With several threads they run on one too, for that is
// faster on small tensors.
void add_limits(std::vector<Competitor>& field, const Traffic& traffic, int threads);

// Adds the competitors that only read: `bytes` from each of the `copies` in turn, plainly and with
// prefetches. Several copies that together exceed the caches are read from memory, one from where
// it fits.
void add_reads(std::vector<Competitor>& field, const std::vector<const std::byte*>& copies,
               std::int64_t bytes, int threads);

// The instruction set they use.
std::string limit_target();

}  // namespace octavo::measuring
