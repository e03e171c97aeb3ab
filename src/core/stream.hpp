// Streams, inside: what a backend makes of one.
#pragma once

#include <memory>
#include <utility>

#include "core/workspace.hpp"
#include "octavo/stream.hpp"

namespace octavo {

/// Of the CPU unless a backend derives from it. Lives as long as a copy of its stream.
struct Stream::Impl {
  explicit Impl(Backend where, int number = 0) : backend(where), device(number) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;
  /// Waits for all that was enqueued; the first refusal since the last time, as Stream says.
  [[nodiscard]] virtual Status synchronize() { return {}; }
  /// Memory for a workspace, aligned as one must be; null for 0 bytes.
  [[nodiscard]] virtual Result<void*> allocate(std::size_t bytes) {
    return detail::allocate_workspace(bytes);
  }
  /// Gives it back, when all that was enqueued is done with it.
  virtual void free(void* memory) noexcept {
    ::operator delete (memory, std::align_val_t{workspace_alignment});
  }

  const Backend backend;
  const int device;    // of several that a backend has
  CpuOptions options;  // of the CPU
  int threads = 1;     // likewise
};

namespace detail {

struct StreamAccess {
  static Stream make(std::shared_ptr<Stream::Impl> impl) { return Stream(std::move(impl)); }
};

/// A backend that only tests have.
inline constexpr Backend test_backend{0xFF};

}  // namespace detail
}  // namespace octavo
