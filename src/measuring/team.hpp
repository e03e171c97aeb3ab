// Threads for the limit: a static split with the cheapest fork and join there is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace octavo::measuring {

class Team {
 public:
  // Beyond so many bytes one thread is never the faster one.
  static constexpr std::int64_t worth_it = std::int64_t{8} << 20;

  // One team per size, kept until the program ends.
  static Team& of(int threads);

  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls part(0) .. part(threads - 1), each on its own thread, the caller's being the first.
  void run(const std::function<void(int)>& part);

 private:
  void work(int index);

  std::atomic<std::uint32_t> round_{0};
  std::atomic<int> working_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* part_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace octavo::measuring
