// Arrays by Python's buffer protocol: NumPy's, memoryviews, array.array.
#include <fmt/core.h>

#include <array>
#include <cstring>

#include "array.hpp"
#include "error.hpp"

namespace octavo::python {
namespace {

std::optional<Held> held_of_format(const char* format, std::int64_t bytes) {
  if (format == nullptr) return Held::u8;
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const bool is_signed = std::strchr("bhilq", *format) != nullptr;
  switch (*format) {
    case 'f':
      return Held::f32;
    case 'd':
      return Held::f64;
    case 'e':
      return Held::f16;
    case '?':
      return Held::boolean;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      switch (bytes) {
        case 1:
          return is_signed ? Held::s8 : Held::u8;
        case 2:
          return is_signed ? Held::s16 : Held::u16;
        case 4:
          return is_signed ? Held::s32 : Held::u32;
        case 8:
          return is_signed ? Held::s64 : Held::u64;
        default:
          return std::nullopt;
      }
    default:
      return std::nullopt;
  }
}

}  // namespace

void Array::from_buffer(bool writes) {
  nb::object source = object;
  auto buffer = std::make_unique<Py_buffer>();
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0);
  bool bfloat = false;
  if (PyObject_GetBuffer(source.ptr(), buffer.get(), flags) != 0) {
    PyErr_Clear();
    // NumPy has no buffers of types that are not its own.
    std::string type = "its type";
    if (nb::hasattr(object, "dtype")) type = str_of(object.attr("dtype"));
    bfloat = type == "bfloat16";
    if (bfloat) source = object.attr("view")("uint16");
    if (!bfloat || PyObject_GetBuffer(source.ptr(), buffer.get(), flags) != 0) {
      PyErr_Clear();
      if (PyObject_GetBuffer(source.ptr(), buffer.get(), PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
        PyBuffer_Release(buffer.get());
        invalid(argument, "expected an array that may be written, got one that is read-only");
      }
      PyErr_Clear();
      unsupported(argument,
                  fmt::format("expected floats or integers in memory, got an array of {}", type));
    }
  }
  Py_buffer* const b = buffer.get();
  keep_ = std::shared_ptr<void>(buffer.release(), [](void* p) {
    const nb::gil_scoped_acquire gil;
    PyBuffer_Release(static_cast<Py_buffer*>(p));
    delete static_cast<Py_buffer*>(p);
  });
  is_ml_dtypes = bfloat;
  const std::optional<Held> found =
      bfloat ? std::optional(Held::bf16) : held_of_format(b->format, b->itemsize);
  if (!found)
    unsupported(argument, fmt::format("expected floats or integers in the CPU's byte order, got an "
                                      "array of format '{}'",
                                      b->format));
  held = *found;
  check_rank(b->ndim);
  data = b->buf;
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> steps{};
  for (int i = 0; i < b->ndim; ++i) {
    const auto n = static_cast<std::size_t>(i);
    sizes[n] = b->shape[i];
    if (b->strides[i] % b->itemsize != 0)
      invalid(argument,
              fmt::format("expected strides of whole elements, got {} bytes; copy it first",
                          b->strides[i]));
    steps[n] = b->strides[i] / b->itemsize;
  }
  shape = Shape(std::span(sizes.data(), static_cast<std::size_t>(b->ndim)));
  strides = Shape(std::span(steps.data(), static_cast<std::size_t>(b->ndim)));
}

}  // namespace octavo::python
