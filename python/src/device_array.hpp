// DeviceArray: what results on a device are where no framework makes them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "array.hpp"
#include "queue.hpp"

namespace octavo::python {

/// A contiguous array in memory of a device.
class DeviceArray {
 public:
  /// A new one, with memory that is anything, in the order of a stream.
  DeviceArray(const QueuePtr& queue, Held type, const Shape& sizes);

  [[nodiscard]] std::size_t bytes() const { return block->bytes(); }
  [[nodiscard]] const QueuePtr& queue() const { return block->queue(); }

  const Held held;
  const Shape shape;
  const std::shared_ptr<Block> block;
};

/// Adds DeviceArray, and what octavo.cuda is made of.
void define_cuda(nb::module_& m);

}  // namespace octavo::python
