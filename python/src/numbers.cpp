// Scales, zero points and their like: one number, or an array of them.
#include <cstring>

#include "arguments.hpp"

namespace octavo::python {

Numbers::Numbers(nb::handle value, const char* argument, bool integers, On& on)
    : argument_(argument),
      integers_(integers) {
  read(value, on);
  one_ = one_ || single_;
}

void Numbers::read(nb::handle value, On& on) {
  const char* const argument = argument_;
  const bool integers = integers_;
  if (value.is_none()) {
    given_ = false;
    single_ = true;
    return;
  }
  if (PyBool_Check(value.ptr()) != 0)
    invalid(argument, fmt::format("expected numbers, got {}", describe(value)));
  if (!integers && PyFloat_Check(value.ptr()) != 0) {
    single_ = true;
    value_ = PyFloat_AS_DOUBLE(value.ptr());
    return;
  }
  if (PyLong_Check(value.ptr()) != 0) {
    single_ = true;
    if (integers) {
      value_ = *parse_int32(value, argument);
      return;
    }
    value_ = PyLong_AsDouble(value.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      invalid(argument,
              fmt::format("expected a number that a float can hold, got {}", describe(value)));
    }
    return;
  }
  if (integers && PyFloat_Check(value.ptr()) != 0)
    unsupported(argument, fmt::format("expected integers, got {}", describe(value)));
  nb::object object = nb::borrow(value);
  // Numbers that are no arrays, such as the scalars of ml_dtypes.
  if (!integers && PyObject_CheckBuffer(value.ptr()) == 0 && !nb::hasattr(value, "__dlpack__") &&
      !nb::hasattr(value, "__cuda_array_interface__") && nb::hasattr(value, "__float__")) {
    object = nb::steal(into_python([&] { return PyNumber_Float(value.ptr()); }));
    if (object.is_valid()) {
      single_ = true;
      value_ = PyFloat_AS_DOUBLE(object.ptr());
      return;
    }
    PyErr_Clear();
    object = nb::borrow(value);
  }
  if (PyUnicode_Check(value.ptr()) != 0 || PyDict_Check(value.ptr()) != 0)
    unsupported(argument, fmt::format("expected a number or an array, got {}", describe(value)));
  if (PyList_Check(value.ptr()) != 0 || PyTuple_Check(value.ptr()) != 0) {
    try {
      object = nb::module_::import_("numpy").attr("asarray")(value);
      // (Of no elements, NumPy's type is that of floats.)
      if (integers && nb::cast<std::size_t>(object.attr("size")) == 0)
        object = object.attr("astype")("int32");
    } catch (nb::python_error&) {
      invalid(argument, fmt::format("expected numbers, got {}", describe(value)));
    }
  }
  take(Array(object, argument, on, false, false), on);
}

void Numbers::take(Array array, On& on) {
  if (array.held == Held::boolean || (integers_ && !array.is_integer()))
    unsupported(argument_, fmt::format("expected {}, got {}", integers_ ? "integers" : "floats",
                                       name(array.held)));
  shape_ = array.shape;
  one_ = array.numel() == 1 && array.rank() <= 1;
  if (one_ && array.device < 0) {
    read_one(array);
    return;  // (It was read: an output may lie where it was, as where a list's array was freed.)
  }
  on.join(array);
  extent_ = array.extent();
  if (!array.is_contiguous()) array = array.contiguous(&on);
  if (array.device >= 0) convert_on_device(array, on);
  array_.emplace(std::move(array));
}

void Numbers::read_one(const Array& array) {
  single_ = true;
  if (integers_) {
    const std::int64_t n = array.as_integer(0);
    if (n < INT32_MIN || n > INT32_MAX)
      invalid(argument_, fmt::format("expected integers of 32 bits, got {}", n));
    value_ = static_cast<double>(n);
    return;
  }
  value_ = array.as_double(0);
  if (array.is_integer()) return;
  held_as_ = array.dtype();
  std::memcpy(element_.data(), array.data, static_cast<std::size_t>(bytes_for(held_as_, 1)));
}

// Nobody reads it, so nobody can convert it but PyTorch. (Integers of 64 bits that 32 do not hold
// become the nearest ones that they do.)
void Numbers::convert_on_device(Array& array, On& on) const {
  if (integers_ ? array.held == Held::s32 : !array.is_integer()) return;
  const bool known = array.held == Held::s8 || array.held == Held::u8 || array.held == Held::s16 ||
                     array.held == Held::s64;
  if (!integers_ || array.maker != Maker::torch || !known)
    unsupported(argument_, fmt::format("expected {} in memory of a device, got {}; convert it "
                                       "first",
                                       integers_ ? "int32" : "floats", name(array.held)));
  nb::object tensor = array.object;
  if (array.held == Held::s64) tensor = tensor.attr("clamp")(INT32_MIN, INT32_MAX);
  tensor = tensor.attr("to")(nb::module_::import_("torch").attr("int32"));
  array = Array(tensor, argument_, on, false, false);
}

void Numbers::check_apart(const Array& out) const {
  const auto [begin, end] = out.extent();
  if (extent_.first < end && begin < extent_.second)
    invalid("out", fmt::format("expected memory apart from {}, got an overlap", argument_));
}

TensorRef Numbers::device_ref(std::int64_t count) const {
  const std::int64_t n = array_->numel();
  if (one_ && count > 1)
    invalid(argument_,
            fmt::format("expected {} numbers, or one that lies in the host's memory, got "
                        "one in that of a device",
                        count));
  return {array_->data, array_->dtype(), Shape{n}};
}

TensorRef Numbers::host_ref(std::int64_t count) {
  if (single_) {
    if (integers_) {
      int32s_.assign(static_cast<std::size_t>(count), integer());
      return {int32s_.data(), DType::s32, Shape{count}};
    }
    if (held_as_ != DType::f64) {
      const auto size = static_cast<std::size_t>(bytes_for(held_as_, 1));
      repeated_.resize(size * static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < repeated_.size(); i += size)
        std::memcpy(repeated_.data() + i, element_.data(), size);
      return {repeated_.data(), held_as_, Shape{count}};
    }
    doubles_.assign(static_cast<std::size_t>(count), value_);
    return {doubles_.data(), DType::f64, Shape{count}};
  }
  const Array& a = *array_;
  const std::int64_t n = a.numel();
  if (integers_) {
    if (a.held == Held::s32) return {a.data, DType::s32, Shape{n}};
    int32s_.resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t value = a.as_integer(i);
      if (value < INT32_MIN || value > INT32_MAX)
        invalid(argument_,
                fmt::format("expected integers of 32 bits, got {} at index {}", value, i));
      int32s_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value);
    }
    return {int32s_.data(), DType::s32, Shape{n}};
  }
  if (!a.is_integer()) return {a.data, a.dtype(), Shape{n}};
  doubles_.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) doubles_[static_cast<std::size_t>(i)] = a.as_double(i);
  return {doubles_.data(), DType::f64, Shape{n}};
}

}  // namespace octavo::python
