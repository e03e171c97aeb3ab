// Whose memory a pointer is of: what is given to a stream must be memory of its backend.
#pragma once

#include <atomic>
#include <initializer_list>

#include "core/stream.hpp"
#include "octavo/result.hpp"

namespace octavo::detail {

struct MemoryPlace {
  bool of_host = true;     // the host may follow it
  bool of_device = false;  // a device may (of managed memory, both)
  int device = 0;          // which
};
using FindMemoryPlace = MemoryPlace (*)(const void* pointer);

/// Null, and all memory the host's, until a stream of a device was made.
inline std::atomic<FindMemoryPlace> find_memory_place{nullptr};
inline void note_device_memory(FindMemoryPlace find) {
  find_memory_place.store(find, std::memory_order_release);
}

struct NamedPointer {
  const char* argument;
  const void* pointer;  // null: not given, or of a tensor without elements
};

Status check_places(FindMemoryPlace find, Backend backend, int device,
                    std::initializer_list<NamedPointer> pointers);

/// That all are memory of the backend, of the device as well where it is known (not -1). For runs
/// on a CPU without devices, one load.
inline Status check_memory(Backend backend, int device,
                           std::initializer_list<NamedPointer> pointers) {
  const FindMemoryPlace find = find_memory_place.load(std::memory_order_acquire);
  if (find == nullptr || backend == test_backend) return {};
  return check_places(find, backend, device, pointers);
}

}  // namespace octavo::detail
