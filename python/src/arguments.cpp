#include "arguments.hpp"

#include <array>
#include <limits>

namespace octavo::python {

std::string_view text_of(nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0) return {};
  // (Null for a lone surrogate, which no encoding has.)
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text != nullptr) return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  return {};
}

std::string describe(nb::handle value) {
  const nb::object repr = nb::steal(into_python([&] { return PyObject_Repr(value.ptr()); }));
  if (!repr.is_valid()) PyErr_Clear();
  const std::string_view text = repr.is_valid() ? text_of(repr) : std::string_view();
  return text.empty() ? class_name(value) : std::string(text);
}

std::string parse_text(nb::handle value, const char* argument) {
  if (PyUnicode_Check(value.ptr()) == 0)
    unsupported(argument, fmt::format("expected a string, got {}", class_name(value)));
  const std::string_view text = text_of(value);
  if (text.empty() && PyUnicode_GET_LENGTH(value.ptr()) > 0)
    invalid(argument,
            fmt::format("expected text that has an encoding, got {} with a lone surrogate",
                        describe(value)));
  if (text.find('\0') != std::string_view::npos)
    invalid(argument, fmt::format("expected text without NUL, got {}", describe(value)));
  return std::string(text);
}

std::string parse_path(nb::handle value, const char* argument) {
  PyObject* bytes = nullptr;
  if (into_python([&] { return PyUnicode_FSConverter(value.ptr(), &bytes); }) != 0) {
    const nb::object owner = nb::steal(bytes);
    return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
  }
  const nb::python_error error;
  if (error.matches(PyExc_ValueError))  // (one of encoding is a ValueError, too)
    invalid(argument, fmt::format("expected a path without NUL that the file system can encode, "
                                  "got {}",
                                  describe(value)));
  unsupported(argument, fmt::format("expected a path, got {}", class_name(value)));
}

namespace {

template <class T, std::size_t n>
T parse_name(nb::handle value, const char* argument,
             const std::array<std::pair<std::string_view, T>, n>& names, const char* expected) {
  const std::string_view text = text_of(value);
  for (const auto& [known, result] : names)
    if (known == text) return result;
  unsupported(argument, fmt::format("expected {}, got {}", expected, describe(value)));
}

}  // namespace

DType parse_dtype(nb::handle value, const char* argument) {
  static constexpr std::array<std::pair<std::string_view, DType>, 18> names{
      {{"f32", DType::f32},
       {"f64", DType::f64},
       {"f16", DType::f16},
       {"bf16", DType::bf16},
       {"s8", DType::s8},
       {"u8", DType::u8},
       {"s4", DType::s4},
       {"u4", DType::u4},
       {"s16", DType::s16},
       {"float32", DType::f32},
       {"float64", DType::f64},
       {"float16", DType::f16},
       {"bfloat16", DType::bf16},
       {"int8", DType::s8},
       {"uint8", DType::u8},
       {"int4", DType::s4},
       {"uint4", DType::u4},
       {"int16", DType::s16}}};
  return parse_name(value, argument, names,
                    "one of 'f32', 'f64', 'f16', 'bf16', 's8', 'u8', 's4', 'u4', 's16'");
}

Profile parse_profile(nb::handle value) {
  static constexpr std::array<std::pair<std::string_view, Profile>, 2> names{
      {{"torch", Profile::torch}, {"onnx", Profile::onnx}}};
  return parse_name(value, "profile", names, "'torch' or 'onnx'");
}

RangeMode parse_mode(nb::handle value) {
  static constexpr std::array<std::pair<std::string_view, RangeMode>, 2> names{
      {{"symmetric", RangeMode::symmetric}, {"asymmetric", RangeMode::asymmetric}}};
  return parse_name(value, "mode", names, "'symmetric' or 'asymmetric'");
}

std::optional<std::int64_t> parse_integer(nb::handle value, const char* argument) {
  if (value.is_none()) return std::nullopt;
  if (PyBool_Check(value.ptr()) == 0 && PyIndex_Check(value.ptr()) != 0) {
    const nb::object index = nb::steal(into_python([&] { return PyNumber_Index(value.ptr()); }));
    if (index.is_valid()) {
      const long long result = PyLong_AsLongLong(index.ptr());
      if (result != -1 || PyErr_Occurred() == nullptr) return result;
    }
    PyErr_Clear();
  }
  invalid(argument, fmt::format("expected an integer, got {}", describe(value)));
}

std::optional<std::int32_t> parse_int32(nb::handle value, const char* argument) {
  const std::optional<std::int64_t> parsed = parse_integer(value, argument);
  if (!parsed) return std::nullopt;
  if (*parsed < std::numeric_limits<std::int32_t>::min() ||
      *parsed > std::numeric_limits<std::int32_t>::max())
    invalid(argument, fmt::format("expected an integer of 32 bits, got {}", *parsed));
  return static_cast<std::int32_t>(*parsed);
}

bool parse_bool(nb::handle value, const char* argument) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  // (NumPy's own, as comparisons of its arrays give them; its name since NumPy 2, and before.)
  const std::string type = class_name(value);
  if (type == "numpy.bool" || type == "numpy.bool_")
    return into_python([&] { return PyObject_IsTrue(value.ptr()); }) == 1;
  invalid(argument, fmt::format("expected True or False, got {}", describe(value)));
}

std::int32_t parse_zero_point(nb::handle value, const char* argument) {
  On anywhere;
  const Numbers numbers(value, argument, true, anywhere);
  if (!numbers.single())
    invalid(argument, fmt::format("expected one integer, got {}", describe(value)));
  return numbers.integer();
}

double parse_number(nb::handle value, const char* argument) {
  On anywhere;
  const Numbers numbers(value, argument, false, anywhere);
  if (!numbers.given() || !numbers.single())
    invalid(argument, fmt::format("expected one number, got {}", describe(value)));
  return numbers.value();
}

TensorRef read_as(TensorRef in, const Array& array, nb::handle q_dtype, nb::handle length) {
  if (q_dtype.is_none() && length.is_none()) return in;
  const char* const argument = array.argument;
  const DType type = q_dtype.is_none() ? in.dtype : parse_dtype(q_dtype, "q_dtype");
  const int last = in.shape.rank() - 1;
  const std::int64_t held = last >= 0 ? in.shape[last] : 1;
  const std::optional<std::int64_t> wanted = parse_integer(length, "length");
  if (!is_packed(type)) {
    if (wanted && *wanted != held)
      invalid("length", fmt::format("expected {}, the last dimension (only s4 and u4 are packed), "
                                    "got {}",
                                    held, *wanted));
    if (type != in.dtype)
      unsupported("q_dtype", fmt::format("expected {}, the type of {}, or s4 or u4, got {}",
                                         octavo::name(in.dtype), argument, octavo::name(type)));
    return in;
  }
  if (in.dtype != DType::u8)
    unsupported(argument, fmt::format("expected uint8, which {} is held in two to a byte, got {}",
                                      octavo::name(type), name(array.held)));
  if (last < 0 && wanted && *wanted != 1)
    invalid("length", fmt::format("expected 1 for a scalar, got {}", describe(length)));
  const std::int64_t columns = wanted.value_or(last >= 0 ? 2 * held : 1);
  if (columns < 0 || columns > 2 * held || (columns + 1) / 2 != held)
    invalid("length", fmt::format("expected {} or {} for rows of {} bytes, got {}",
                                  held > 0 ? 2 * held - 1 : 0, 2 * held, held, columns));
  if (last >= 0 && held > 1 && in.strides[last] != 1)
    invalid(argument,
            "expected rows of consecutive bytes, got a stride between them; copy it first");
  for (int i = 0; i < last; ++i) in.strides[i] *= 2;
  if (last >= 0) {
    in.strides[last] = 1;
    in.shape[last] = columns;
  }
  in.dtype = type;
  return in;
}

Granularity parse_granularity(const Shape& shape, nb::handle axis, nb::handle group_size) {
  Granularity g;
  const int rank = shape.rank();
  const auto without_last = [&](const char* argument) {
    if (rank == 0) invalid(argument, "expected a tensor of at least one dimension, got a scalar");
    g.shape = Shape(std::span<const std::int64_t>());
    std::array<std::int64_t, max_rank> sizes{};
    for (int i = 0; i < rank - 1; ++i) {
      sizes[static_cast<std::size_t>(i)] = shape[i];
      g.count *= shape[i];
    }
    g.shape = Shape(std::span(sizes.data(), static_cast<std::size_t>(rank - 1)));
  };
  if (!group_size.is_none()) {
    if (!axis.is_none())
      invalid("group_size", "expected no axis (groups are of the last one), got both");
    g.group_size = *parse_integer(group_size, "group_size");
    without_last("group_size");
    const std::int64_t last = shape[rank - 1];
    if (g.group_size < 1 || last % g.group_size != 0)
      invalid("group_size", fmt::format("expected a divisor of the last dimension ({}), got {}",
                                        last, g.group_size));
    g.layout = Layout::per_group;
    std::array<std::int64_t, max_rank> sizes{};
    for (int i = 0; i < rank - 1; ++i) sizes[static_cast<std::size_t>(i)] = shape[i];
    sizes[static_cast<std::size_t>(rank - 1)] = last / g.group_size;
    g.count *= last / g.group_size;
    g.shape = Shape(std::span(sizes.data(), static_cast<std::size_t>(rank)));
    return g;
  }
  if (axis.is_none()) return g;
  if (PyUnicode_Check(axis.ptr()) != 0) {
    if (text_of(axis) != "token")
      unsupported("axis",
                  fmt::format("expected None, an integer or 'token', got {}", describe(axis)));
    g.layout = Layout::per_token;
    without_last("axis");
    return g;
  }
  const std::int64_t wanted = *parse_integer(axis, "axis");
  if (rank == 0) invalid("axis", fmt::format("expected None for a scalar, got {}", wanted));
  if (wanted < -rank || wanted >= rank)
    invalid("axis", fmt::format("expected {} to {} for a tensor of {} dimensions, got {}", -rank,
                                rank - 1, rank, wanted));
  g.layout = Layout::per_channel;
  g.axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
  g.count = shape[g.axis];
  g.shape = Shape{g.count};
  return g;
}

}  // namespace octavo::python
