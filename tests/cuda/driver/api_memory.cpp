// Memory: allocations, copies, fills, pointers.
#include <cstring>

#include "tests/cuda/driver/driver.hpp"

using namespace standin;

namespace {

// The bytes of device or pinned memory for the driver; a pointer that is none fails.
u8* device_bytes(u64 address, u64 count) {
  Memory& memory = *driver().memory;
  if (count == 0) return nullptr;
  u8* p = memory.bytes(address, count);
  if (p == nullptr) {
    report("a copy or fill of " + memory.explain(address, count));
    throw Failure{invalid_value};
  }
  return p;
}

void check_host(const void* p, u64 count) {
  if (count == 0) return;
  const u64 address = reinterpret_cast<u64>(p);
  if (p == nullptr || driver().memory->is_reserved(address)) {
    report("a copy to or from the host with a pointer that is none of the host's");
    throw Failure{invalid_value};
  }
}

bool is_pinned(const void* p) { return driver().memory->find(reinterpret_cast<u64>(p)) != nullptr; }

// Device memory is looked up when the copy is done: it may be freed before.
u8* later(u64 address, u64 count) {
  u8* p = driver().memory->bytes(address, count);
  if (p == nullptr)
    throw Fault(illegal_address, "a copy or fill of " + driver().memory->explain(address, count));
  return p;
}

void copy_to_device(const std::shared_ptr<Stream>& s, u64 to, const void* from, u64 count) {
  device_bytes(to, count);
  check_host(from, count);
  if (count == 0) return;
  if (is_pinned(from)) {
    enqueue(s, [=] { std::memcpy(later(to, count), from, count); });
  } else {
    // (What is not pinned has been read when the call returns.)
    const auto bytes = static_cast<const u8*>(from);
    enqueue(s, [to, copy = std::vector<u8>(bytes, bytes + count)] {
      std::memcpy(later(to, copy.size()), copy.data(), copy.size());
    });
  }
}

void copy_to_host(const std::shared_ptr<Stream>& s, void* to, u64 from, u64 count) {
  device_bytes(from, count);
  check_host(to, count);
  if (count == 0) return;
  enqueue(s, [=] { std::memcpy(to, later(from, count), count); });
}

void copy_on_device(const std::shared_ptr<Stream>& s, u64 to, u64 from, u64 count) {
  device_bytes(from, count);
  device_bytes(to, count);
  if (count == 0) return;
  enqueue(s, [=] {
    u8* target = later(to, count);
    std::memmove(target, later(from, count), count);
  });
}

template <class T>
void set(const std::shared_ptr<Stream>& s, u64 to, T value, u64 count) {
  if (to % sizeof(T) != 0) throw Failure{invalid_value};
  device_bytes(to, count * sizeof(T));
  if (count == 0) return;
  enqueue(s, [=] {
    u8* p = later(to, count * sizeof(T));
    for (u64 i = 0; i < count; ++i) std::memcpy(p + i * sizeof(T), &value, sizeof(T));
  });
}

std::shared_ptr<Stream> default_stream() { return current().default_stream; }

int pointer_attribute(void* value, int which, u64 address, bool& known) {
  const Allocation* a = driver().memory->find(address);
  known = a != nullptr;
  const auto put = [&](auto v) {
    std::memcpy(value, &v, sizeof v);
    return success;
  };
  switch (which) {
    case 1:
      return put(a == nullptr ? nullptr : a->context);
    case 2:
      return put(a == nullptr ? 0u : a->is_host ? 1u : 2u);
    case 3:
      return put(a == nullptr ? u64{0} : address);
    case 4:
      return put(a != nullptr && a->is_host ? address : u64{0});
    case 6:
      return put(0u);  // SYNC_MEMOPS
    case 7:
      return put(a == nullptr ? u64{0} : a->begin);
    case 8:
      return put(0u);  // IS_MANAGED
    case 9:
      return put(a == nullptr ? -2 : a->device);
    case 11:
      return put(a == nullptr ? u64{0} : a->begin);
    case 12:
      return put(a == nullptr ? u64{0} : a->size);
    case 13:
      return put(a == nullptr ? u8{0} : u8{1});  // MAPPED
    default:
      return invalid_value;
  }
}

}  // namespace

STANDIN_API int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo", Needs::context, [&]() -> int {
    *total = driver().memory->capacity;
    *free = *total - driver().memory->used(current().device);
    return success;
  });
}

STANDIN_API int cuMemAlloc_v2(u64* address, std::size_t bytes) {
  return call("cuMemAlloc", Needs::context, [&]() -> int {
    if (address == nullptr || bytes == 0) return invalid_value;
    *address = driver().memory->allocate(bytes, current().device, &current());
    return *address == 0 ? out_of_memory : success;
  });
}

STANDIN_API int cuMemFree_v2(u64 address) {
  return call("cuMemFree", Needs::context, [&]() -> int {
    if (address == 0) return success;
    if (driver().memory->release(address, false)) return success;
    report("cuMemFree of " + driver().memory->explain(address, 1));
    return invalid_value;
  });
}

STANDIN_API int cuMemAllocAsync(u64* address, std::size_t bytes, void* stream) {
  return call("cuMemAllocAsync", Needs::context, [&]() -> int {
    stream_of(stream);
    if (address == nullptr || bytes == 0) return invalid_value;
    *address = driver().memory->allocate(bytes, current().device, &current());
    return *address == 0 ? out_of_memory : success;
  });
}

STANDIN_API int cuMemFreeAsync(u64 address, void* stream) {
  return call("cuMemFreeAsync", Needs::context, [&]() -> int {
    const Allocation* a = driver().memory->find(address);
    if (a == nullptr || a->begin != address || a->is_host) return invalid_value;
    enqueue(stream_of(stream), [=] { driver().memory->release(address, false); });
    return success;
  });
}

STANDIN_API int cuMemHostAlloc(void** p, std::size_t bytes, unsigned) {
  return call("cuMemHostAlloc", Needs::context, [&]() -> int {
    if (p == nullptr || bytes == 0) return invalid_value;
    *p = at_address<void>(driver().memory->allocate_host(bytes, current().device, &current()));
    return *p == nullptr ? out_of_memory : success;
  });
}
STANDIN_API int cuMemAllocHost_v2(void** p, std::size_t bytes) {
  return cuMemHostAlloc(p, bytes, 0);
}

STANDIN_API int cuMemFreeHost(void* p) {
  return call("cuMemFreeHost", Needs::context, [&]() -> int {
    if (p == nullptr) return invalid_value;
    if (!driver().memory->release(reinterpret_cast<u64>(p), true)) return invalid_value;
    std::free(p);
    return success;
  });
}

STANDIN_API int cuMemHostGetDevicePointer_v2(u64* address, void* p, unsigned) {
  return call("cuMemHostGetDevicePointer", Needs::context, [&]() -> int {
    const Allocation* a = driver().memory->find(reinterpret_cast<u64>(p));
    if (a == nullptr || !a->is_host) return invalid_value;
    *address = reinterpret_cast<u64>(p);
    return success;
  });
}

STANDIN_API int cuMemHostRegister_v2(void* p, std::size_t bytes, unsigned) {
  return call("cuMemHostRegister", Needs::context, [&]() -> int {
    if (p == nullptr || bytes == 0) return invalid_value;
    return driver().memory->add_host(reinterpret_cast<u64>(p), bytes, current().device, &current())
               ? success
               : invalid_value;
  });
}

STANDIN_API int cuMemHostUnregister(void* p) {
  return call("cuMemHostUnregister", Needs::context, [&]() -> int {
    return driver().memory->release(reinterpret_cast<u64>(p), true) ? success : invalid_value;
  });
}

STANDIN_API int cuMemcpyHtoD_v2(u64 to, const void* from, std::size_t count) {
  return call("cuMemcpyHtoD", Needs::context, [&]() -> int {
    copy_to_device(default_stream(), to, from, count);
    return synchronize(default_stream());
  });
}

STANDIN_API int cuMemcpyDtoH_v2(void* to, u64 from, std::size_t count) {
  return call("cuMemcpyDtoH", Needs::context, [&]() -> int {
    copy_to_host(default_stream(), to, from, count);
    return synchronize(default_stream());
  });
}

STANDIN_API int cuMemcpyDtoD_v2(u64 to, u64 from, std::size_t count) {
  return call("cuMemcpyDtoD", Needs::context, [&]() -> int {
    copy_on_device(default_stream(), to, from, count);
    return success;
  });
}

STANDIN_API int cuMemcpyHtoDAsync_v2(u64 to, const void* from, std::size_t count, void* stream) {
  return call("cuMemcpyHtoDAsync", Needs::context, [&]() -> int {
    copy_to_device(stream_of(stream), to, from, count);
    return success;
  });
}

STANDIN_API int cuMemcpyDtoHAsync_v2(void* to, u64 from, std::size_t count, void* stream) {
  return call("cuMemcpyDtoHAsync", Needs::context, [&]() -> int {
    const auto s = stream_of(stream);
    copy_to_host(s, to, from, count);
    // (Into memory that is not pinned the copy is complete when the call returns.)
    return count == 0 || is_pinned(to) ? int{success} : synchronize(s);
  });
}

STANDIN_API int cuMemcpyDtoDAsync_v2(u64 to, u64 from, std::size_t count, void* stream) {
  return call("cuMemcpyDtoDAsync", Needs::context, [&]() -> int {
    copy_on_device(stream_of(stream), to, from, count);
    return success;
  });
}

STANDIN_API int cuMemsetD8_v2(u64 to, unsigned char value, std::size_t count) {
  return call("cuMemsetD8", Needs::context, [&]() -> int {
    set(default_stream(), to, value, count);
    return success;
  });
}

STANDIN_API int cuMemsetD32_v2(u64 to, unsigned value, std::size_t count) {
  return call("cuMemsetD32", Needs::context, [&]() -> int {
    set(default_stream(), to, value, count);
    return success;
  });
}

STANDIN_API int cuMemsetD8Async(u64 to, unsigned char value, std::size_t count, void* stream) {
  return call("cuMemsetD8Async", Needs::context, [&]() -> int {
    set(stream_of(stream), to, value, count);
    return success;
  });
}

STANDIN_API int cuMemsetD32Async(u64 to, unsigned value, std::size_t count, void* stream) {
  return call("cuMemsetD32Async", Needs::context, [&]() -> int {
    set(stream_of(stream), to, value, count);
    return success;
  });
}

STANDIN_API int cuPointerGetAttribute(void* value, int which, u64 address) {
  return call("cuPointerGetAttribute", Needs::init, [&]() -> int {
    if (driver().memory->find(address) == nullptr) return invalid_value;
    bool known = false;
    return pointer_attribute(value, which, address, known);
  });
}

// Unlike the other, it succeeds for pointers that the driver does not know.
STANDIN_API int cuPointerGetAttributes(unsigned count, const int* which, void** values,
                                       u64 address) {
  return call("cuPointerGetAttributes", Needs::init, [&]() -> int {
    for (unsigned i = 0; i < count; ++i) {
      bool known = false;
      const int result = pointer_attribute(values[i], which[i], address, known);
      if (result != success) return result;
    }
    return success;
  });
}
