#include "measuring/team.hpp"

#include <map>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo::measuring {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Team& Team::of(int threads) {
  static std::map<int, std::unique_ptr<Team>> teams;
  auto& team = teams[threads];
  if (!team) team = std::make_unique<Team>(threads);
  return *team;
}

Team::Team(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

Team::~Team() {
  stop_ = true;
  ++round_;
  round_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& part) {
  if (threads_.empty()) return part(0);
  part_ = &part;
  working_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  part(0);
  while (working_.load(std::memory_order_acquire) != 0) pause();
}

void Team::work(int index) {
  constexpr int spins = 2000;  // a few tens of microseconds: the next round follows at once or late
  for (std::uint32_t seen = 0;; ++seen) {
    for (int i = 0; i < spins && round_.load(std::memory_order_acquire) == seen; ++i) pause();
    while (round_.load(std::memory_order_acquire) == seen) round_.wait(seen);
    if (stop_) return;
    (*part_)(index);
    working_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace octavo::measuring
