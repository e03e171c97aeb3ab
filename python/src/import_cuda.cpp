// Arrays of CUDA devices: our own, and by the array interface of CuPy and Numba.
#include <fmt/core.h>

#include <array>
#include <string_view>

#include "arguments.hpp"
#include "array.hpp"
#include "device_array.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "on.hpp"

namespace octavo::python {
namespace {

// (It has no name for bfloat16.)
std::optional<Held> held_of_typestr(std::string_view text) {
  if (text.size() != 3 || (text[0] != '<' && text[0] != '|')) return std::nullopt;
  const std::string_view type = text.substr(1);
  constexpr std::array<std::pair<std::string_view, Held>, 12> known{{{"f4", Held::f32},
                                                                     {"f8", Held::f64},
                                                                     {"f2", Held::f16},
                                                                     {"i1", Held::s8},
                                                                     {"u1", Held::u8},
                                                                     {"i2", Held::s16},
                                                                     {"u2", Held::u16},
                                                                     {"i4", Held::s32},
                                                                     {"u4", Held::u32},
                                                                     {"i8", Held::s64},
                                                                     {"u8", Held::u64},
                                                                     {"b1", Held::boolean}}};
  for (const auto& [name, held] : known)
    if (name == type) return held;
  return std::nullopt;
}

nb::object entry(const nb::object& dict, const char* key) {
  const nb::object name = nb::str(key);
  PyObject* const found = PyDict_GetItemWithError(dict.ptr(), name.ptr());
  return found == nullptr ? nb::object(nb::none()) : nb::borrow(found);
}

// The device whose memory an address is of, if it is.
std::optional<int> device_of(const void* address) {
  const Result<const cuda::Driver*> driver = cuda::found_driver();
  if (!driver) return std::nullopt;
  unsigned type = 0;
  int device = -1;
  cuda::PointerAttribute attributes[] = {cuda::pointer_memory_type, cuda::pointer_device};
  void* values[] = {&type, &device};
  if ((*driver)->pointer_attributes(
          2, attributes, values, reinterpret_cast<cuda::DevicePointer>(address)) != cuda::success ||
      device < 0)
    return std::nullopt;
  return device;
}

Shape integers_of(const nb::object& tuple, const char* argument) {
  std::array<std::int64_t, max_rank> sizes{};
  if (PyTuple_Check(tuple.ptr()) == 0 || PyTuple_GET_SIZE(tuple.ptr()) > max_rank)
    invalid(argument, fmt::format("expected a tuple of at most {} integers in its "
                                  "__cuda_array_interface__, got {}",
                                  max_rank, describe(tuple)));
  const auto rank = static_cast<std::size_t>(PyTuple_GET_SIZE(tuple.ptr()));
  for (std::size_t i = 0; i < rank; ++i) {
    const nb::handle item = PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i));
    const std::optional<std::int64_t> size = parse_integer(item, argument);
    if (!size) invalid(argument, fmt::format("expected integers, got {}", describe(tuple)));
    sizes[i] = *size;
  }
  return {std::span<const std::int64_t>(sizes.data(), rank)};
}

}  // namespace

void Array::from_device_array(On* on) {
  const auto& given = nb::cast<const DeviceArray&>(object);
  maker = Maker::device;
  held = given.held;
  data = given.block->memory();
  shape = given.shape;
  strides = contiguous_strides(shape, DType::s8);
  home = given.queue();
  device = home->device();
  if (on == nullptr) refuse_device();
}

// Nothing is read of an array that has no such interface, or one of a type that DLPack tells
// better.
bool Array::from_cuda_interface(On* on, bool writes) {
  const nb::object interface = nb::steal(into_python(
      [&] { return PyObject_GetAttrString(object.ptr(), "__cuda_array_interface__"); }));
  if (!interface.is_valid()) {
    PyErr_Clear();
    return false;
  }
  if (PyDict_Check(interface.ptr()) == 0)
    unsupported(argument, fmt::format("expected a dict as its __cuda_array_interface__, got {}",
                                      class_name(interface)));
  const nb::object typestr = entry(interface, "typestr");
  const std::optional<Held> found = held_of_typestr(text_of(typestr));
  if (!found) {
    if (nb::hasattr(object, "__dlpack__")) return false;
    unsupported(argument,
                fmt::format("expected floats or integers, got an array of {}", describe(typestr)));
  }
  if (!entry(interface, "mask").is_none())
    unsupported(argument, "expected an array without a mask, got a masked one");
  const nb::object pair = entry(interface, "data");
  if (PyTuple_Check(pair.ptr()) == 0 || PyTuple_GET_SIZE(pair.ptr()) != 2)
    invalid(argument, fmt::format("expected (address, whether it is read-only) in its "
                                  "__cuda_array_interface__, got {}",
                                  describe(pair)));
  if (writes && PyTuple_GET_ITEM(pair.ptr(), 1) != Py_False)
    invalid(argument, "expected an array that may be written, got one that is read-only");
  held = *found;
  maker = Maker::device;
  data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(pair.ptr(), 0));
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    invalid(argument, fmt::format("expected an address, got {}", describe(pair)));
  }
  shape = integers_of(entry(interface, "shape"), argument);
  check_sizes();
  strides = contiguous_strides(shape, DType::s8);
  if (const nb::object steps = entry(interface, "strides"); !steps.is_none()) {
    const Shape bytes = integers_of(steps, argument);
    if (bytes.rank() != rank())
      invalid(argument, fmt::format("expected {} strides, got {}", rank(), describe(steps)));
    for (int i = 0; i < rank(); ++i) {
      if (bytes[i] % bytes_of(held) != 0)
        invalid(argument,
                fmt::format("expected strides of whole elements, got {} bytes; copy it first",
                            bytes[i]));
      strides[i] = bytes[i] / bytes_of(held);
    }
  }

  device = 0;
  if (on == nullptr) refuse_device();
  if (!cuda::found_driver()) (void)on->queue_for(0, argument);  // (it says so)
  if (data != nullptr) {
    const std::optional<int> where = device_of(data);
    if (!where)
      invalid(argument,
              "expected memory of a CUDA device, as its __cuda_array_interface__ says, "
              "got memory that the driver does not know");
    device = *where;
  }
  const nb::object stream = entry(interface, "stream");
  if (stream.is_none()) {
    home = on->queue_for(device, argument);
    is_foreign = true;
    return true;
  }
  const std::int64_t handle = *parse_integer(stream, argument);
  if (handle == 0)
    invalid(argument,
            "expected a stream other than 0 in its __cuda_array_interface__, where 1 is "
            "the legacy default one and 2 the thread's, got 0");
  const Result<QueuePtr> queue = queue_of(device, static_cast<std::uintptr_t>(handle));
  if (!queue) throw Refused(queue.error());
  home = *queue;
  return true;
}

}  // namespace octavo::python
