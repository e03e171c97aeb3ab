// cuInit, devices, primary contexts, errors.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tests/cuda/driver/driver.hpp"

using namespace standin;

namespace {

struct Named {
  int code;
  const char* name;
  const char* text;
};

const Named errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Named* find(int code) {
  for (const Named& e : errors) {
    if (e.code == code) return &e;
  }
  return nullptr;
}

void check_device(int device) {
  if (device < 0 || device >= driver().devices) throw Failure{invalid_device};
}

Context& context_of(int device) {
  Driver& d = driver();
  while (static_cast<int>(d.contexts.size()) <= device) {
    d.contexts.push_back(std::make_unique<Context>());
    d.contexts.back()->device = static_cast<int>(d.contexts.size()) - 1;
  }
  return *d.contexts[static_cast<std::size_t>(device)];
}

int attribute(int which) {
  const Driver& d = driver();
  const bool large = d.capability == 80 || d.capability == 87;
  const bool larger = d.capability == 90 || d.capability == 100 || d.capability == 103;
  const int opt_in = larger ? 232448 : large ? 166912 : d.capability < 80 ? 65536 : 101376;
  switch (which) {
    case 1:  // threads of a block
    case 2:
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:
      return 0x7fffffff;  // blocks of a grid
    case 6:
    case 7:
      return 65535;
    case 8:
      return 49152;  // shared memory of a block
    case 9:
      return 65536;
    case 10:
      return 32;
    case 11:
      return 0x7fffffff;
    case 12:
    case 82:
      return 65536;
    case 13:
      return 1410000;
    case 16:
      return d.multiprocessors;
    case 18:
      return 0;
    case 19:
      return 1;
    case 20:
      return 0;
    case 31:
    case 32:
    case 33:
      return 1;
    case 34:
    case 50:
      return 0;
    case 36:
      return 1215000;
    case 37:
      return 5120;
    case 38:
      return 40 << 20;
    case 39:
      return 2048;
    case 40:
      return 2;
    case 41:
      return 1;  // unified addressing
    case 75:
      return d.capability / 10;
    case 76:
      return d.capability % 10;
    case 81:
      return opt_in + 1024;
    case 83:
      return 0;  // managed memory
    case 97:
      return opt_in;
    case 106:
      return 32;
    case 111:
      return 1024;
    case 115:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

STANDIN_API int cuInit(unsigned flags) {
  return call("cuInit", Needs::nothing, [&]() -> int {
    if (flags != 0) return invalid_value;
    if (driver().devices == 0) return no_device;
    driver().initialised = true;
    return success;
  });
}

STANDIN_API int cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::nothing, [&]() -> int {
    if (version == nullptr) return invalid_value;
    *version = 12040;
    return success;
  });
}

STANDIN_API int cuGetErrorName(int error, const char** text) {
  const Named* e = find(error);
  *text = e == nullptr ? nullptr : e->name;
  return e == nullptr ? invalid_value : success;
}

STANDIN_API int cuGetErrorString(int error, const char** text) {
  const Named* e = find(error);
  *text = e == nullptr ? nullptr : e->text;
  return e == nullptr ? invalid_value : success;
}

STANDIN_API int cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::init, [&]() -> int {
    *count = driver().devices;
    return success;
  });
}

STANDIN_API int cuDeviceGet(int* device, int ordinal) {
  return call("cuDeviceGet", Needs::init, [&]() -> int {
    check_device(ordinal);
    *device = ordinal;
    return success;
  });
}

STANDIN_API int cuDeviceGetName(char* name, int bytes, int device) {
  return call("cuDeviceGetName", Needs::init, [&]() -> int {
    check_device(device);
    if (name == nullptr || bytes <= 0) return invalid_value;
    std::strncpy(name, "Octavo stand-in", static_cast<std::size_t>(bytes));
    name[bytes - 1] = 0;
    return success;
  });
}

STANDIN_API int cuDeviceGetUuid(void* uuid, int device) {
  return call("cuDeviceGetUuid", Needs::init, [&]() -> int {
    check_device(device);
    std::memset(uuid, device + 1, 16);
    return success;
  });
}

STANDIN_API int cuDeviceGetAttribute(int* value, int which, int device) {
  return call("cuDeviceGetAttribute", Needs::init, [&]() -> int {
    check_device(device);
    if (value == nullptr || which < 1 || which > 200) return invalid_value;
    *value = attribute(which);
    return success;
  });
}

STANDIN_API int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  return call("cuDeviceTotalMem", Needs::init, [&]() -> int {
    check_device(device);
    *bytes = driver().memory->capacity;
    return success;
  });
}

STANDIN_API int cuDevicePrimaryCtxRetain(Context** context, int device) {
  return call("cuDevicePrimaryCtxRetain", Needs::init, [&]() -> int {
    check_device(device);
    Context& c = context_of(device);
    if (c.retained++ == 0) {
      c.default_stream = std::make_shared<Stream>();
      c.default_stream->context = &c;
      c.default_stream->is_default = true;
    }
    *context = &c;
    return success;
  });
}

STANDIN_API int cuDevicePrimaryCtxRelease_v2(int device) {
  return call("cuDevicePrimaryCtxRelease", Needs::init, [&]() -> int {
    check_device(device);
    Context& c = context_of(device);
    if (c.retained == 0) return invalid_context;
    if (--c.retained == 0) destroy_context(c);
    return success;
  });
}
STANDIN_API int cuDevicePrimaryCtxRelease(int device) {
  return cuDevicePrimaryCtxRelease_v2(device);
}

STANDIN_API int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", Needs::init, [&]() -> int {
    check_device(device);
    *flags = context_of(device).flags;
    *active = context_of(device).retained != 0;
    return success;
  });
}

STANDIN_API int cuCtxPushCurrent_v2(Context* context) {
  return call("cuCtxPushCurrent", Needs::init, [&]() -> int {
    if (context == nullptr) return invalid_context;
    context_stack().push_back(context);
    return success;
  });
}

STANDIN_API int cuCtxPopCurrent_v2(Context** context) {
  return call("cuCtxPopCurrent", Needs::init, [&]() -> int {
    auto& stack = context_stack();
    if (stack.empty()) return invalid_context;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return success;
  });
}

STANDIN_API int cuCtxGetCurrent(Context** context) {
  return call("cuCtxGetCurrent", Needs::init, [&]() -> int {
    *context = context_stack().empty() ? nullptr : context_stack().back();
    return success;
  });
}

STANDIN_API int cuCtxSetCurrent(Context* context) {
  return call("cuCtxSetCurrent", Needs::init, [&]() -> int {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return success;
  });
}

STANDIN_API int cuCtxGetDevice(int* device) {
  return call("cuCtxGetDevice", Needs::context, [&]() -> int {
    *device = current().device;
    return success;
  });
}

STANDIN_API int cuCtxSynchronize() {
  return call("cuCtxSynchronize", Needs::context, [&]() -> int { return synchronize(current()); });
}

STANDIN_API int cuGetProcAddress(const char* symbol, void** function, int, std::uint64_t) {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&cuInit), &self) == 0) return unknown;
  void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = nullptr;
  for (const char* version : {"_v3", "_v2", ""}) {
    if (*function == nullptr) *function = dlsym(library, (std::string(symbol) + version).c_str());
  }
  dlclose(library);
  return *function == nullptr ? not_found : success;
}
STANDIN_API int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                    std::uint64_t flags, int* status) {
  const int result = cuGetProcAddress(symbol, function, version, flags);
  if (status != nullptr) *status = result == success ? 0 : 1;
  return result == not_found ? success : result;
}
