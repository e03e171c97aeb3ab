// The class PackedWeight.
#include "packed_weight.hpp"

#include <nanobind/stl/string.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "linear_call.hpp"

namespace octavo::python {
namespace {

// ---- places -------------------------------------------------------------------------------------

// -1 for "cpu", the number of a CUDA device for "cuda:1" or torch.device("cuda", 1).
int parse_device(nb::handle value) {
  std::string text(text_of(value));
  if (text.empty() && nb::hasattr(value, "type") && nb::hasattr(value, "index"))
    text = str_of(nb::borrow(value));
  if (text == "cpu") return -1;
  if (text == "cuda") return 0;
  constexpr std::string_view cuda = "cuda:";
  int number = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with(cuda)) {
    const auto [after, error] = std::from_chars(text.data() + cuda.size(), end, number);
    if (error == std::errc() && after == end && number >= 0) return number;
  }
  unsupported("device",
              fmt::format("expected 'cpu', 'cuda' or 'cuda:1', say, got {}", describe(value)));
}

std::string device_name(int device) { return device < 0 ? "cpu" : fmt::format("cuda:{}", device); }

Kept moved(const Kept& kept, const QueuePtr& to) {
  Kept here = kept;
  if (kept.block != nullptr) {
    here.block = nullptr;
    here.bytes.resize(kept.size());
    const Status s =
        kept.block->queue()->download(here.bytes.data(), kept.block->memory(), kept.size());
    if (!s) throw Refused(s.error());
  }
  if (to == nullptr) return here;
  const auto block = Block::make(to, here.size());
  if (!block) throw Refused(block.error());
  if (Status s = to->upload((*block)->memory(), here.bytes.data(), here.size()); !s)
    throw Refused(s.error());
  to->wait();
  return {here.dtype, {}, *block};
}

PyPackedWeight moved(const PyPackedWeight& w, int device) {
  if (w.device == device) return w;
  QueuePtr queue;
  if (device >= 0) {
    const Result<QueuePtr> own = own_queue(device);
    if (!own) throw Refused(own.error());
    queue = *own;
  }
  const Stream& stream = queue == nullptr ? parse_stream(nb::none()).stream : queue->stream();
  PyPackedWeight made;
  made.maker = w.maker;
  made.device = device;
  {
    const WithoutGil released;
    const Result<PackedWeight> packed = w.packed.to(stream);
    if (!packed) throw Refused(packed.error());
    made.packed = *packed;
  }
  if (w.scale) made.scale = moved(*w.scale, queue);
  if (w.zero_point) made.zero_point = moved(*w.zero_point, queue);
  return made;
}

// ---- images -------------------------------------------------------------------------------------

nb::bytes serialized(const PyPackedWeight& w) {
  if (w.device >= 0) return serialized(moved(w, -1));  // (images are the host's)
  const auto size = static_cast<Py_ssize_t>(w.packed.serialized_bytes());
  nb::bytes image = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, size));
  if (!image.is_valid()) throw nb::python_error();
  const std::span<std::byte> to(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(image.ptr())),
                                w.packed.serialized_bytes());
  Status status;
  {
    const WithoutGil released;
    status = w.packed.serialize(to);
  }
  if (!status) throw Refused(status.error());
  return image;
}

// The memory of bytes, of a memoryview, of a file that is mapped.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    const auto refused = [&](const std::string& why) {
      unsupported("image", fmt::format("expected bytes, or other contiguous memory, got {}{}",
                                       class_name(object), why));
    };
    if (PyObject_CheckBuffer(object.ptr()) == 0) refused("");
    if (into_python([&] { return PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE); }) == 0)
      return;
    if (PyErr_ExceptionMatches(PyExc_MemoryError) != 0) throw nb::python_error();
    const nb::python_error e;
    refused(": " + str_of(nb::borrow(e.value())));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire held;  // (the last copy of a weight may go on any thread)
    PyBuffer_Release(&view_);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

PyPackedWeight deserialized(nb::handle image, nb::handle in_place) {
  const bool stays = parse_bool(in_place, "in_place");
  const auto buffer = std::make_shared<const Buffer>(image);
  std::optional<Result<PackedWeight>> packed;
  {
    const WithoutGil released;
    packed.emplace(stays ? PackedWeight::deserialize_in_place(buffer->bytes(), buffer)
                         : PackedWeight::deserialize(buffer->bytes()));
  }
  if (!*packed) throw Refused(packed->error());
  return {**packed};
}

// For pickle: an image, and what is kept beside it, if anything is.
nb::object state_of(const PyPackedWeight& w) {
  if (w.device >= 0) return state_of(moved(w, -1));
  if (!w.scale && !w.zero_point && w.maker == Maker::numpy) return serialized(w);
  const auto bytes = [](const Kept& kept) {
    return nb::bytes(kept.bytes.data(), kept.bytes.size());
  };
  nb::object scale = nb::none();
  nb::object zero_point = nb::none();
  if (w.scale)
    scale = nb::make_tuple(std::string(octavo::name(w.scale->dtype)).c_str(), bytes(*w.scale));
  if (w.zero_point) zero_point = bytes(*w.zero_point);
  return nb::make_tuple(serialized(w), scale, zero_point, w.maker == Maker::torch);
}

Kept kept_from(nb::handle bytes, DType dtype, std::int64_t n) {
  if (PyBytes_Check(bytes.ptr()) == 0)
    unsupported("state", fmt::format("expected bytes, got {}", class_name(bytes)));
  const auto* data = reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
  const std::int64_t size = PyBytes_GET_SIZE(bytes.ptr());
  if (size != bytes_for(dtype, 1) && size != bytes_for(dtype, n))
    invalid("state", fmt::format("expected {} numbers of {}, or one, got {} bytes", n,
                                 octavo::name(dtype), size));
  return {dtype, {data, data + size}};
}

PyPackedWeight from_state(nb::handle state) {
  if (PyTuple_Check(state.ptr()) == 0) return deserialized(state, nb::handle(Py_False));
  // (The last, whether it was a tensor, is younger than the others.)
  const Py_ssize_t parts = PyTuple_GET_SIZE(state.ptr());
  if (parts != 3 && parts != 4) invalid("state", fmt::format("expected four parts, got {}", parts));
  PyPackedWeight w = deserialized(PyTuple_GET_ITEM(state.ptr(), 0), nb::handle(Py_False));
  const nb::handle scale = PyTuple_GET_ITEM(state.ptr(), 1);
  const nb::handle zero_point = PyTuple_GET_ITEM(state.ptr(), 2);
  if (!scale.is_none()) {
    if (PyTuple_Check(scale.ptr()) == 0 || PyTuple_GET_SIZE(scale.ptr()) != 2)
      invalid("state", fmt::format("expected scales with their type, got {}", describe(scale)));
    const DType dtype = parse_dtype(PyTuple_GET_ITEM(scale.ptr(), 0), "state");
    if (!is_float(dtype))
      unsupported("state", fmt::format("expected scales of floats, got {}", octavo::name(dtype)));
    w.scale = kept_from(PyTuple_GET_ITEM(scale.ptr(), 1), dtype, w.packed.n());
  }
  if (!zero_point.is_none()) w.zero_point = kept_from(zero_point, DType::s32, w.packed.n());
  if (parts == 4 && parse_bool(PyTuple_GET_ITEM(state.ptr(), 3), "state")) w.maker = Maker::torch;
  return w;
}

// ---- what it holds ------------------------------------------------------------------------------

nb::object unpacked(const PyPackedWeight& w) {
  const WeightFormat format = w.packed.format();
  const nb::object none = nb::none();
  On host(none);  // (also what lies on a device comes back to the host)
  const Maker maker = w.maker == Maker::device ? Maker::numpy : w.maker;
  const auto array = [&](const Shape& shape, DType dtype) {
    return Output(none, maker, shape, dtype, host, "packed");
  };
  const Output weight = array({w.packed.n(), w.packed.k()}, format.code);
  std::optional<Output> scale, zero_point;
  TensorMut scales, zero_points;
  if (format.group != 0) {
    const Shape shape{w.packed.n(), w.packed.k() / format.group};
    scales = scale.emplace(array(shape, format.scales)).tensor();
    if (format.zero_points) zero_points = zero_point.emplace(array(shape, DType::s32)).tensor();
  }
  const auto copy = [&](const std::optional<Kept>& kept, std::optional<Output>& to) {
    if (!kept) return;
    to.emplace(array({kept->count()}, kept->dtype));
    if (kept->block != nullptr) {
      if (Status s = kept->block->queue()->download(to->tensor().data, kept->block->memory(),
                                                    kept->size());
          !s)
        throw Refused(s.error());
    } else if (!kept->bytes.empty()) {
      std::memcpy(to->tensor().data, kept->bytes.data(), kept->bytes.size());
    }
  };
  copy(w.scale, scale);
  copy(w.zero_point, zero_point);
  Status status;
  {
    const WithoutGil released;
    status = w.packed.unpack(weight.tensor(), scales, zero_points);
  }
  if (!status) throw Refused(status.error());
  return nb::make_tuple(weight.object(), scale ? scale->object() : none,
                        zero_point ? zero_point->object() : none);
}

std::size_t bytes_held(const PyPackedWeight& w) {
  return w.packed.bytes() + (w.scale ? w.scale->size() : 0) +
         (w.zero_point ? w.zero_point->size() : 0);
}

nb::object group_size_of(const PyPackedWeight& w) {
  const std::int64_t group = w.packed.format().group;
  return group == 0 ? nb::object(nb::none()) : nb::object(nb::int_(group));
}

nb::object scale_dtype_of(const PyPackedWeight& w) {
  if (!w.has_scale()) return nb::none();
  const DType dtype = w.scale ? w.scale->dtype : w.packed.format().scales;
  return nb::str(std::string(octavo::name(dtype)).c_str());
}

std::string repr(const PyPackedWeight& w) {
  const std::int64_t group = w.packed.format().group;
  return fmt::format("PackedWeight(shape=({}, {}), dtype='{}'{}{})", w.packed.n(), w.packed.k(),
                     octavo::name(w.packed.dtype()),
                     group == 0 ? "" : fmt::format(", group_size={}", group),
                     w.device < 0 ? "" : fmt::format(", device='{}'", device_name(w.device)));
}

}  // namespace

void define_packed_weight(nb::module_& m) {
  nb::class_<PyPackedWeight>(m, "PackedWeight",
                             "Weights of a linear layer, rearranged once by `pack` so that every "
                             "call reads them in order.\n\n"
                             ">>> packed = octavo.pack(np.int8([[1, 2, 3], [4, 5, 6]]))\n"
                             ">>> packed.shape, packed.dtype\n((2, 3), 's8')\n"
                             ">>> octavo.linear(np.float32([0, 0, 1]), packed, 1.0)\n"
                             "array([3., 6.], dtype=float32)\n"
                             ">>> packed.unpack()[0]\n"
                             "array([[1, 2, 3],\n       [4, 5, 6]], dtype=int8)")
      .def_prop_ro(
          "shape",
          [](const PyPackedWeight& w) { return nb::make_tuple(w.packed.n(), w.packed.k()); },
          nb::sig("def shape(self) -> tuple[int, int]"))
      .def_prop_ro("dtype",
                   [](const PyPackedWeight& w) { return std::string(name(w.packed.dtype())); })
      .def_prop_ro("group_size", &group_size_of,
                   "Weights of a row that share a scale; None: all of them.",
                   nb::sig("def group_size(self) -> int | None"))
      .def_prop_ro("scale_dtype", &scale_dtype_of,
                   "The type of the scales that it holds; None: calls are given them.",
                   nb::sig("def scale_dtype(self) -> str | None"))
      .def_prop_ro("has_zero_point", &PyPackedWeight::has_zero_point,
                   "Whether it holds zero points.")
      .def_prop_ro("nbytes", &bytes_held)
      .def_prop_ro(
          "device", [](const PyPackedWeight& w) { return device_name(w.device); },
          "Where it lies: 'cpu', or 'cuda:0' and so on. Calls with arrays of that place take it.")
      .def(
          "to",
          [](const PyPackedWeight& w, nb::handle device) { return moved(w, parse_device(device)); },
          nb::arg("device"),
          "The same weights elsewhere: 'cpu', 'cuda:0' or what PyTorch calls a device.",
          nb::sig("def to(self, device: typing.Any) -> PackedWeight"))
      .def("unpack", &unpacked,
           "(weight, scale, zero_point), as they were packed: weights of four bits are uint8, two "
           "to a byte. None for what it does not hold.",
           nb::sig("def unpack(self) -> tuple[typing.Any, typing.Any, typing.Any]"))
      .def("serialize", &serialized,
           "A portable image, for any CPU, with the scales and zero points of groups. Those of "
           "output channels are not in it: give them to calls, or pickle the object.")
      .def_static("deserialize", &deserialized, nb::arg("image").none(), nb::kw_only(),
                  nb::arg("in_place").none() = false,
                  "Reads an image back from bytes or other contiguous memory; refuses a damaged "
                  "one. With `in_place` the weights stay there, aligned to 64 bytes, as in a file "
                  "that is mapped (`mmap`): nothing is copied, and the memory must not change.",
                  nb::sig("def deserialize(image: typing.Any, *, in_place: bool = False) -> "
                          "PackedWeight"))
      .def("__getstate__", &state_of)
      .def("__setstate__", [](PyPackedWeight& self,
                              nb::handle state) { new (&self) PyPackedWeight(from_state(state)); })
      .def("__repr__", &repr);
}

}  // namespace octavo::python
