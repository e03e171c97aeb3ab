// Arrays by DLPack.
#include <fmt/core.h>

#include "array.hpp"
#include "error.hpp"
#include "gil.hpp"

namespace octavo::python {
namespace {

// The two structures of its C interface that are needed.
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
constexpr std::int32_t dl_cpu = 1;

std::optional<Held> held_of_dlpack(const DLTensor& t) {
  if (t.lanes != 1) return std::nullopt;
  constexpr int integer = 0, natural = 1, real = 2, bfloat = 4, boolean = 6;
  switch (t.code * 1000 + t.bits) {
    case real * 1000 + 32:
      return Held::f32;
    case real * 1000 + 64:
      return Held::f64;
    case real * 1000 + 16:
      return Held::f16;
    case bfloat * 1000 + 16:
      return Held::bf16;
    case integer * 1000 + 8:
      return Held::s8;
    case integer * 1000 + 16:
      return Held::s16;
    case integer * 1000 + 32:
      return Held::s32;
    case integer * 1000 + 64:
      return Held::s64;
    case natural * 1000 + 8:
      return Held::u8;
    case natural * 1000 + 16:
      return Held::u16;
    case natural * 1000 + 32:
      return Held::u32;
    case natural * 1000 + 64:
      return Held::u64;
    case boolean * 1000 + 8:
      return Held::boolean;
    default:
      return std::nullopt;
  }
}

nb::object call_method(const nb::object& object, const char* name) {
  PyObject* const result =
      into_python([&] { return PyObject_CallMethod(object.ptr(), name, nullptr); });
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

nb::object attribute(const nb::object& object, const char* name) {
  nb::object found =
      nb::steal(into_python([&] { return PyObject_GetAttrString(object.ptr(), name); }));
  if (!found.is_valid()) PyErr_Clear();
  return found;
}

// As NumPy's own arrays say it.
bool is_read_only(const nb::object& object) {
  const nb::object flags = attribute(object, "flags");
  const nb::object writeable = flags.is_valid() ? attribute(flags, "writeable") : nb::object();
  return writeable.is_valid() && writeable.ptr() == Py_False;
}

}  // namespace

void Array::from_dlpack(bool writes) {
  nb::object capsule;
  try {
    const nb::object device = call_method(object, "__dlpack_device__");
    const nb::object kind =
        nb::steal(into_python([&] { return PySequence_GetItem(device.ptr(), 0); }));
    if (!kind.is_valid()) throw nb::python_error();
    const long number = into_python([&] { return PyLong_AsLong(kind.ptr()); });
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (number != dl_cpu)
      unsupported(argument, fmt::format("expected an array on the CPU, got {} elsewhere",
                                        class_name(object)));
    capsule = call_method(object, "__dlpack__");
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_Exception)) throw;
    unsupported(argument, fmt::format("expected an array that DLPack can hand over, got {}: {}",
                                      class_name(object), str_of(nb::borrow(e.value()))));
  }
  if (PyCapsule_CheckExact(capsule.ptr()) == 0)
    unsupported(argument, fmt::format("expected a DLPack capsule, got {} from {}",
                                      class_name(capsule), class_name(object)));
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) {
    PyErr_Clear();
    const char* const name = PyCapsule_GetName(capsule.ptr());
    unsupported(argument, fmt::format("expected a DLPack capsule named dltensor, got one named {}",
                                      name != nullptr ? name : "nothing"));
  }
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  keep_ = std::shared_ptr<void>(managed, [](void* p) {
    const nb::gil_scoped_acquire gil;
    auto* m = static_cast<DLManagedTensor*>(p);
    if (m->deleter != nullptr) m->deleter(m);
  });
  const DLTensor& t = managed->tensor;
  // What the array said of itself before need not be what it hands over.
  if (t.device_type != dl_cpu)
    unsupported(argument, fmt::format("expected an array on the CPU, got {} on DLPack's device {}",
                                      class_name(object), t.device_type));
  const std::optional<Held> found = held_of_dlpack(t);
  if (!found)
    unsupported(argument,
                fmt::format("expected floats or integers, got DLPack's type {} of {} bits and {} "
                            "lanes",
                            t.code, t.bits, t.lanes));
  held = *found;
  check_rank(t.ndim);
  if (t.ndim > 0 && t.shape == nullptr)
    invalid(argument,
            fmt::format("expected the sizes of {} dimensions, got a null pointer", t.ndim));
  if (writes && is_read_only(object))
    invalid(argument, "expected an array that may be written, got one that is read-only");
  if (t.data != nullptr) {
    std::uintptr_t address = 0;
    if (__builtin_add_overflow(reinterpret_cast<std::uintptr_t>(t.data), t.byte_offset, &address))
      invalid(argument, fmt::format("expected an offset within the memory there is, got {} bytes",
                                    t.byte_offset));
    data = static_cast<unsigned char*>(t.data) + t.byte_offset;
  }
  shape = Shape(std::span<const std::int64_t>(t.shape, static_cast<std::size_t>(t.ndim)));
  check_sizes();  // (before strides are made of them)
  strides = t.strides == nullptr
                ? contiguous_strides(shape, DType::s8)  // (of any type that is not packed)
                : Shape(std::span<const std::int64_t>(t.strides, static_cast<std::size_t>(t.ndim)));
}

}  // namespace octavo::python
