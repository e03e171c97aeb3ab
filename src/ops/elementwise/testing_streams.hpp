// What a test runs on: targets, and streams of every thread count.
#pragma once

#include <atomic>
#include <vector>

#include "ops/elementwise/testing_data.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {

static_assert(all_thread_counts.back() == 16, "as many as ManyThreads lets start");

/// One stream per thread count, all capped at one target; of sm80 the one of a device.
class Streams {
 public:
  explicit Streams(Target target) : target_(target) {
    if (target == Target::sm80) {
      if (auto stream = cuda_stream()) streams_.push_back(*std::move(stream));
      return;
    }
    for (const int threads : all_thread_counts)
      streams_.push_back(Stream::cpu({.threads = threads, .cap = target, .trace = &trace_}));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() = default;
  [[nodiscard]] auto begin() const { return streams_.begin(); }
  [[nodiscard]] auto end() const { return streams_.end(); }
  [[nodiscard]] Target target() const { return target_; }
  /// Which targets ran since the last call, as bits.
  std::uint32_t take_trace() const {
    if (target_ == Target::sm80) return 1U << static_cast<unsigned>(target_);  // (it has no other)
    return trace_.exchange(0);
  }

 private:
  [[maybe_unused]] ManyThreads many_;
  Target target_;
  mutable std::atomic<std::uint32_t> trace_{0};
  std::vector<Stream> streams_;
};

/// Targets of this machine that have elementwise kernels of their own: what tests run on.
[[nodiscard]] inline std::vector<Target> tested_targets() {
  std::vector<Target> targets;
  for (const Target target : machine_targets)
    if (own_kernels(target)) targets.push_back(target);
  return targets;
}
/// And sm80, where there is a device: for tests whose calls go through `run_there`.
[[nodiscard]] inline std::vector<Target> tested_places() {
  std::vector<Target> places = tested_targets();
  if (has_cuda()) places.push_back(Target::sm80);
  return places;
}

}  // namespace octavo::testing
