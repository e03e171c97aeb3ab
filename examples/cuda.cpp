// Quantizes on a GPU: the plans are those of the CPU, the memory is the device's.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <octavo/octavo.hpp>

// What a program takes from <cuda.h>, the CUDA runtime or its framework: copies to the device and
// back.
template <class Function>
Function* in_driver(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(driver, name));
}
using DevicePointer = unsigned long long;
bool to_device(const void* to, const void* from, std::size_t bytes) {
  const auto copy = in_driver<int(DevicePointer, const void*, std::size_t)>("cuMemcpyHtoD_v2");
  return copy(reinterpret_cast<DevicePointer>(to), from, bytes) == 0;
}
bool to_host(void* to, const void* from, std::size_t bytes) {
  const auto copy = in_driver<int(void*, DevicePointer, std::size_t)>("cuMemcpyDtoH_v2");
  return copy(to, reinterpret_cast<DevicePointer>(from), bytes) == 0;
}
bool use_device() {  // as cudaSetDevice(0)
  void* context = nullptr;
  return in_driver<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0 &&
         in_driver<int(void*)>("cuCtxSetCurrent")(context) == 0;
}

int fail(const octavo::Error& error) {
  std::puts(error.message().c_str());
  return 1;
}

int main() {
  const auto gpu = octavo::Stream::cuda();  // {.stream = s} for a cudaStream_t that there is
  if (!gpu) return fail(gpu.error());
  if (!use_device()) return 1;
  const std::array<float, 4> weights{0.314F, -1.272F, 0.045F, 1.5F};
  const octavo::WorkspaceBuffer memory(*gpu, 1024);  // any memory of the device will do
  auto* input = static_cast<char*>(static_cast<octavo::Workspace>(memory).data);
  auto* output = input + 512;
  if (!to_device(input, weights.data(), sizeof weights)) return 1;

  const auto plan = octavo::QuantizePerTensorPlan::select(*gpu, {.numel = 4});
  if (!plan) return fail(plan.error());
  octavo::PerTensorArgs args{.input = {input, octavo::DType::f32, {4}},
                             .scale = 0.01,
                             .output = {output, octavo::DType::s8, {4}}};
  auto status = plan->run(*gpu, {}, args);  // returns when it is queued
  args.scale = 0;
  if (status) status = plan->run(*gpu, {}, args);  // writes nothing, which is told below
  if (!status) return fail(status.error());
  const auto told = gpu->synchronize();
  std::puts(told ? "nothing was wrong" : told.error().message().c_str());

  std::array<std::int8_t, 4> q{};
  if (!to_host(q.data(), output, sizeof q)) return 1;
  for (const std::int8_t value : q) std::printf("%d ", value);
  std::puts("");
}
