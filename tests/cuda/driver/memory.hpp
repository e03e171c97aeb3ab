// Device memory. Its addresses are reserved and can be touched by nobody; what stands there is kept
// at a fixed distance, where only the driver looks for it. So a host that uses a device pointer
// dies of it.
#pragma once

#include <map>

#include "tests/cuda/driver/warp.hpp"

namespace standin {

struct Allocation {
  u64 begin = 0;
  u64 size = 0;
  int device = 0;
  const void* context = nullptr;
  bool is_host = false;    // pinned: the host's own address
  bool is_module = false;  // variables of a module: not counted among a program's allocations
};

class Memory {
 public:
  Memory();
  // 0 if there is no room. Fresh memory holds a poison.
  u64 allocate(u64 bytes, int device, const void* context, bool is_module = false);
  u64 allocate_host(u64 bytes, int device, const void* context);
  bool add_host(u64 address, u64 bytes, int device, const void* context);
  // False if nothing begins there.
  bool release(u64 address, bool is_host);
  void release_module(u64 address) { live_.erase(address); }
  void release_all(const void* context);

  // The allocation that `address` is in, or none.
  const Allocation* find(u64 address) const;
  bool is_reserved(u64 address) const { return address - base_ < reserved; }
  // Where the bytes are for the driver; none unless they are all in one allocation.
  u8* bytes(u64 address, u64 count) const;
  std::string explain(u64 address, u64 count) const;
  u64 used(int device) const;
  u64 count(bool is_host) const;

  static constexpr u64 reserved = u64{96} << 30;
  u64 capacity = u64{24} << 30;  // of a device

 private:
  u8* driver_address(const Allocation& a) const;

  u64 base_ = 0;   // of the addresses
  u64 store_ = 0;  // of what stands there
  u64 next_ = 0;
  std::map<u64, Allocation> live_;
  std::map<u64, u64> freed_;  // begin and size, for better words
};

}  // namespace standin
