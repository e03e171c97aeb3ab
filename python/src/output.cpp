// Arrays that are written: given ones, and new ones.
#include <fmt/core.h>

#include <array>

#include "array.hpp"
#include "device_array.hpp"
#include "error.hpp"
#include "octavo/dtype.hpp"
#include "on.hpp"
#include "torch.hpp"

namespace octavo::python {
namespace {

// (Not the initialiser of a static: an import may hand the GIL to a thread that then waits for that
// initialiser, for ever.)
nb::handle numpy_empty() {
  static PyObject* empty = nullptr;
  if (empty == nullptr)
    empty = nb::object(nb::module_::import_("numpy").attr("empty")).release().ptr();
  return empty;
}

nb::handle cached_dtype(Held held, const char* asked_by) {
  static std::array<PyObject*, held_count> all{};
  PyObject*& dtype = all[static_cast<std::size_t>(held)];
  if (dtype == nullptr) {
    if (held == Held::bf16) {
      try {
        dtype = nb::object(nb::module_::import_("ml_dtypes").attr("bfloat16")).release().ptr();
      } catch (nb::python_error&) {
        unsupported(asked_by,
                    "expected the package ml_dtypes for NumPy arrays of bf16, got none; "
                    "install it, or pass PyTorch tensors");
      }
    } else {
      dtype = nb::object(nb::module_::import_("numpy").attr("dtype")(name(held))).release().ptr();
    }
  }
  return dtype;
}

}  // namespace

nb::object numpy_dtype(Held held, const char* asked_by) {
  return nb::module_::import_("numpy").attr("dtype")(cached_dtype(held, asked_by));
}

nb::object tuple_of(const Shape& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
  return tuple;
}

Shape stored_shape(const Shape& shape, DType dtype) {
  Shape stored = shape;
  if (is_packed(dtype) && shape.rank() > 0)
    stored[shape.rank() - 1] = (shape[shape.rank() - 1] + 1) / 2;
  return stored;
}

Array Array::make(Maker maker, const Shape& shape, DType dtype, const char* asked_by, On* on) {
  Array made;
  made.shape = stored_shape(shape, dtype);
  made.held = held_for(dtype);
  if (maker == Maker::device) {
    auto array = std::make_unique<DeviceArray>(on->queue(), made.held, made.shape);
    return Array(nb::cast(array.release(), nb::rv_policy::take_ownership), "out", *on, true);
  }
  const nb::object sizes = tuple_of(made.shape);
  if (maker == Maker::numpy)
    return Array(numpy_empty()(sizes, cached_dtype(made.held, asked_by)), "out", true);
  if (on != nullptr && on->torch_device().is_valid())
    return Array(empty_tensor(sizes, made.held, on->torch_device()), "out", *on, true);
  // All but its address is known; but PyTorch has modes in which a new tensor has none.
  made.object = empty_tensor(sizes, made.held);
  made.data = data_of_tensor(made.object);
  if (made.data == nullptr && made.numel() > 0) return Array(made.object, "out", true);
  made.maker = maker;
  made.strides = contiguous_strides(made.shape, DType::s8);
  return made;
}

Output::Output(nb::handle out, Maker maker, const Shape& shape, DType dtype, On& on,
               const char* asked_by) {
  array_.emplace(out.is_none() ? Array::make(maker, shape, dtype, asked_by, &on)
                               : Array(out, "out", on, true));
  const auto expect_shape = [&](const Shape& expected, const char* why) {
    if (!(array_->shape == expected))
      invalid("out", fmt::format("expected shape {}{}, got {}", to_string(expected), why,
                                 to_string(array_->shape)));
  };
  if (!is_packed(dtype)) {
    expect_shape(shape, "");
    tensor_ = {array_->data, array_->dtype(), array_->shape, array_->strides};
    return;
  }
  if (array_->held != Held::u8)
    unsupported("out", fmt::format("expected uint8, which {} is held in two to a byte, got {}",
                                   octavo::name(dtype), name(array_->held)));
  expect_shape(stored_shape(shape, dtype), " (two values to a byte)");
  Shape strides = array_->strides;
  const int last = strides.rank() - 1;
  if (last >= 0 && array_->shape[last] > 1 && strides[last] != 1)
    invalid("out", "expected rows of consecutive bytes, got a stride between them");
  for (int i = 0; i < last; ++i) strides[i] *= 2;
  if (last >= 0) strides[last] = 1;
  tensor_ = {array_->data, dtype, shape, strides};
}

}  // namespace octavo::python
