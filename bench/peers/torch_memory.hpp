// Memory for PyTorch, which allocates its output in every call. Freed blocks are kept and handed
// out again, and large ones lie on huge pages: it pays for no page faults and is compared at its
// best.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

#include "core/large_pages.hpp"

namespace octavo::bench {

class KeptMemory : public c10::Allocator {
 public:
  // Never destroyed: tensors may outlive everything else.
  static KeptMemory& instance() {
    static auto* const memory = new KeptMemory;
    return *memory;
  }

  // What is freed is the data itself: oneDNN allocates through raw_allocate, which asks for that.
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, free, c10::DeviceType::CPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (const auto kept = kept_.find(bytes); kept != kept_.end()) {
      void* data = kept->second;
      kept_.erase(kept);
      return data;
    }
    void* data = detail::allocate_in_large_pages(bytes);
    if (!data) throw std::bad_alloc();
    sizes_.emplace(data, bytes);
    return data;
  }

  static void free(void* data) {
    if (!data) return;
    auto& memory = instance();
    const std::lock_guard lock(memory.mutex_);
    memory.kept_.emplace(memory.sizes_.at(data), data);
  }

  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> sizes_;  // of all blocks
  std::multimap<std::size_t, void*> kept_;        // by size
};

}  // namespace octavo::bench
