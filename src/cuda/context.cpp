#include "cuda/context.hpp"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "octavo/stream.hpp"

namespace octavo::cuda {

extern const Ptx checks_ptx;

namespace {

// The contexts in use, for all streams of a device to share one.
struct Contexts {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Context>> known;
};
Contexts& contexts() {
  static Contexts all;
  return all;
}

Error no_device(const std::string& text) {
  return {ErrorCode::backend, "device", "device: " + text};
}

}  // namespace

Result<const Driver*> found_driver() {
  if (checks_ptx.text.empty())
    return Error(ErrorCode::unsupported, "device",
                 "device: this build of Octavo has no device code (there was no clang that makes "
                 "PTX when it was built)");
  return driver();
}

Result<std::shared_ptr<Context>> Context::of_device(int ordinal) {
  const Result<const Driver*> found = found_driver();
  if (!found) return found.error();
  Contexts& all = contexts();
  const std::scoped_lock lock(all.mutex);
  std::weak_ptr<Context>& known = all.known[ordinal];
  if (auto context = known.lock()) return context;
  std::shared_ptr<Context> context(new Context(**found, ordinal));
  if (Status s = context->open(); !s) return s.error();
  known = context;
  return context;
}

Status Context::open() {
  const auto did = [this](const char* what, int error) { return check(driver, what, error); };
  int count = 0;
  if (Status s = did("cuDeviceGetCount", driver.device_count(&count)); !s) return s;
  if (count == 0) return no_device("there is no CUDA device: the driver finds none");
  if (ordinal < 0 || ordinal >= count)
    return Error(
        ErrorCode::invalid_problem, "device",
        fmt::format("device: expected one of the devices 0 to {}, got {}", count - 1, ordinal));
  if (Status s = did("cuDeviceGet", driver.device_get(&device_, ordinal)); !s) return s;
  for (const auto& [attribute, value] :
       {std::pair{compute_major, &limits.major}, std::pair{compute_minor, &limits.minor},
        std::pair{multiprocessors, &limits.multiprocessors},
        std::pair{max_shared_per_block, &limits.shared_per_block},
        std::pair{max_shared_per_block_optin, &limits.shared_per_block_optin}})
    if (Status s = did("cuDeviceGetAttribute", driver.device_attribute(value, attribute, device_));
        !s)
      return s;
  if (limits.major < 8)
    return Error(ErrorCode::unsupported, "device",
                 fmt::format("device: expected compute capability 8.0 or later, got {}.{}",
                             limits.major, limits.minor));
  ContextHandle handle = nullptr;
  if (Status s = did("cuDevicePrimaryCtxRetain", driver.context_retain(&handle, device_)); !s)
    return s;
  handle_ = handle;
  return {};
}

Context::~Context() {
  if (handle_ == nullptr) return;
  {
    const Current current(*this);
    if (current.status())
      for (const auto& [ptx, module] : modules_) (void)driver.module_unload(module);
  }
  (void)driver.context_release(device_);
}

Result<FunctionHandle> Context::load(const Kernel& kernel) {
  ModuleHandle& module = modules_[&kernel.ptx()];
  if (module == nullptr) {
    ModuleHandle loaded = nullptr;
    if (const int error = driver.module_load(&loaded, kernel.ptx().text.data()); error != success)
      return driver_error(driver, "cuModuleLoadData", error);
    module = loaded;
  }
  FunctionHandle function = nullptr;
  if (const int error = driver.module_function(&function, module, kernel.entry()); error != success)
    return driver_error(driver, "cuModuleGetFunction", error);
  return function;
}

Result<FunctionHandle> Context::function(const Kernel& kernel, unsigned shared_bytes) {
  const std::string_view entry = kernel.entry();
  const auto wanted = static_cast<int>(shared_bytes);
  {
    const std::shared_lock lock(mutex_);
    if (const auto of = functions_.find(&kernel.ptx()); of != functions_.end())
      if (const auto at = of->second.find(entry);
          at != of->second.end() && wanted <= at->second.shared_bytes)
        return at->second.function;
  }
  const std::scoped_lock lock(mutex_);
  auto& of = functions_[&kernel.ptx()];
  auto at = of.find(entry);
  if (at == of.end()) {
    const Result<FunctionHandle> loaded = load(kernel);
    if (!loaded) return loaded.error();
    at = of.emplace(entry, Loaded{*loaded, limits.shared_per_block}).first;
  }
  Loaded& known = at->second;
  if (wanted > known.shared_bytes) {
    if (const int error =
            driver.function_attribute(known.function, function_max_dynamic_shared, wanted);
        error != success)
      return driver_error(driver, "cuFuncSetAttribute", error);
    known.shared_bytes = wanted;
  }
  return known.function;
}

Result<void*> Context::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Current current(*this);
  if (!current.status()) return current.status().error();
  DevicePointer memory = 0;
  if (const int error = driver.memory_allocate(&memory, bytes); error != success)
    return driver_error(driver, "cuMemAlloc", error);
  return std::bit_cast<void*>(memory);
}

void Context::free(void* memory) noexcept {
  if (memory == nullptr) return;
  const Current current(*this);
  if (current.status()) (void)driver.memory_free(reinterpret_cast<DevicePointer>(memory));
}

}  // namespace octavo::cuda

namespace octavo {

Result<std::vector<CudaDevice>> cuda_devices() {
  const auto found = cuda::found_driver();
  if (!found) return found.error();
  const cuda::Driver& d = **found;
  int count = 0;
  if (Status s = check(d, "cuDeviceGetCount", d.device_count(&count)); !s) return s.error();
  std::vector<CudaDevice> list;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    std::array<char, 256> name{};
    CudaDevice info;
    const auto attribute = [&](int& value, cuda::DeviceAttribute which) {
      return check(d, "cuDeviceGetAttribute", d.device_attribute(&value, which, device));
    };
    if (Status s = check(d, "cuDeviceGet", d.device_get(&device, i)); !s) return s.error();
    if (Status s = check(d, "cuDeviceGetName",
                         d.device_name(name.data(), static_cast<int>(name.size()) - 1, device));
        !s)
      return s.error();
    if (Status s = check(d, "cuDeviceTotalMem", d.device_memory(&info.bytes, device)); !s)
      return s.error();
    if (Status s = attribute(info.compute_major, cuda::compute_major); !s) return s.error();
    if (Status s = attribute(info.compute_minor, cuda::compute_minor); !s) return s.error();
    info.name = name.data();
    list.push_back(std::move(info));
  }
  return list;
}

}  // namespace octavo
