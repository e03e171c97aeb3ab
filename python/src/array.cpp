#include "array.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "device_array.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "octavo/dtype.hpp"
#include "on.hpp"
#include "torch.hpp"

namespace octavo::python {
namespace {

struct Info {
  const char* name;
  std::int64_t bytes;
  std::optional<DType> dtype = std::nullopt;  // as which the library takes it
};
constexpr std::array<Info, held_count> infos{{{"float32", 4, DType::f32},
                                              {"float64", 8, DType::f64},
                                              {"float16", 2, DType::f16},
                                              {"bfloat16", 2, DType::bf16},
                                              {"int8", 1, DType::s8},
                                              {"uint8", 1, DType::u8},
                                              {"int32", 4, DType::s32},
                                              {"int16", 2, DType::s16},
                                              {"uint16", 2},
                                              {"uint32", 4},
                                              {"int64", 8},
                                              {"uint64", 8},
                                              {"bool", 1}}};
const Info& info(Held held) { return infos[static_cast<std::size_t>(held)]; }

}  // namespace

const char* name(Held held) { return info(held).name; }

std::int64_t bytes_of(Held held) { return info(held).bytes; }

Held held_for(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Held::f32;
    case DType::f64:
      return Held::f64;
    case DType::f16:
      return Held::f16;
    case DType::bf16:
      return Held::bf16;
    case DType::s8:
      return Held::s8;
    case DType::s16:
      return Held::s16;
    case DType::s32:
      return Held::s32;
    case DType::u8:
    case DType::s4:  // two to a byte
    case DType::u4:
      break;
  }
  return Held::u8;
}

std::string class_name(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

std::string str_of(const nb::object& object) {
  const nb::object text = nb::steal(into_python([&] { return PyObject_Str(object.ptr()); }));
  Py_ssize_t size = 0;
  const char* const bytes = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
  if (bytes != nullptr) return {bytes, static_cast<std::size_t>(size)};
  PyErr_Clear();
  return class_name(object);
}

Array::Array(nb::handle given, const char* name, bool writes)
    : argument(name),
      object(nb::borrow(given)) {
  import(nullptr, writes);
}

Array::Array(nb::handle given, const char* name, On& on, bool writes, bool joins)
    : argument(name),
      object(nb::borrow(given)) {
  import(&on, writes);
  if (joins) on.join(*this);
}

void Array::import(On* on, bool writes) {
  if (is_tensor(object)) {
    from_torch(on);
  } else if (PyObject_CheckBuffer(object.ptr()) != 0) {
    if (std::strcmp(Py_TYPE(object.ptr())->tp_name, "numpy.ndarray") != 0 &&
        nb::hasattr(object, "filled") && nb::hasattr(object, "mask"))
      unsupported(argument, "expected an array without a mask, got a masked one; call filled()");
    from_buffer(writes);
  } else if (nb::isinstance<DeviceArray>(object)) {
    from_device_array(on);
  } else if (!from_cuda_interface(on, writes)) {
    if (!nb::hasattr(object, "__dlpack__"))
      unsupported(argument,
                  fmt::format("expected an array (NumPy, PyTorch, or with DLPack), got {}",
                              class_name(object)));
    from_dlpack(on, writes);
  }
  check_memory();
}

void Array::refuse_device() const {
  unsupported(argument, fmt::format("expected an array on the CPU, got one on {}; copy it first",
                                    place_name(device)));
}

void Array::check_rank(std::int64_t rank) const {
  if (rank < 0 || rank > max_rank)
    invalid(argument, fmt::format("expected 0 to {} dimensions, got {}", max_rank, rank));
}

void Array::check_sizes() const {
  std::int64_t bytes = bytes_of(held);
  for (int i = 0; i < rank(); ++i)
    if (shape[i] < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(shape[i], 1), &bytes))
      invalid(argument,
              fmt::format("expected sizes of 0 or more that memory can hold, got shape {}",
                          to_string(shape)));
}

void Array::check_memory() const {
  check_sizes();
  if (numel() == 0) return;
  std::int64_t span = bytes_of(held);  // from the lowest byte to the highest
  for (int i = 0; i < rank(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
        __builtin_mul_overflow(reach, bytes_of(held), &reach) || reach == INT64_MIN ||
        __builtin_add_overflow(span, std::abs(reach), &span))
      invalid(argument, fmt::format("expected strides that stay within memory, got {} for shape {}",
                                    to_string(strides), to_string(shape)));
  }
  if (data == nullptr)
    unsupported(argument,
                fmt::format("expected elements in memory, got a null pointer for shape {}",
                            to_string(shape)));
}

std::int64_t Array::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank(); ++i) n *= shape[i];
  return n;
}

DType Array::dtype() const {
  if (const std::optional<DType>& known = info(held).dtype) return *known;
  unsupported(argument, fmt::format("expected float32, float64, float16, bfloat16, int8, uint8, "
                                    "int16 or int32, got {}",
                                    name(held)));
}

bool Array::is_contiguous() const {
  std::int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return numel() == 0;
    step *= shape[i];
  }
  return true;
}

Array Array::contiguous(On* on) const {
  if (maker == Maker::torch && on != nullptr)
    return Array(object.attr("contiguous")(), argument, *on, false, false);
  if (maker == Maker::torch) return Array(object.attr("contiguous")(), argument);
  if (device >= 0)
    invalid(argument, fmt::format("expected rows of consecutive elements, one stride apart, on a "
                                  "device, got strides {} for shape {}; copy it first",
                                  to_string(strides), to_string(shape)));
  if (PyObject_CheckBuffer(object.ptr()) != 0)
    return Array(nb::module_::import_("numpy").attr("ascontiguousarray")(object), argument);
  // NumPy would not take every type of DLPack.
  Array copy = *this;
  const std::int64_t count = numel();
  const std::int64_t bytes = bytes_of(held);
  auto memory = std::make_shared<std::vector<std::uint64_t>>((count * bytes + 7) / 8);
  copy.data = memory->data();
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<unsigned char*>(copy.data) + i * bytes, at(i),
                static_cast<std::size_t>(bytes));
  copy.strides = contiguous_strides(shape, DType::s8);
  copy.keep_ = std::move(memory);
  return copy;
}

std::pair<std::uintptr_t, std::uintptr_t> Array::extent() const {
  auto begin = reinterpret_cast<std::uintptr_t>(data);
  auto end = begin;
  for (int i = 0; i < rank(); ++i) {
    if (shape[i] == 0) return {begin, begin};
    const std::int64_t reach = (shape[i] - 1) * strides[i] * bytes_of(held);
    (reach < 0 ? begin : end) += static_cast<std::uintptr_t>(reach);
  }
  return {begin, end + static_cast<std::uintptr_t>(bytes_of(held))};
}

const unsigned char* Array::at(std::int64_t i) const {
  std::int64_t offset = 0;
  for (int d = rank() - 1; d >= 0; --d) {
    offset += i % shape[d] * strides[d];
    i /= shape[d];
  }
  return static_cast<const unsigned char*>(data) + offset * bytes_of(held);
}

bool Array::is_integer() const { return held >= Held::s8; }

std::int64_t Array::as_integer(std::int64_t i) const {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, at(i), sizeof value);
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>)
      return value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value);
    else
      return static_cast<std::int64_t>(value);
  };
  switch (held) {
    case Held::s8:
      return read(std::int8_t{});
    case Held::u8:
    case Held::boolean:
      return read(std::uint8_t{});
    case Held::s16:
      return read(std::int16_t{});
    case Held::u16:
      return read(std::uint16_t{});
    case Held::s32:
      return read(std::int32_t{});
    case Held::u32:
      return read(std::uint32_t{});
    case Held::u64:
      return read(std::uint64_t{});
    case Held::s64:
      return read(std::int64_t{});
    case Held::f32:  // (callers have asked whether they are integers)
    case Held::f64:
    case Held::f16:
    case Held::bf16:
      break;
  }
  return 0;
}

double Array::as_double(std::int64_t i) const {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, at(i), sizeof value);
    return value;
  };
  switch (held) {
    case Held::f32:
      return read(float{});
    case Held::f64:
      return read(double{});
    case Held::f16:
      return to_float(read(f16{}));
    case Held::bf16:
      return to_float(read(bf16{}));
    case Held::s8:
    case Held::u8:
    case Held::s32:
    case Held::s16:
    case Held::u16:
    case Held::u32:
    case Held::s64:
    case Held::u64:
    case Held::boolean:
      break;
  }
  return static_cast<double>(as_integer(i));
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

}  // namespace octavo::python
