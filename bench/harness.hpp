// How everything here is measured. In one benchmark case all competitors (ours, the limit, the
// peers) work on the same buffers in one process and take turns; of each, the fastest turn counts.
// Machines have neighbours, so only ratios taken within one case mean anything.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "measuring/competitor.hpp"
#include "measuring/memory.hpp"
#include "octavo/dtype.hpp"

namespace octavo::bench {

using measuring::Competitor;
using measuring::Kind;

struct Options {
  std::vector<std::string> words;  // a case runs if each of them is a part of its name
  bool quick = false;
  bool list = false;
};

// Lets all take turns in random order, `field[0]` being ours, for about `seconds` (an eighth of it
// if quick). One that is more than three times slower than ours takes fewer turns.
void race(std::vector<Competitor>& field, double seconds, bool quick, bool threaded);

// Sets the time of the case and its counters: GB/s, G elements/s, `limit` (the limit's time over
// ours, at most about 1), and for each peer its time over ours (above 1: ours is faster).
void report(benchmark::State& state, const std::vector<Competitor>& field, std::int64_t elements,
            std::int64_t bytes);

// Memory that lies on huge pages where the system allows it, starts on one, and is kept from case
// to case: all of it has been touched.
class Buffer {
 public:
  // At least so many bytes. What they held is lost if they are more than before.
  std::byte* reserve(std::int64_t bytes);

 private:
  measuring::LargePages<std::byte> memory_;
};

// Random elements, none of them zero: floats in +-7, integers over the whole range of the type.
void fill_random(std::byte* data, DType dtype, std::int64_t elements, std::uint32_t seed);

// In how many elements `a` and `b` differ as numbers: +0 equals -0.
std::int64_t differences(const void* a, const void* b, DType dtype, std::int64_t elements);

// Adds a case, unless the words of the command line or --quick leave it out. `name` is a path:
// "elementwise/quantize/f32/s8/per_tensor/torch/4K/1t".
void add_case(const Options& options, const std::string& name,
              std::function<void(benchmark::State&)> body);

// What each file of benchmarks offers; main calls them.
void add_elementwise(const Options& options);
void add_dynamic_range(const Options& options);
void add_observer(const Options& options);
void add_linear(const Options& options);
void add_linear_group(const Options& options);

}  // namespace octavo::bench
