#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <atomic>
#include <mutex>

namespace octavo::cuda {
namespace {

Error no_driver(const std::string& why) {
  return {ErrorCode::backend, "device", fmt::format("device: there is no CUDA device: {}", why)};
}

// "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
std::string in_words(const Driver& driver, const char* what, int error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.error_name(error, &name) != success) name = nullptr;
  if (driver.error_string(error, &text) != success) text = nullptr;
  return fmt::format("{} failed: {} ({})", what, name == nullptr ? "unknown" : name,
                     text == nullptr ? fmt::format("error {}", error) : text);
}

// Opened for good: streams, and what lies on devices, may outlive whoever asked.
Result<const Driver*> open() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return no_driver("the driver's library libcuda.so.1 is not installed");
  static Driver table;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
#define OCTAVO_FIND(member, symbol, parameters) find(table.member, symbol);
  OCTAVO_CUDA_DRIVER(OCTAVO_FIND)
#undef OCTAVO_FIND
  if (missing != nullptr) {
    dlclose(library);
    return no_driver(fmt::format("libcuda.so.1 has no {}; it is too old", missing));
  }
  if (const int error = table.init(0); error != success) {
    const Error refused = no_driver(in_words(table, "cuInit", error));
    dlclose(library);
    return refused;
  }
  return &table;
}

std::atomic<const Driver*> opened{nullptr};

}  // namespace

Result<const Driver*> driver() {
  if (const Driver* known = opened.load(std::memory_order_acquire)) return known;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (const Driver* known = opened.load(std::memory_order_acquire)) return known;
  Result<const Driver*> found = open();
  if (found) opened.store(*found, std::memory_order_release);
  return found;
}

Error driver_error(const Driver& driver, const char* what, int error) {
  return {ErrorCode::backend, "stream", "stream: " + in_words(driver, what, error)};
}

}  // namespace octavo::cuda
