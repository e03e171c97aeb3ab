// Modules, functions and launches.
#include <algorithm>
#include <cstring>

#include "tests/cuda/driver/decode.hpp"
#include "tests/cuda/driver/driver.hpp"

using namespace standin;

namespace {

void place_variables(Module& m) {
  Memory& memory = *driver().memory;
  for (Variable& v : m.text.variables) {
    if (v.space == Space::constant) {
      const u64 at = (m.const_bank.size() + v.align - 1) / v.align * v.align;
      m.const_bank.resize(at + v.size);
      std::copy(v.init.begin(), v.init.end(),
                m.const_bank.begin() + static_cast<std::ptrdiff_t>(at));
      v.address = at;
    } else if (v.space == Space::global) {
      v.address = memory.allocate(std::max<u64>(v.size, 1), m.context->device, m.context, true);
      if (v.address == 0) throw std::bad_alloc();
      std::memcpy(memory.bytes(v.address, v.size), v.init.data(), v.size);
      m.variables.push_back(v.address);
    }
  }
  if (m.const_bank.size() > 65536) throw Refused(0, "more than 64 KB of constant memory");
}

std::unique_ptr<Module> load(const char* image) {
  Driver& d = driver();
  auto m = std::make_unique<Module>();
  m->context = &current();
  m->text = parse(image);
  if (m->text.version > 84) throw Failure{unsupported_ptx_version};
  const std::string& target = m->text.target;
  if (target.rfind("sm_", 0) != 0) throw Refused(0, "the target " + target);
  if (std::atoi(target.c_str() + 3) > d.capability) {
    report("the module's target is " + target + ", the device has " + std::to_string(d.capability));
    throw Failure{no_binary_for_gpu};
  }
  place_variables(*m);
  for (const Function& f : m->text.functions) {
    if (!f.entry) continue;
    m->kernels.push_back(decode(m->text, f, operations()));
    Kernel& k = *m->kernels.back();
    k.const_bank = m->const_bank.data();
    k.const_bytes = static_cast<u32>(m->const_bank.size());
    if (k.shared_bytes > 49152)
      throw Refused(f.line, f.name + " has more than 48 KB of static shared memory");
    auto function = std::make_unique<Function_>();
    function->module = m.get();
    function->kernel = &k;
    d.functions.insert(function.get());
    m->functions.push_back(std::move(function));
  }
  return m;
}

// The buffer of the JIT's errors, if the caller gave one.
void write_log(unsigned count, const int* options, void** values, const std::string& text) {
  char* log = nullptr;
  u64 size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) log = static_cast<char*>(values[i]);
    if (options[i] == 6) size = reinterpret_cast<u64>(values[i]) & 0xffffffffu;
  }
  if (log == nullptr || size == 0) return;
  std::strncpy(log, text.c_str(), size);
  log[size - 1] = 0;
}

int load_module(Module** module, const void* image, unsigned count, const int* options,
                void** values) {
  if (module == nullptr || image == nullptr) return invalid_value;
  if (static_cast<const char*>(image)[0] == 0x7f) return no_binary_for_gpu;
  try {
    auto m = load(static_cast<const char*>(image));
    *module = m.get();
    driver().modules.emplace(m.get(), std::move(m));
    return success;
  } catch (const Refused& r) {
    report(std::string("PTX refused: ") + r.what());
    write_log(count, options, values, r.what());
    return invalid_ptx;
  }
}

Module& module_of(void* handle) {
  const auto found = driver().modules.find(handle);
  if (found == driver().modules.end()) throw Failure{invalid_handle};
  return *found->second;
}

Function_& function_of(void* handle) {
  if (!driver().functions.contains(handle)) throw Failure{invalid_handle};
  return *static_cast<Function_*>(handle);
}

int opt_in_shared() {
  const int cc = driver().capability;
  return cc == 90 || cc == 100 || cc == 103 ? 232448
         : cc == 80 || cc == 87             ? 166912
         : cc < 80                          ? 65536
                                            : 101376;
}

std::vector<u8> gather(const Kernel& k, void** params, void** extra) {
  std::vector<u8> bytes(k.param_bytes);
  if (params != nullptr) {
    for (std::size_t i = 0; i < k.param_sizes.size(); ++i) {
      if (params[i] == nullptr) throw Failure{invalid_value};
      std::memcpy(bytes.data() + k.param_offsets[i], params[i], k.param_sizes[i]);
    }
  } else if (extra != nullptr) {
    const void* buffer = nullptr;
    std::size_t size = 0;
    for (; *extra != nullptr; extra += 2) {
      if (reinterpret_cast<u64>(extra[0]) == 1)
        buffer = extra[1];
      else if (reinterpret_cast<u64>(extra[0]) == 2)
        size = *static_cast<std::size_t*>(extra[1]);
      else
        throw Failure{invalid_value};
    }
    if (size != bytes.size() || buffer == nullptr) throw Failure{invalid_value};
    std::memcpy(bytes.data(), buffer, size);
  } else if (k.param_bytes != 0) {
    throw Failure{invalid_value};
  }
  return bytes;
}

int refuse_launch(const Kernel& k, const std::string& why, int result = invalid_value) {
  report("launch of " + k.name + ": " + why);
  return result;
}

int check_launch(const Kernel& k, const Launch& l) {
  const u64 threads = u64{l.threads[0]} * l.threads[1] * l.threads[2];
  if (l.grid[0] == 0 || l.grid[1] == 0 || l.grid[2] == 0 || threads == 0)
    return refuse_launch(k, "no blocks or no threads");
  if (l.grid[0] > 0x7fffffffu || l.grid[1] > 65535 || l.grid[2] > 65535)
    return refuse_launch(k, "too many blocks");
  if (l.threads[0] > 1024 || l.threads[1] > 1024 || l.threads[2] > 64 || threads > 1024)
    return refuse_launch(k, "too many threads");
  if (threads > k.max_threads)
    return refuse_launch(k, "more threads than its .maxntid", launch_out_of_resources);
  if (static_cast<u64>(l.dynamic_shared) > static_cast<u64>(k.max_dynamic_shared) ||
      u64{k.shared_bytes} + l.dynamic_shared > static_cast<u64>(std::max(opt_in_shared(), 49152)) ||
      (k.max_dynamic_shared <= 49152 && u64{k.shared_bytes} + l.dynamic_shared > 49152)) {
    return refuse_launch(k, "more shared memory than it may have");
  }
  return success;
}

}  // namespace

STANDIN_API int cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* options,
                                   void** values) {
  return call("cuModuleLoadDataEx", Needs::context,
              [&] { return load_module(module, image, count, options, values); });
}

STANDIN_API int cuModuleLoadData(Module** module, const void* image) {
  return call("cuModuleLoadData", Needs::context,
              [&] { return load_module(module, image, 0, nullptr, nullptr); });
}

STANDIN_API int cuModuleUnload(Module* module) {
  return call("cuModuleUnload", Needs::context, [&]() -> int {
    Module& m = module_of(module);
    synchronize(*m.context);
    for (const u64 v : m.variables) driver().memory->release_module(v);
    unload(m);
    return success;
  });
}

STANDIN_API int cuModuleGetFunction(void** function, Module* module, const char* name) {
  return call("cuModuleGetFunction", Needs::context, [&]() -> int {
    for (const auto& f : module_of(module).functions) {
      if (f->kernel->name == name) {
        *function = f.get();
        return success;
      }
    }
    return not_found;
  });
}

STANDIN_API int cuModuleGetGlobal_v2(u64* address, std::size_t* bytes, Module* module,
                                     const char* name) {
  return call("cuModuleGetGlobal", Needs::context, [&]() -> int {
    for (const Variable& v : module_of(module).text.variables) {
      if (v.space == Space::global && v.name == name) {
        if (address != nullptr) *address = v.address;
        if (bytes != nullptr) *bytes = v.size;
        return success;
      }
    }
    return not_found;
  });
}

STANDIN_API int cuFuncGetAttribute(int* value, int which, void* function) {
  return call("cuFuncGetAttribute", Needs::context, [&]() -> int {
    const Kernel& k = *function_of(function).kernel;
    switch (which) {
      case 0:
        *value = static_cast<int>(k.max_threads);
        return success;
      case 1:
        *value = static_cast<int>(k.shared_bytes);
        return success;
      case 2:
        *value = static_cast<int>(k.const_bytes);
        return success;
      case 3:
        *value = static_cast<int>(k.local_bytes);
        return success;
      case 4:
        *value = static_cast<int>(std::min(k.registers, 255u));
        return success;
      case 5:
      case 6:
        *value = driver().capability;
        return success;
      case 7:
        *value = 0;
        return success;
      case 8:
        *value = k.max_dynamic_shared;
        return success;
      case 9:
        *value = -1;
        return success;
      default:
        return invalid_value;
    }
  });
}

STANDIN_API int cuFuncSetAttribute(void* function, int which, int value) {
  return call("cuFuncSetAttribute", Needs::context, [&]() -> int {
    Kernel& k = *function_of(function).kernel;
    if (which == 9) return value < -1 || value > 100 ? invalid_value : success;
    if (which != 8 || value < 0 || static_cast<int>(k.shared_bytes) + value > opt_in_shared())
      return invalid_value;
    k.max_dynamic_shared = value;
    return success;
  });
}

STANDIN_API int cuFuncSetCacheConfig(void* function, int) {
  return call("cuFuncSetCacheConfig", Needs::context, [&]() -> int {
    function_of(function);
    return success;
  });
}

// About: by threads and shared memory alone.
STANDIN_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function,
                                                            int threads, std::size_t dynamic) {
  return call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Needs::context, [&]() -> int {
    const Kernel& k = *function_of(function).kernel;
    if (threads <= 0) return invalid_value;
    const u64 shared = k.shared_bytes + dynamic + 1024;
    *blocks = static_cast<int>(std::min<u64>(
        {32, 2048 / static_cast<u64>(threads), static_cast<u64>(opt_in_shared() + 1024) / shared}));
    return success;
  });
}

STANDIN_API int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* function,
                                                 std::size_t (*)(int), std::size_t, int limit) {
  return call("cuOccupancyMaxPotentialBlockSize", Needs::context, [&]() -> int {
    const Kernel& k = *function_of(function).kernel;
    *block = static_cast<int>(std::min(k.max_threads, limit > 0 ? static_cast<u32>(limit) : 1024u));
    *grid = driver().multiprocessors * std::max(1, 2048 / *block);
    return success;
  });
}

STANDIN_API int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned threads_x, unsigned threads_y, unsigned threads_z,
                               unsigned shared_bytes, void* stream, void** params, void** extra) {
  return call("cuLaunchKernel", Needs::context, [&]() -> int {
    Function_& f = function_of(function);
    if (f.module->context != &current()) return invalid_handle;
    const auto s = stream_of(stream);
    Launch l;
    l.kernel = f.kernel;
    l.grid[0] = grid_x, l.grid[1] = grid_y, l.grid[2] = grid_z;
    l.threads[0] = threads_x, l.threads[1] = threads_y, l.threads[2] = threads_z;
    l.dynamic_shared = shared_bytes;
    l.device = f.module->context->device;
    const int result = check_launch(*f.kernel, l);
    if (result != success) return result;
    l.params = gather(*f.kernel, params, extra);
    enqueue(s, [launch = std::move(l)] {
      Driver& d = driver();
      ++d.launches;
      execute(launch, *d.memory, d.seed == 0 ? 0 : d.seed * 0x9e3779b97f4a7c15u + d.launches,
              d.counting);
    });
    return success;
  });
}
