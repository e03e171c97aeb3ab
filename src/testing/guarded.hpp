// Memory that notices a stray access, and who made it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace octavo::testing {

/// Memory between two pages that must not be touched, for data flush against either of them or
/// some bytes away from it.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t capacity)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        size_((capacity + page_ - 1) / page_ * page_) {
    void* mapping = mmap(nullptr, size_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) std::abort();
    first_ = static_cast<std::byte*>(mapping) + page_;
    if (mprotect(first_, size_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(first_ - page_, size_ + 2 * page_); }

  /// Where data begins that is `offset` bytes behind the front guard, or before the back guard.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::byte* front(std::size_t offset = 0) const { return first_ + offset; }
  [[nodiscard]] std::byte* back(std::size_t bytes, std::size_t offset = 0) const {
    return first_ + size_ - bytes - offset;
  }

  /// Paints a range and what lies beside it.
  void repaint(const std::byte* data, std::size_t bytes) const {
    const auto [low, high] = beside(data, bytes);
    std::fill(low, high, paint);
  }
  /// Whether what lies beside the range has its paint still.
  [[nodiscard]] bool untouched(const std::byte* data, std::size_t bytes) const {
    const auto painted = [](std::byte b) { return b == paint; };
    const auto [low, high] = beside(data, bytes);
    return std::all_of(static_cast<const std::byte*>(low), data, painted) &&
           std::all_of(data + bytes, static_cast<const std::byte*>(high), painted);
  }

 private:
  static constexpr std::byte paint{0xA5};
  static constexpr std::ptrdiff_t reach = 128;
  [[nodiscard]] std::pair<std::byte*, std::byte*> beside(const std::byte* data,
                                                         std::size_t bytes) const {
    const std::ptrdiff_t low = data - first_;
    const std::ptrdiff_t high = low + static_cast<std::ptrdiff_t>(bytes);
    return {first_ + std::max<std::ptrdiff_t>(low - reach, 0),
            first_ + std::min(high + reach, static_cast<std::ptrdiff_t>(size_))};
  }

  std::size_t page_;
  std::size_t size_;
  std::byte* first_ = nullptr;
};

/// What is being run, for the message of a fault: a stray access ends the process.
class FaultNote {
 public:
  FaultNote() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      write_note();
      // The default action is back (SA_RESETHAND), and the same access faults again.
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGSEGV, &action, &before_);
  }
  FaultNote(const FaultNote&) = delete;
  FaultNote& operator=(const FaultNote&) = delete;
  ~FaultNote() { sigaction(SIGSEGV, &before_, nullptr); }

  static void set(const std::string& text) {
    length() = text.copy(buffer().data(), buffer().size());
  }

 private:
  static void write_note() {
    constexpr std::string_view prefix = "\nan access outside of a buffer, in ";
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, prefix.data(), prefix.size());
    written = ::write(STDERR_FILENO, buffer().data(), length());
    written = ::write(STDERR_FILENO, "\n", 1);
  }
  static std::array<char, 512>& buffer() {
    static thread_local std::array<char, 512> text{};
    return text;
  }
  static std::size_t& length() {
    static thread_local std::size_t bytes = 0;
    return bytes;
  }
  struct sigaction before_ = {};
};

}  // namespace octavo::testing
