// Packed weights, and what Python keeps beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "array.hpp"
#include "octavo/packed_weight.hpp"

namespace octavo::python {

/// Scales or zero points of output channels: one for each, or one for all.
struct Kept {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes = {};
  std::shared_ptr<const Block> block = nullptr;  // on a device, instead of the bytes

  [[nodiscard]] std::size_t size() const { return block ? block->bytes() : bytes.size(); }
  [[nodiscard]] std::int64_t count() const {
    return static_cast<std::int64_t>(size()) / bytes_for(dtype, 1);
  }
  [[nodiscard]] TensorRef ref() const {
    const void* const data = block ? block->memory() : bytes.data();
    return {data, dtype, Shape{count()}};
  }
};

/// The class PackedWeight of the module.
struct PyPackedWeight {
  PackedWeight packed;  // holds the scales and zero points of groups
  std::optional<Kept> scale = {};
  std::optional<Kept> zero_point = {};
  Maker maker = Maker::numpy;  // of what it was packed from
  int device = -1;             // that it lies on; -1: the host's memory
  // The streams that calls with it run on. (The last member: it is the first to go.)
  std::shared_ptr<Readers> readers = std::make_shared<Readers>();

  [[nodiscard]] bool has_scale() const { return scale || packed.format().group != 0; }
  [[nodiscard]] bool has_zero_point() const { return zero_point || packed.format().zero_points; }
};

}  // namespace octavo::python
