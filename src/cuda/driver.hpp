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

// The functions that are called; driver.cpp has their names in the library.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*driver_version)(int* version) = nullptr;
  int (*error_name)(int error, const char** text) = nullptr;
  int (*error_string)(int error, const char** text) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int bytes, int device) = nullptr;
  int (*device_memory)(std::size_t* bytes, int device) = nullptr;
  int (*device_attribute)(int* value, DeviceAttribute attribute, int device) = nullptr;
  int (*context_retain)(ContextHandle* context, int device) = nullptr;
  int (*context_release)(int device) = nullptr;
  int (*context_push)(ContextHandle context) = nullptr;
  int (*context_pop)(ContextHandle* context) = nullptr;
  int (*context_synchronize)() = nullptr;
  int (*module_load)(ModuleHandle* module, const void* image) = nullptr;
  int (*module_unload)(ModuleHandle module) = nullptr;
  int (*module_function)(FunctionHandle* function, ModuleHandle module, const char* name) = nullptr;
  int (*function_attribute)(FunctionHandle function, int attribute, int value) = nullptr;
  int (*launch)(FunctionHandle function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                StreamHandle stream, void** parameters, void** extra) = nullptr;
  int (*stream_create)(StreamHandle* stream, unsigned flags) = nullptr;
  int (*stream_destroy)(StreamHandle stream) = nullptr;
  int (*stream_synchronize)(StreamHandle stream) = nullptr;
  int (*stream_context)(StreamHandle stream, ContextHandle* context) = nullptr;
  int (*stream_wait)(StreamHandle stream, EventHandle event, unsigned flags) = nullptr;
  int (*event_create)(EventHandle* event, unsigned flags) = nullptr;
  int (*event_record)(EventHandle event, StreamHandle stream) = nullptr;
  int (*event_query)(EventHandle event) = nullptr;
  int (*event_destroy)(EventHandle event) = nullptr;
  int (*memory_allocate)(DevicePointer* memory, std::size_t bytes) = nullptr;
  int (*memory_free)(DevicePointer memory) = nullptr;
  int (*copy_to_device)(DevicePointer to, const void* from, std::size_t bytes,
                        StreamHandle stream) = nullptr;
  int (*copy_to_host)(void* to, DevicePointer from, std::size_t bytes,
                      StreamHandle stream) = nullptr;
  int (*copy_on_device)(DevicePointer to, DevicePointer from, std::size_t bytes,
                        StreamHandle stream) = nullptr;
  int (*set_bytes)(DevicePointer to, unsigned char value, std::size_t bytes,
                   StreamHandle stream) = nullptr;
  int (*pointer_attributes)(unsigned count, PointerAttribute* attributes, void** values,
                            DevicePointer pointer) = nullptr;
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
