// Arrays by DLPack.
#include <fmt/core.h>

#include "array.hpp"
#include "dlpack.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "on.hpp"

namespace octavo::python {
namespace {

std::optional<Held> held_of_dlpack(const DLTensor& t) {
  if (t.lanes != 1) return std::nullopt;
  switch (t.code * 1000 + t.bits) {
    case dl_float * 1000 + 32:
      return Held::f32;
    case dl_float * 1000 + 64:
      return Held::f64;
    case dl_float * 1000 + 16:
      return Held::f16;
    case dl_bfloat * 1000 + 16:
      return Held::bf16;
    case dl_integer * 1000 + 8:
      return Held::s8;
    case dl_integer * 1000 + 16:
      return Held::s16;
    case dl_integer * 1000 + 32:
      return Held::s32;
    case dl_integer * 1000 + 64:
      return Held::s64;
    case dl_natural * 1000 + 8:
      return Held::u8;
    case dl_natural * 1000 + 16:
      return Held::u16;
    case dl_natural * 1000 + 32:
      return Held::u32;
    case dl_natural * 1000 + 64:
      return Held::u64;
    case dl_boolean * 1000 + 8:
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

// (kind, number) as __dlpack_device__ says it.
std::pair<long, long> device_of(const nb::object& object) {
  const nb::object device = call_method(object, "__dlpack_device__");
  const auto part = [&](Py_ssize_t i) {
    const nb::object item =
        nb::steal(into_python([&] { return PySequence_GetItem(device.ptr(), i); }));
    if (!item.is_valid()) throw nb::python_error();
    const long number = into_python([&] { return PyLong_AsLong(item.ptr()); });
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return number;
  };
  const long kind = part(0);
  return {kind, is_dl_cuda(kind) ? part(1) : 0};
}

// What is ready for our stream. Those who do not know of versions are asked again without.
nb::object capsule_for(const nb::object& object, cuda::StreamHandle stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  const nb::int_ number(handle == 0 ? 1 : handle);  // (0 has no meaning, 1 is the legacy default)
  const nb::object method = object.attr("__dlpack__");
  const nb::object none = nb::steal(PyTuple_New(0));
  nb::dict keywords;
  keywords["stream"] = number;
  keywords["max_version"] = nb::make_tuple(1, 0);
  const auto call = [&] {
    return nb::steal(
        into_python([&] { return PyObject_Call(method.ptr(), none.ptr(), keywords.ptr()); }));
  };
  nb::object capsule = call();
  if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    PyErr_Clear();
    nb::del(keywords["max_version"]);
    capsule = call();
  }
  if (!capsule.is_valid()) throw nb::python_error();
  return capsule;
}

template <class Managed>
std::shared_ptr<void> kept(Managed* managed) {
  return {managed, [](void* p) {
            const nb::gil_scoped_acquire gil;
            auto* m = static_cast<Managed*>(p);
            if (m->deleter != nullptr) m->deleter(m);
          }};
}

}  // namespace

void Array::from_dlpack(On* on, bool writes) {
  nb::object capsule;
  try {
    const auto [kind, number] = device_of(object);
    if (is_dl_cuda(kind)) {
      device = static_cast<int>(number);
      if (on == nullptr) refuse_device();
      home = on->queue_for(device, argument);
      is_foreign = true;
      maker = Maker::device;
      capsule = capsule_for(object, home->handle());
    } else if (kind == dl_cpu) {
      capsule = call_method(object, "__dlpack__");
    } else {
      unsupported(argument, fmt::format("expected an array on the CPU or a CUDA device, got {} "
                                        "elsewhere",
                                        class_name(object)));
    }
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_Exception)) throw;
    unsupported(argument, fmt::format("expected an array that DLPack can hand over, got {}: {}",
                                      class_name(object), str_of(nb::borrow(e.value()))));
  }
  if (PyCapsule_CheckExact(capsule.ptr()) == 0)
    unsupported(argument, fmt::format("expected a DLPack capsule, got {} from {}",
                                      class_name(capsule), class_name(object)));
  const DLTensor* tensor = nullptr;
  bool is_constant = false;
  if (PyCapsule_IsValid(capsule.ptr(), dl_versioned) != 0) {
    auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), dl_versioned));
    if (managed->version.major != 1)
      unsupported(argument,
                  fmt::format("expected DLPack's version 1, got {}.{} from {}",
                              managed->version.major, managed->version.minor, class_name(object)));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    keep_ = kept(managed);
    tensor = &managed->tensor;
    is_constant = (managed->flags & dl_read_only) != 0;
  } else {
    auto* managed =
        static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), dl_unversioned));
    if (managed == nullptr) {
      PyErr_Clear();
      const char* const name = PyCapsule_GetName(capsule.ptr());
      unsupported(argument,
                  fmt::format("expected a DLPack capsule named dltensor, got one named {}",
                              name != nullptr ? name : "nothing"));
    }
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    keep_ = kept(managed);
    tensor = &managed->tensor;
  }
  const DLTensor& t = *tensor;
  // What the array said of itself before need not be what it hands over.
  const bool as_said =
      device < 0 ? t.device_type == dl_cpu : is_dl_cuda(t.device_type) && t.device_id == device;
  if (!as_said)
    unsupported(argument, fmt::format("expected an array on {}, got {} on DLPack's device {}",
                                      place_name(device), class_name(object), t.device_type));
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
  if (writes && (is_constant || is_read_only(object)))
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
