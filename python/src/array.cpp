#include "array.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <string_view>

#include "error.hpp"
#include "octavo/dtype.hpp"

namespace octavo::python {
namespace {

constexpr std::array<const char*, 15> held_names{
    "float32", "float64", "float16", "bfloat16", "int8",  "uint8",  "",    "",
    "int32",   "int16",   "uint16",  "uint32",   "int64", "uint64", "bool"};
constexpr std::array<std::int64_t, 15> held_bytes{4, 8, 2, 2, 1, 1, 0, 0, 4, 2, 2, 4, 8, 8, 1};

std::int64_t bytes_of(Held held) { return held_bytes[static_cast<std::size_t>(held)]; }

// ---- modules, looked up once

struct Torch {
  nb::object tensor;
  nb::object empty;
  nb::object is_grad_enabled;
  std::vector<std::pair<nb::object, Held>> dtypes;

  [[nodiscard]] nb::handle dtype(Held held) const {
    for (const auto& [object, h] : dtypes)
      if (h == held) return object;
    return nb::none();
  }
};

// Null while nobody has imported it: then no argument is a tensor of it.
const Torch* torch() {
  static Torch* found = nullptr;
  if (found != nullptr) return found;
  static PyObject* const name = PyUnicode_InternFromString("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name));
  if (!module.is_valid() || !nb::hasattr(module, "Tensor")) {
    PyErr_Clear();
    return nullptr;
  }
  auto made = std::make_unique<Torch>();
  made->tensor = module.attr("Tensor");
  made->empty = module.attr("empty");
  made->is_grad_enabled = module.attr("is_grad_enabled");
  for (const Held held : {Held::f32, Held::f64, Held::f16, Held::bf16, Held::s8, Held::u8,
                          Held::s32, Held::s16, Held::s64, Held::boolean})
    made->dtypes.emplace_back(module.attr(python::name(held)), held);
  found = made.release();
  return found;
}

nb::handle numpy_empty() {
  static const nb::handle empty = nb::object(nb::module_::import_("numpy").attr("empty")).release();
  return empty;
}

nb::handle numpy_dtype(Held held) {
  static std::array<PyObject*, held_names.size()> all{};
  PyObject*& dtype = all[static_cast<std::size_t>(held)];
  if (dtype == nullptr) {
    if (held == Held::bf16) {
      try {
        dtype = nb::object(nb::module_::import_("ml_dtypes").attr("bfloat16")).release().ptr();
      } catch (nb::python_error&) {
        unsupported("dtype",
                    "expected the package ml_dtypes for NumPy arrays of bf16, got none; "
                    "install it, or pass PyTorch tensors");
      }
    } else {
      dtype = nb::object(nb::module_::import_("numpy").attr("dtype")(name(held))).release().ptr();
    }
  }
  return dtype;
}

// ---- the buffer protocol

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
        default:
          return is_signed ? Held::s64 : Held::u64;
      }
    default:
      return std::nullopt;
  }
}

// ---- DLPack: the two structures of its C interface that are needed

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

std::string class_name(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

nb::object tuple_of(const Shape& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
  return tuple;
}

}  // namespace

const char* name(Held held) { return held_names[static_cast<std::size_t>(held)]; }

Array::Array(nb::handle given, const char* name, bool writes)
    : argument(name),
      object(nb::borrow(given)) {
  const Torch* const t = torch();
  if (t != nullptr && PyObject_IsInstance(given.ptr(), t->tensor.ptr()) == 1) {
    from_torch(writes);
  } else if (PyObject_CheckBuffer(given.ptr()) != 0) {
    from_buffer(writes);
  } else if (nb::hasattr(given, "__dlpack__")) {
    from_dlpack(writes);
  } else {
    unsupported(argument, fmt::format("expected an array (NumPy, PyTorch, or with DLPack), got {}",
                                      class_name(given)));
  }
}

void Array::from_buffer(bool writes) {
  nb::object source = object;
  auto buffer = std::make_unique<Py_buffer>();
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0);
  bool bfloat = false;
  if (PyObject_GetBuffer(source.ptr(), buffer.get(), flags) != 0) {
    PyErr_Clear();
    // NumPy has no buffers of types that are not its own.
    std::string type = "its type";
    if (nb::hasattr(object, "dtype")) type = nb::str(object.attr("dtype")).c_str();
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
  if (b->ndim > max_rank)
    invalid(argument, fmt::format("expected at most {} dimensions, got {}", max_rank, b->ndim));
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

void Array::from_torch(bool /*writes*/) {
  maker = Maker::torch;
  const Torch& t = *torch();
  const nb::object dtype = object.attr("dtype");
  bool known = false;
  for (const auto& [candidate, h] : t.dtypes)
    if (candidate.ptr() == dtype.ptr()) {
      held = h;
      known = true;
    }
  if (!known)
    unsupported(argument, fmt::format("expected floats or integers, got a tensor of {}",
                                      nb::str(dtype).c_str()));
  if (!nb::cast<bool>(object.attr("is_cpu")) && nb::str(object.attr("device")).c_str() != nullptr)
    unsupported(argument, fmt::format("expected a tensor on the CPU, got one on {}",
                                      nb::str(object.attr("device")).c_str()));
  if (nb::cast<bool>(object.attr("requires_grad")) && nb::cast<bool>(t.is_grad_enabled()))
    invalid(argument,
            "expected a tensor without gradient, got one that requires it; use octavo.torch, or "
            "call detach()");
  if (nb::cast<bool>(object.attr("is_sparse")))
    unsupported(argument, "expected a dense tensor, got a sparse one");
  if (nb::cast<bool>(object.attr("is_neg")()))
    unsupported(argument,
                "expected a tensor as it lies in memory, got one that is negated when "
                "read; call resolve_neg()");
  data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("data_ptr")()));
  const nb::object sizes = object.attr("shape");
  const nb::object steps = object.attr("stride")();
  const auto rank = static_cast<int>(PyTuple_GET_SIZE(sizes.ptr()));
  if (rank > max_rank)
    invalid(argument, fmt::format("expected at most {} dimensions, got {}", max_rank, rank));
  std::array<std::int64_t, max_rank> n{};
  std::array<std::int64_t, max_rank> s{};
  for (int i = 0; i < rank; ++i) {
    n[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.ptr(), i));
    s[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps.ptr(), i));
  }
  shape = Shape(std::span(n.data(), static_cast<std::size_t>(rank)));
  strides = Shape(std::span(s.data(), static_cast<std::size_t>(rank)));
}

void Array::from_dlpack(bool writes) {
  nb::object capsule;
  try {
    const nb::object device = object.attr("__dlpack_device__")();
    if (nb::cast<std::int64_t>(device[0]) != dl_cpu)
      unsupported(argument, fmt::format("expected an array on the CPU, got {} elsewhere",
                                        class_name(object)));
    capsule = object.attr("__dlpack__")();
  } catch (nb::python_error& e) {
    unsupported(argument, fmt::format("expected an array that DLPack can hand over, got {}: {}",
                                      class_name(object), e.what()));
  }
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) {
    PyErr_Clear();
    unsupported(argument, "expected a DLPack capsule named dltensor, got another one");
  }
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  keep_ = std::shared_ptr<void>(managed, [](void* p) {
    const nb::gil_scoped_acquire gil;
    auto* m = static_cast<DLManagedTensor*>(p);
    if (m->deleter != nullptr) m->deleter(m);
  });
  const DLTensor& t = managed->tensor;
  const std::optional<Held> found = held_of_dlpack(t);
  if (!found)
    unsupported(argument,
                fmt::format("expected floats or integers, got DLPack's type {} of {} bits", t.code,
                            t.bits));
  held = *found;
  if (t.ndim > max_rank)
    invalid(argument, fmt::format("expected at most {} dimensions, got {}", max_rank, t.ndim));
  if (writes && nb::hasattr(object, "flags") && nb::hasattr(object.attr("flags"), "writeable") &&
      !nb::cast<bool>(object.attr("flags").attr("writeable")))
    invalid(argument, "expected an array that may be written, got one that is read-only");
  data = static_cast<unsigned char*>(t.data) + t.byte_offset;
  shape = Shape(std::span<const std::int64_t>(t.shape, static_cast<std::size_t>(t.ndim)));
  const DType any = bytes_of(held) == 1 ? DType::s8 : DType::f32;
  strides = t.strides == nullptr
                ? contiguous_strides(shape, any)
                : Shape(std::span<const std::int64_t>(t.strides, static_cast<std::size_t>(t.ndim)));
}

std::int64_t Array::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank(); ++i) n *= shape[i];
  return n;
}

DType Array::dtype() const {
  if (held <= Held::s32) return static_cast<DType>(held);
  unsupported(argument, fmt::format("expected float32, float64, float16, bfloat16, int8, uint8 or "
                                    "int32, got {}",
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

Array Array::contiguous() const {
  if (maker == Maker::torch) return Array(object.attr("contiguous")(), argument);
  const nb::object np = nb::module_::import_("numpy");
  if (is_ml_dtypes || PyObject_CheckBuffer(object.ptr()) != 0)
    return Array(np.attr("ascontiguousarray")(object), argument);
  return Array(np.attr("ascontiguousarray")(np.attr("from_dlpack")(object)), argument);
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
    default:
      return read(std::int64_t{});
  }
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
    default:
      return static_cast<double>(as_integer(i));
  }
}

Shape stored_shape(const Shape& shape, DType dtype) {
  Shape stored = shape;
  if (is_packed(dtype) && shape.rank() > 0)
    stored[shape.rank() - 1] = (shape[shape.rank() - 1] + 1) / 2;
  return stored;
}

nb::object make_array(Maker maker, const Shape& shape, DType dtype) {
  const nb::object sizes = tuple_of(stored_shape(shape, dtype));
  const Held held = is_packed(dtype) ? Held::u8 : static_cast<Held>(dtype);
  if (maker == Maker::torch) {
    const Torch& t = *torch();
    return t.empty(sizes, nb::arg("dtype") = t.dtype(held));
  }
  return numpy_empty()(sizes, numpy_dtype(held));
}

Output::Output(nb::handle out, Maker maker, const Shape& shape, DType dtype) {
  array_.emplace(out.is_none() ? make_array(maker, shape, dtype) : nb::borrow(out), "out", true);
  if (!is_packed(dtype)) {
    tensor_ = {array_->data, array_->dtype(), array_->shape, array_->strides};
    return;
  }
  if (array_->held != Held::u8)
    unsupported("out", fmt::format("expected uint8, which {} is held in two to a byte, got {}",
                                   octavo::name(dtype), name(array_->held)));
  if (!(array_->shape == stored_shape(shape, dtype)))
    invalid("out", fmt::format("expected shape {} (two values to a byte), got {}",
                               to_string(stored_shape(shape, dtype)), to_string(array_->shape)));
  Shape strides = array_->strides;
  const int last = strides.rank() - 1;
  if (last >= 0 && array_->shape[last] > 1 && strides[last] != 1)
    invalid("out", "expected rows of consecutive bytes, got a stride between them");
  for (int i = 0; i < last; ++i) strides[i] *= 2;
  if (last >= 0) strides[last] = 1;
  tensor_ = {array_->data, dtype, shape, strides};
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
