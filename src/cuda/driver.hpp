// The driver of CUDA devices: libcuda.so.1, opened at run time, and its functions in a table.
// Nothing of NVIDIA's is needed to build; a machine without it is told so by an error value.
#pragma once

#include <cstddef>

#include "octavo/result.hpp"

namespace octavo::cuda {

// Of the driver's ABI, as it has been since CUDA 4.
using DevicePointer = unsigned long long;
using ContextHandle = struct CUctx_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;

inline constexpr int success = 0;

// Those attributes and values that are asked for.
enum DeviceAttribute : int {
  max_shared_per_block = 8,
  multiprocessors = 16,
  compute_major = 75,
  compute_minor = 76,
  max_shared_per_block_optin = 97,
};
enum PointerAttribute : int {
  pointer_memory_type = 2,
  pointer_is_managed = 8,
  pointer_device = 9,
};
enum MemoryType : unsigned { memory_host = 1, memory_device = 2 };
inline constexpr int function_max_dynamic_shared = 8;  // an attribute of functions
inline constexpr unsigned event_disable_timing = 2;

// name in the table, name in the library, parameters
#define OCTAVO_CUDA_DRIVER(X)                                                                      \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driver_version, "cuDriverGetVersion", (int* version))                                          \
  X(error_name, "cuGetErrorName", (int error, const char** text))                                  \
  X(error_string, "cuGetErrorString", (int error, const char** text))                              \
  X(device_count, "cuDeviceGetCount", (int* count))                                                \
  X(device_get, "cuDeviceGet", (int* device, int ordinal))                                         \
  X(device_name, "cuDeviceGetName", (char* name, int bytes, int device))                           \
  X(device_memory, "cuDeviceTotalMem_v2", (std::size_t * bytes, int device))                       \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, DeviceAttribute attribute, int device)) \
  X(context_retain, "cuDevicePrimaryCtxRetain", (ContextHandle * context, int device))             \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                 \
  X(context_push, "cuCtxPushCurrent_v2", (ContextHandle context))                                  \
  X(context_pop, "cuCtxPopCurrent_v2", (ContextHandle * context))                                  \
  X(context_synchronize, "cuCtxSynchronize", ())                                                   \
  X(module_load, "cuModuleLoadData", (ModuleHandle * module, const void* image))                   \
  X(module_unload, "cuModuleUnload", (ModuleHandle module))                                        \
  X(module_function, "cuModuleGetFunction",                                                        \
    (FunctionHandle * function, ModuleHandle module, const char* name))                            \
  X(function_attribute, "cuFuncSetAttribute", (FunctionHandle function, int attribute, int value)) \
  X(launch, "cuLaunchKernel",                                                                      \
    (FunctionHandle function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,             \
     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,            \
     StreamHandle stream, void** parameters, void** extra))                                        \
  X(stream_create, "cuStreamCreate", (StreamHandle * stream, unsigned flags))                      \
  X(stream_destroy, "cuStreamDestroy_v2", (StreamHandle stream))                                   \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle stream))                              \
  X(stream_context, "cuStreamGetCtx", (StreamHandle stream, ContextHandle * context))              \
  X(stream_wait, "cuStreamWaitEvent", (StreamHandle stream, EventHandle event, unsigned flags))    \
  X(event_create, "cuEventCreate", (EventHandle * event, unsigned flags))                          \
  X(event_record, "cuEventRecord", (EventHandle event, StreamHandle stream))                       \
  X(event_query, "cuEventQuery", (EventHandle event))                                              \
  X(event_destroy, "cuEventDestroy_v2", (EventHandle event))                                       \
  X(memory_allocate, "cuMemAlloc_v2", (DevicePointer * memory, std::size_t bytes))                 \
  X(memory_free, "cuMemFree_v2", (DevicePointer memory))                                           \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                        \
    (DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream))                  \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                          \
    (void* to, DevicePointer from, std::size_t bytes, StreamHandle stream))                        \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                                        \
    (DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream))                \
  X(set_bytes, "cuMemsetD8Async",                                                                  \
    (DevicePointer to, unsigned char value, std::size_t bytes, StreamHandle stream))               \
  X(pointer_attributes, "cuPointerGetAttributes",                                                  \
    (unsigned count, PointerAttribute* attributes, void** values, DevicePointer pointer))

struct Driver {
#define OCTAVO_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  OCTAVO_CUDA_DRIVER(OCTAVO_MEMBER)
#undef OCTAVO_MEMBER
};

/// The driver of this machine, opened and initialised once; or the sentence why there is none,
/// which may be another when it is asked for again.
Result<const Driver*> driver();

/// "stream: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
Error driver_error(const Driver& driver, const char* what, int error);

/// A call of the driver, as a value: check(d, "cuStreamSynchronize", d.stream_synchronize(s)).
inline Status check(const Driver& driver, const char* what, int error) {
  return error == success ? Status() : Status(driver_error(driver, what, error));
}

}  // namespace octavo::cuda
