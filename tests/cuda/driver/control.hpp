// What tests and benchmarks ask of the stand-in driver beyond the driver's own functions. They link
// nothing: the table is found in the libcuda.so.1 that the process has loaded, if that is the
// stand-in.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace standin {

// Sums over all launches of a kernel of that name.
struct KernelCounters {
  const char* name;
  std::uint64_t launches;
  std::uint64_t blocks;
  std::uint64_t warp_instructions;
  std::uint64_t thread_instructions;
  std::uint64_t mma;                  // mma.sync, of warps
  std::uint64_t double_instructions;  // f64 arithmetic, of warps
  std::uint64_t atomics;              // of threads
  // The following are counted only while counting is on.
  std::uint64_t global_requests;    // of warps
  std::uint64_t global_bytes_read;  // that threads ask for
  std::uint64_t global_bytes_written;
  std::uint64_t sectors;        // of 32 bytes, distinct within a request
  std::uint64_t ideal_sectors;  // that the distinct bytes of the request would fill
  std::uint64_t
      touched_bytes_read;  // distinct sectors of a launch, in bytes: least traffic of the memory
  std::uint64_t touched_bytes_written;
  std::uint64_t shared_requests;   // of warps
  std::uint64_t shared_conflicts;  // further passes because of bank conflicts
};

// What has been made and not yet destroyed.
struct Live {
  std::uint64_t allocations;  // of device memory
  std::uint64_t host_allocations;
  std::uint64_t streams;
  std::uint64_t events;
  std::uint64_t modules;
  std::uint64_t contexts;  // primary contexts that are retained, each as often as it is
};

struct Control {
  std::uint32_t size;  // of this table

  // The order of warps, blocks and streams; 0 is the plain one.
  void (*set_seed)(std::uint64_t seed);

  // The nth call from now (1 is the next) of a driver function, named without _v2, gives this
  // CUresult and does nothing. Results from 700 on stay with the context, as after a fault of a
  // kernel. An nth of 0 takes it back.
  void (*inject)(const char* function, std::uint64_t nth, int result);
  void (*clear_injections)();
  // Calls of a driver function since the last reset.
  std::uint64_t (*calls)(const char* function);
  void (*reset_calls)();

  Live (*live)();
  // What the last fault or refusal said; empty if there was none since the last reset.
  const char* (*message)();
  // Makes contexts usable that have faulted, and forgets injections, messages and calls.
  void (*reset)();

  void (*set_counting)(bool on);
  void (*reset_counters)();
  std::uint64_t (*counter_count)();
  // Valid until the next call of it; false when there is no such index.
  bool (*counters)(std::uint64_t index, KernelCounters* into);

  // Devices there are, all of one capability (80 is 8.0). Only while no context is retained.
  bool (*set_devices)(int count, int capability);
  // Bytes of each device's memory.
  void (*set_memory)(std::uint64_t bytes);
  // Commands that wait in streams.
  std::uint64_t (*pending)();

  // The table of the loaded driver; none if none is loaded, or NVIDIA's.
  static const Control* find() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    const auto get =
        reinterpret_cast<const Control* (*)()>(dlsym(library, "octavo_standin_control"));
    dlclose(library);
    return get == nullptr ? nullptr : get();
  }
};

}  // namespace standin
