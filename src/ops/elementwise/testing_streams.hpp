// What a test runs on: targets, and streams of every thread count.
#pragma once

#include <atomic>
#include <vector>

#include "ops/elementwise/testing_data.hpp"
#include "testing/lent.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {

static_assert(all_thread_counts.back() == 16, "as many as ManyThreads lets start");

/// One stream per thread count, all capped at one target; of a CUDA device, one.
class Streams {
 public:
  explicit Streams(Target target) : target_(target) {
    if (target == Target::sm80) {
      streams_.push_back(*Stream::cuda());
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
  /// Which targets ran since the last call, as bits. (A CUDA device has one.)
  std::uint32_t take_trace() const {
    const std::uint32_t trace = trace_.exchange(0);
    return target_ == Target::sm80 ? 1U << static_cast<unsigned>(target_) : trace;
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

/// And the CUDA device, if there is one.
[[nodiscard]] inline std::vector<Target> tested_places() {
  std::vector<Target> targets = tested_targets();
  if (has_cuda()) targets.push_back(Target::sm80);
  return targets;
}

}  // namespace octavo::testing
