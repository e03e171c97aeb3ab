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
  find(table.init, "cuInit");
  find(table.driver_version, "cuDriverGetVersion");
  find(table.error_name, "cuGetErrorName");
  find(table.error_string, "cuGetErrorString");
  find(table.device_count, "cuDeviceGetCount");
  find(table.device_get, "cuDeviceGet");
  find(table.device_name, "cuDeviceGetName");
  find(table.device_memory, "cuDeviceTotalMem_v2");
  find(table.device_attribute, "cuDeviceGetAttribute");
  find(table.context_retain, "cuDevicePrimaryCtxRetain");
  find(table.context_release, "cuDevicePrimaryCtxRelease_v2");
  find(table.context_push, "cuCtxPushCurrent_v2");
  find(table.context_pop, "cuCtxPopCurrent_v2");
  find(table.context_synchronize, "cuCtxSynchronize");
  find(table.module_load, "cuModuleLoadData");
  find(table.module_unload, "cuModuleUnload");
  find(table.module_function, "cuModuleGetFunction");
  find(table.function_attribute, "cuFuncSetAttribute");
  find(table.launch, "cuLaunchKernel");
  find(table.stream_create, "cuStreamCreate");
  find(table.stream_destroy, "cuStreamDestroy_v2");
  find(table.stream_synchronize, "cuStreamSynchronize");
  find(table.stream_context, "cuStreamGetCtx");
  find(table.stream_wait, "cuStreamWaitEvent");
  find(table.event_create, "cuEventCreate");
  find(table.event_record, "cuEventRecord");
  find(table.event_query, "cuEventQuery");
  find(table.event_destroy, "cuEventDestroy_v2");
  find(table.memory_allocate, "cuMemAlloc_v2");
  find(table.memory_free, "cuMemFree_v2");
  find(table.copy_to_device, "cuMemcpyHtoDAsync_v2");
  find(table.copy_to_host, "cuMemcpyDtoHAsync_v2");
  find(table.copy_on_device, "cuMemcpyDtoDAsync_v2");
  find(table.set_bytes, "cuMemsetD8Async");
  find(table.pointer_attributes, "cuPointerGetAttributes");
  if (missing != nullptr) {
    dlclose(library);
    return no_driver(fmt::format("libcuda.so.1 has no {}; it is too old", missing));
  }
  if (const int error = table.init(0); error != success) {
    Error refused = no_driver(in_words(table, "cuInit", error));
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
