// The structures of DLPack's C interface, without and with a version.
#pragma once

#include <cstdint>

namespace octavo::python {

struct DLTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor* self);
};
inline constexpr const char* dl_unversioned = "dltensor";

struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major;
    std::uint32_t minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor tensor;
};
inline constexpr const char* dl_versioned = "dltensor_versioned";
inline constexpr std::uint64_t dl_read_only = 1;

// Kinds of devices.
inline constexpr std::int32_t dl_cpu = 1;
inline constexpr std::int32_t dl_cuda = 2;
inline constexpr std::int32_t dl_cuda_managed = 13;
constexpr bool is_dl_cuda(long kind) { return kind == dl_cuda || kind == dl_cuda_managed; }

// Types of elements.
inline constexpr std::uint8_t dl_integer = 0;
inline constexpr std::uint8_t dl_natural = 1;
inline constexpr std::uint8_t dl_float = 2;
inline constexpr std::uint8_t dl_bfloat = 4;
inline constexpr std::uint8_t dl_boolean = 6;

}  // namespace octavo::python
