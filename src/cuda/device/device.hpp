// What device code is made of: the keywords of CUDA, the standard headers, and our own, each
// function of which is there for host and device alike. Only .cu files include it, and first. It
// takes the place of NVIDIA's headers.
#pragma once

#if !defined(__CUDA__) || !defined(__clang__)
#error "cuda/device/device.hpp is for clang's CUDA"
#endif

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))  // (alignas goes before it)
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define OCTAVO_DEVICE __attribute__((device, always_inline)) inline

#include <stddef.h>

// What clang's wrappers of the standard headers name.
extern "C" __attribute__((device)) void* malloc(size_t bytes);
extern "C" __attribute__((device)) void free(void* memory);

// Functions of <cmath> that are not constexpr in libstdc++, and so are the host's alone: those of
// the device stand beside them before <cmath> brings both into std. Each is one correctly rounded
// instruction.
#define OCTAVO_DEVICE_MATH(type, name, builtin, parameters, ...)                  \
  extern "C" __attribute__((device, always_inline)) inline type name parameters { \
    return builtin(__VA_ARGS__);                                                  \
  }
OCTAVO_DEVICE_MATH(double, nearbyint, __builtin_nearbyint, (double x), x)
OCTAVO_DEVICE_MATH(float, nearbyintf, __builtin_nearbyintf, (float x), x)
OCTAVO_DEVICE_MATH(double, rint, __builtin_rint, (double x), x)
OCTAVO_DEVICE_MATH(float, rintf, __builtin_rintf, (float x), x)
OCTAVO_DEVICE_MATH(double, fabs, __builtin_fabs, (double x), x)
OCTAVO_DEVICE_MATH(float, fabsf, __builtin_fabsf, (float x), x)
OCTAVO_DEVICE_MATH(double, ceil, __builtin_ceil, (double x), x)
OCTAVO_DEVICE_MATH(float, ceilf, __builtin_ceilf, (float x), x)
OCTAVO_DEVICE_MATH(double, floor, __builtin_floor, (double x), x)
OCTAVO_DEVICE_MATH(float, floorf, __builtin_floorf, (float x), x)
OCTAVO_DEVICE_MATH(double, fma, __builtin_fma, (double x, double y, double z), x, y, z)
OCTAVO_DEVICE_MATH(float, fmaf, __builtin_fmaf, (float x, float y, float z), x, y, z)
OCTAVO_DEVICE_MATH(double, copysign, __builtin_copysign, (double x, double y), x, y)
OCTAVO_DEVICE_MATH(float, copysignf, __builtin_copysignf, (float x, float y), x, y)
#undef OCTAVO_DEVICE_MATH

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

// One arithmetic: the very headers of the CPU.
#pragma clang force_cuda_host_device begin
#include "numerics/affine.hpp"
#include "numerics/affine_f32.hpp"
#include "numerics/dynamic_range.hpp"
#include "numerics/half.hpp"
#include "numerics/linear.hpp"
#include "numerics/quotient.hpp"
#include "numerics/segments.hpp"
#include "numerics/stored_scale.hpp"
#include "numerics/types.hpp"
#pragma clang force_cuda_host_device end

#include "cuda/device/intrinsics.hpp"
