#include "tests/cuda/driver/memory.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace standin {
namespace {

constexpr u8 poison = 0xcb;
constexpr u64 step = 512;  // what addresses are multiples of

u64 reserve(u64 bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::fprintf(stderr, "stand-in driver: no address space\n");
    std::abort();
  }
  return reinterpret_cast<u64>(p);
}

std::string hex(u64 v) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(v));
  return text;
}

}  // namespace

Windows windows;

Memory::Memory()
    : base_(reserve(reserved, PROT_NONE)),
      store_(reserve(reserved, PROT_READ | PROT_WRITE)),
      next_(base_) {
  windows.shared = reserve(3 * window_bytes, PROT_NONE);
  windows.local = windows.shared + window_bytes;
  windows.constant = windows.local + window_bytes;
}

u8* Memory::driver_address(const Allocation& a) const {
  return at_address<u8>(a.is_host ? a.begin : a.begin - base_ + store_);
}

u64 Memory::allocate(u64 bytes, int device, const void* context, bool is_module) {
  const u64 room = (bytes + step - 1) / step * step + step;  // (with a gap behind it)
  if (bytes == 0 || room < bytes || used(device) + bytes > capacity) return 0;
  // Addresses are used again as late as possible.
  if (next_ + room > base_ + reserved) next_ = base_;
  for (int rounds = 0;;) {
    auto after = live_.lower_bound(next_);
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      if (!before->second.is_host && before->second.begin + before->second.size > next_) {
        next_ = (before->second.begin + before->second.size + 2 * step - 1) / step * step;
      }
    }
    while (after != live_.end() && after->second.is_host) ++after;
    if (next_ + room > base_ + reserved) {
      if (++rounds > 1) return 0;
      next_ = base_;
    } else if (after != live_.end() && after->first < next_ + room && is_reserved(after->first)) {
      next_ = (after->first + after->second.size + 2 * step - 1) / step * step;
    } else {
      break;
    }
  }
  const u64 address = next_;
  next_ += room;
  const Allocation a{address, bytes, device, context, false, is_module};
  live_[address] = a;
  freed_.erase(freed_.lower_bound(address), freed_.lower_bound(address + room));
  // Of what is large, the ends: the rest would only cost memory.
  constexpr u64 much = u64{32} << 20;
  u8* p = driver_address(a);
  std::memset(p, poison, bytes < 2 * much ? bytes : much);
  if (bytes >= 2 * much) std::memset(p + bytes - much, poison, much);
  return address;
}

u64 Memory::allocate_host(u64 bytes, int device, const void* context) {
  void* p = bytes == 0 ? nullptr : std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (p == nullptr) return 0;
  std::memset(p, poison, bytes);
  add_host(reinterpret_cast<u64>(p), bytes, device, context);
  return reinterpret_cast<u64>(p);
}

bool Memory::add_host(u64 address, u64 bytes, int device, const void* context) {
  return live_.emplace(address, Allocation{address, bytes, device, context, true, false}).second;
}

bool Memory::release(u64 address, bool is_host) {
  const auto found = live_.find(address);
  if (found == live_.end() || found->second.is_host != is_host || found->second.is_module)
    return false;
  const Allocation a = found->second;
  live_.erase(found);
  if (!is_host) {
    freed_[a.begin] = a.size;
    if (a.size >= 1 << 16) {
      madvise(driver_address(a), (a.size + 4095) / 4096 * 4096 - 4096, MADV_DONTNEED);
    }
  }
  return true;
}

void Memory::release_all(const void* context) {
  for (auto a = live_.begin(); a != live_.end();)
    a = a->second.context == context ? live_.erase(a) : std::next(a);
}

const Allocation* Memory::find(u64 address) const {
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  const Allocation& a = std::prev(after)->second;
  return address - a.begin < a.size ? &a : nullptr;
}

u8* Memory::bytes(u64 address, u64 count) const {
  const Allocation* a = find(address);
  if (a == nullptr || a->size - (address - a->begin) < count) return nullptr;
  return driver_address(*a) + (address - a->begin);
}

std::string Memory::explain(u64 address, u64 count) const {
  const std::string what = std::to_string(count) + " bytes at " + hex(address);
  const Allocation* a = find(address);
  if (a != nullptr) {
    return what + ", of which the last are beyond the end of an allocation of " +
           std::to_string(a->size) + " bytes";
  }
  if (!is_reserved(address)) {
    return what + (address < 4096 ? ", a null pointer" : ", which is no memory of the device");
  }
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin() && address - std::prev(freed)->first < std::prev(freed)->second) {
    return what + ", which has been freed";
  }
  auto after = live_.upper_bound(address);
  while (after != live_.end() && after->second.is_host) ++after;
  std::string text = what + ", outside of every allocation";
  auto before = live_.lower_bound(address);
  if (before != live_.begin()) {
    const Allocation& b = std::prev(before)->second;
    if (!b.is_host) {
      text += ": " + std::to_string(address - b.begin - b.size) + " bytes behind one of " +
              std::to_string(b.size) + " bytes";
      return text;
    }
  }
  if (after != live_.end() && is_reserved(after->first)) {
    text += ": " + std::to_string(after->first - address) + " bytes before one of " +
            std::to_string(after->second.size) + " bytes";
  }
  return text;
}

u64 Memory::used(int device) const {
  u64 sum = 0;
  for (const auto& [begin, a] : live_) sum += !a.is_host && a.device == device ? a.size : 0;
  return sum;
}

u64 Memory::count(bool is_host) const {
  u64 n = 0;
  for (const auto& [begin, a] : live_) n += a.is_host == is_host && !a.is_module ? 1 : 0;
  return n;
}

Range range_of(const Block& block, u64 address, u32 bytes, int lane) {
  const Allocation* a = block.memory->find(address);
  u8* p = a == nullptr ? nullptr : block.memory->bytes(address, bytes);
  if (p == nullptr)
    fault(illegal_address, "access of " + block.memory->explain(address, bytes), lane);
  if (!a->is_host && a->device != block.device) {
    fault(illegal_address, "access of memory of the device " + std::to_string(a->device), lane);
  }
  return {a->begin, a->begin + a->size, p - (address - a->begin)};
}

}  // namespace standin
