// A backend for tests whose memory the host cannot touch. Its pages are closed, and open only
// inside its own copies and kernels, which are those of the reference: whoever else reads or writes
// them ends the program.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::testing {

class DeviceMemory {
 public:
  DeviceMemory() {
    void* pages =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(pages);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { munmap(base_, size); }

  /// Aligned as a workspace is. Given back when all is.
  void* allocate(std::size_t bytes) {
    std::byte* at = base_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    if (used_ > size) throw std::bad_alloc();
    return at;
  }
  void clear() { used_ = 0; }

  /// While one lives, this process may touch the memory.
  class Open {
   public:
    explicit Open(DeviceMemory& memory) : memory_(memory) { memory_.change(+1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() { memory_.change(-1); }

   private:
    DeviceMemory& memory_;
  };

  void* upload(const void* from, std::size_t bytes) {
    void* to = allocate(bytes);
    const Open open(*this);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return to;
  }
  void download(const void* from, std::size_t bytes, void* to) {
    const Open open(*this);
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  static constexpr std::size_t size = std::size_t{1} << 28;

  void change(int by) {
    const std::scoped_lock lock(mutex_);
    const bool was_open = open_ > 0;
    open_ += by;
    if ((open_ > 0) != was_open &&
        mprotect(base_, size, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
      std::abort();
  }

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::mutex mutex_;
  int open_ = 0;
};

inline DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

/// What was run waits until the stream is synchronized, and is then carried out in order. Work that
/// is refused (by the values it reads) keeps none from being done that comes after it. What is
/// queued when the stream goes is dropped.
class DeviceStream final : public Stream::Impl {
 public:
  using Work = std::function<Status()>;

  DeviceStream() : Impl(octavo::detail::test_backend) {}
  [[nodiscard]] Status synchronize() override {
    const std::scoped_lock lock(mutex_);
    carry_out();
    return std::exchange(refused_, Status());
  }
  void enqueue(Work work) {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  /// At once, but after all that is queued, whose refusals are left to `synchronize`.
  [[nodiscard]] Status run_now(const Work& work) {
    const std::scoped_lock lock(mutex_);
    carry_out();
    const DeviceMemory::Open open(device_memory());
    return work();
  }

 private:
  void carry_out() {
    const DeviceMemory::Open open(device_memory());
    for (const Work& work : std::exchange(queue_, {}))
      if (Status s = work(); !s && refused_) refused_ = std::move(s);
  }

  std::mutex mutex_;
  std::vector<Work> queue_;
  Status refused_;  // the first since the last time
};

inline Stream device_stream() {
  return octavo::detail::StreamAccess::make(std::make_shared<DeviceStream>());
}

inline DeviceStream& device_of(const Stream& stream) {
  return static_cast<DeviceStream&>(stream.impl());
}

}  // namespace octavo::testing
