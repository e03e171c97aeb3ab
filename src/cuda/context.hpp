// A device and its primary context, which is the one that frameworks use; the modules loaded there.
#pragma once

#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/ptx.hpp"
#include "octavo/result.hpp"

namespace octavo::cuda {

/// The driver, for a library that has device code for it.
Result<const Driver*> found_driver();

/// An entry of device code, by its name, which is the caller's. It is found in a context when it is
/// first launched there.
class Kernel {
 public:
  constexpr Kernel(const Ptx& ptx, const char* entry) : ptx_(&ptx), entry_(entry) {}
  [[nodiscard]] constexpr const Ptx& ptx() const { return *ptx_; }
  [[nodiscard]] constexpr const char* entry() const { return entry_; }

 private:
  const Ptx* ptx_;
  const char* entry_;
};

struct DeviceLimits {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int shared_per_block = 0;        // bytes that every kernel may have
  int shared_per_block_optin = 0;  // and that one may have that asks
};

/// One for each device that is in use: streams, workspaces and packed weights share it, and the
/// last that goes releases it.
class Context {
 public:
  /// Of a device; or why there is none.
  static Result<std::shared_ptr<Context>> of_device(int ordinal);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Driver& driver;
  const int ordinal;
  DeviceLimits limits;
  [[nodiscard]] ContextHandle handle() const { return handle_; }

  /// Loads the kernel's module if it is not there; `shared_bytes` beyond what every kernel may have
  /// are asked for. The context is current.
  Result<FunctionHandle> function(const Kernel& kernel, unsigned shared_bytes);

  /// Device memory, aligned to 256 bytes; 0 for 0 bytes. Makes the context current itself.
  Result<void*> allocate(std::size_t bytes);
  void free(void* memory) noexcept;

 private:
  Context(const Driver& d, int number) : driver(d), ordinal(number) {}
  Status open();
  Result<FunctionHandle> load(const Kernel& kernel);

  struct Loaded {
    FunctionHandle function = nullptr;
    int shared_bytes = 0;  // that it may have
  };
  int device_ = 0;
  ContextHandle handle_ = nullptr;
  std::shared_mutex mutex_;
  std::map<const Ptx*, ModuleHandle> modules_;
  std::map<const Ptx*, std::map<std::string, Loaded, std::less<>>> functions_;
};

/// Makes a context the calling thread's while it lives, whatever was current before.
class Current {
 public:
  explicit Current(const Context& context)
      : driver_(context.driver),
        status_(check(driver_, "cuCtxPushCurrent", driver_.context_push(context.handle()))) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    ContextHandle popped = nullptr;
    if (status_) (void)driver_.context_pop(&popped);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
};

}  // namespace octavo::cuda
