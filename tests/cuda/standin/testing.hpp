// The stand-in driver as a program meets it: opened at run time, its functions by name.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/driver/control.hpp"

namespace standin_test {

using u8 = std::uint8_t;
using s8 = std::int8_t;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

enum : int {
  invalid_value = 1,
  out_of_memory = 2,
  invalid_ptx = 218,
  not_ready = 600,
  illegal_address = 700,
  misaligned_address = 716,
  launch_failed = 719,
};

inline void* library() {
  static void* opened = dlopen(STANDIN_LIBRARY, RTLD_NOW);
  if (opened == nullptr) throw std::runtime_error(dlerror());
  return opened;
}

// A function of the driver, called with what is given.
template <class... Args>
int cu(const char* name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library(), name));
  if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
  return function(args...);
}

inline const standin::Control& control() {
  library();
  return *standin::Control::find();
}

#define MUST(...) ASSERT_EQ(cu(__VA_ARGS__), 0) << control().message()

inline std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

inline std::string file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Samples are compiled while building, where there is a clang that makes PTX.
inline std::string sample(const std::string& name) {
  return file(std::string(STANDIN_SAMPLES) + "/" + name + ".ptx");
}

constexpr const char* ptx_head = ".version 7.0\n.target sm_80\n.address_size 64\n";

// One context for each test; what is left in it at the end is a leak.
class Standin : public ::testing::Test {
 protected:
  void SetUp() override {
    control().reset();
    control().set_seed(0);
    control().reset_counters();
    control().set_devices(1, 80);
    MUST("cuInit", 0u);
    void* context = nullptr;
    MUST("cuDevicePrimaryCtxRetain", &context, 0);
    MUST("cuCtxPushCurrent_v2", context);
  }
  void TearDown() override {
    control().reset();
    cu("cuCtxPopCurrent_v2", static_cast<void**>(nullptr));
    cu("cuDevicePrimaryCtxRelease_v2", 0);
    const standin::Live live = control().live();
    EXPECT_EQ(live.contexts + live.modules + live.streams + live.allocations, 0u);
  }

  void* load(const std::string& ptx) {
    void* module = nullptr;
    EXPECT_EQ(cu("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str())), 0)
        << control().message();
    return module;
  }
  void* function(void* module, const char* name) {
    void* f = nullptr;
    EXPECT_EQ(cu("cuModuleGetFunction", &f, module, name), 0);
    return f;
  }
  void* function(const std::string& ptx, const char* name) {
    void* module = load(ptx);
    return module == nullptr ? nullptr : function(module, name);
  }

  u64 allocate(u64 bytes) {
    u64 address = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &address, static_cast<std::size_t>(bytes)), 0);
    return address;
  }
  template <class T>
  u64 upload(const std::vector<T>& values) {
    const u64 address = allocate(values.size() * sizeof(T));
    EXPECT_EQ(cu("cuMemcpyHtoD_v2", address, static_cast<const void*>(values.data()),
                 values.size() * sizeof(T)),
              0);
    return address;
  }
  template <class T>
  std::vector<T> download(u64 address, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cu("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), address, count * sizeof(T)),
              0);
    return values;
  }

  template <class Args>
  int launch(void* f, u32 blocks, u32 threads, const Args& args, u32 shared = 0,
             void* stream = nullptr, u32 blocks_y = 1) {
    void* params[] = {const_cast<Args*>(&args)};
    return cu("cuLaunchKernel", f, blocks, blocks_y, 1u, threads, 1u, 1u, shared, stream,
              static_cast<void**>(params), static_cast<void**>(nullptr));
  }
  // The launch and what a synchronize then says.
  template <class Args>
  int run(void* f, u32 blocks, u32 threads, const Args& args, u32 shared = 0, u32 blocks_y = 1) {
    const int result = launch(f, blocks, threads, args, shared, nullptr, blocks_y);
    return result != 0 ? result : cu("cuCtxSynchronize");
  }
};

}  // namespace standin_test
