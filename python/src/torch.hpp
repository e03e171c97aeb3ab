// What is asked of PyTorch, once somebody has imported it; the module itself never does.
#pragma once

#include "array.hpp"

namespace octavo::python {

/// Whether it is a tensor of PyTorch's.
[[nodiscard]] bool is_tensor(nb::handle object);

/// A new tensor; only where a tensor was seen before. On the CPU, unless there is a device.
[[nodiscard]] nb::object empty_tensor(const nb::object& sizes, Held held, nb::handle device = {});

/// Where its elements are; null if it has none.
[[nodiscard]] void* data_of_tensor(nb::handle tensor);

}  // namespace octavo::python
