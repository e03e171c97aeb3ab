// For tests with more threads than the machine has cores.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "core/parallel.hpp"

#ifndef OCTAVO_STD_THREADS
#include <tbb/global_control.h>
#endif

namespace octavo::testing {

/// Lets oneTBB really start 16 threads on a machine with fewer cores.
class ManyThreads {
#ifndef OCTAVO_STD_THREADS
  tbb::global_control control_{tbb::global_control::max_allowed_parallelism, 16};
#endif
};

/// Calls `fn` on so many threads of a stream at once: none begins before all are there (or 20 s
/// have passed). Returns how many threads there really were.
template <class F>
std::size_t on_threads_at_once(const Stream& stream, int threads, const F& fn) {
  std::mutex mutex;
  std::condition_variable all_are_there;
  std::set<std::thread::id> there;
  detail::parallel(stream, threads, [&](int) {
    {
      std::unique_lock lock(mutex);
      there.insert(std::this_thread::get_id());
      all_are_there.notify_all();
      all_are_there.wait_for(lock, std::chrono::seconds(20),
                             [&] { return there.size() == static_cast<std::size_t>(threads); });
    }
    fn();
  });
  return there.size();
}

}  // namespace octavo::testing
