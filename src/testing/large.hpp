// Tensors of more than 2^31 elements on machines of any size.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "testing/machine.hpp"

namespace octavo::testing {

inline constexpr std::int64_t needed_memory = std::int64_t{1} << 30;

inline std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// Why tests of so many elements are left out here; empty if they are not.
[[nodiscard]] inline std::string no_large_tests() {
  if (slow_machine()) return "too slow here";
  const std::int64_t memory = available_memory();
  if (memory >= needed_memory) return {};
  return "needs 1 GiB of memory, has " + std::to_string(memory >> 20) + " MiB";
}

/// A range of addresses: all but its ends is one small piece of memory, zeros at first, mapped
/// again and again, so that little of it is real; the ends, of 1 MiB, are memory of their own.
/// `data` is null if the system refuses.
class Sparse {
 public:
  explicit Sparse(std::int64_t bytes)
      : size_(std::max(2 * end, round_up(static_cast<std::size_t>(bytes)))) {
    const int file = memfd_create("octavo", 0);
    if (file < 0) return;
    const bool sized = ftruncate(file, static_cast<off_t>(piece)) == 0;
    void* range =
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      data = static_cast<std::byte*>(range);
      bool fine = sized;
      for (std::size_t at = 0; at < size_; at += piece)
        fine &= map(at, std::min(piece, size_ - at), MAP_SHARED, file);
      fine &= map(0, end, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      fine &= map(size_ - end, end, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      if (!fine) {
        munmap(data, size_);
        data = nullptr;
      }
    }
    close(file);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() {
    if (data != nullptr) munmap(data, size_);
  }

  std::byte* data = nullptr;

 private:
  static constexpr std::size_t piece = std::size_t{32} << 20;
  static constexpr std::size_t end = std::size_t{1} << 20;

  static std::size_t round_up(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  bool map(std::size_t at, std::size_t bytes, int flags, int file) const {
    return mmap(data + at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, file,
                0) != MAP_FAILED;
  }

  std::size_t size_;
};

}  // namespace octavo::testing
