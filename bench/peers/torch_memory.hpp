// Memory for PyTorch, which allocates its output in every call. Freed blocks are kept and handed
// out again, and large ones lie on huge pages: it pays for no page faults and is compared at its
// best.
#pragma once

#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

namespace octavo::bench {

class KeptMemory : public c10::Allocator {
 public:
  // Never destroyed: tensors may outlive everything else.
  static KeptMemory& instance() {
    static auto* const memory = new KeptMemory;
    return *memory;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, free, c10::DeviceType::CPU};
    auto* block = take(bytes);
    return {block->data, block, free, c10::DeviceType::CPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };

  Block* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (const auto kept = kept_.find(bytes); kept != kept_.end()) {
      auto* block = kept->second;
      kept_.erase(kept);
      return block;
    }
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    const std::size_t alignment = bytes < huge_page ? 64 : huge_page;
    const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, whole);
    if (!data) throw std::bad_alloc();
    if (alignment == huge_page) madvise(data, whole, MADV_HUGEPAGE);
    return new Block{data, bytes};
  }

  static void free(void* context) {
    if (!context) return;
    auto* block = static_cast<Block*>(context);
    auto& memory = instance();
    const std::lock_guard lock(memory.mutex_);
    memory.kept_.emplace(block->bytes, block);
  }

  std::mutex mutex_;
  std::multimap<std::size_t, Block*> kept_;
};

}  // namespace octavo::bench
