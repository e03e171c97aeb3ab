#include "device_array.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <memory>

#include "arguments.hpp"
#include "dlpack.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "on.hpp"

namespace octavo::python {
namespace {

void check(const Status& status) {
  if (!status) throw Refused(status.error());
}

std::shared_ptr<Block> block_for(const QueuePtr& queue, Held held, const Shape& shape) {
  std::int64_t bytes = bytes_of(held);
  for (int i = 0; i < shape.rank(); ++i) bytes *= shape[i];
  const auto block = Block::make(queue, static_cast<std::size_t>(bytes));
  if (!block) throw Refused(block.error());
  return *block;
}

QueuePtr queue_for(nb::handle device) {
  const Result<QueuePtr> queue = own_queue(parse_int32(device, "device").value_or(0));
  if (!queue) throw Refused(queue.error());
  return *queue;
}

DeviceArray* as_array(nb::handle array, nb::handle device) {
  Array given(array, "array");
  const QueuePtr queue = queue_for(device);
  if (!given.is_contiguous()) given = given.contiguous();
  auto made = std::make_unique<DeviceArray>(queue, given.held, given.shape);
  const WithoutGil released;
  check(queue->upload(made->block->memory(), given.data, made->bytes()));
  queue->wait();  // (memory that is pinned may change later)
  return made.release();
}

nb::object numpy_of(const DeviceArray& a) {
  nb::object array =
      nb::module_::import_("numpy").attr("empty")(tuple_of(a.shape), numpy_dtype(a.held, "dtype"));
  const Array view(array, "array", true);
  if (const Status s = synchronized(*a.queue()); !s) refuse_queued(s.error());
  const WithoutGil released;
  check(a.queue()->download(view.data, a.block->memory(), a.bytes()));
  return array;
}

// ---- for others ---------------------------------------------------------------------------------

// What a capsule holds: the block, for as long as the consumer wants it.
template <class Managed>
struct Export {
  Managed managed{};
  std::array<std::int64_t, max_rank> sizes{};
  std::array<std::int64_t, max_rank> steps{};
  std::shared_ptr<Block> block;
};

std::pair<std::uint8_t, std::uint8_t> type_of(Held held) {
  const auto bits = static_cast<std::uint8_t>(8 * bytes_of(held));
  switch (held) {
    case Held::f32:
    case Held::f64:
    case Held::f16:
      return {dl_float, bits};
    case Held::bf16:
      return {dl_bfloat, bits};
    case Held::s8:
    case Held::s16:
    case Held::s32:
    case Held::s64:
      return {dl_integer, bits};
    case Held::boolean:
      return {dl_boolean, bits};
    case Held::u8:
    case Held::u16:
    case Held::u32:
    case Held::u64:
      break;
  }
  return {dl_natural, bits};
}

template <class Managed>
nb::object capsule_of(const DeviceArray& a, const std::shared_ptr<Block>& block, const char* name) {
  auto held = std::make_unique<Export<Managed>>();
  held->block = block;
  const Shape strides = contiguous_strides(a.shape, DType::s8);
  for (int i = 0; i < a.shape.rank(); ++i) {
    held->sizes[static_cast<std::size_t>(i)] = a.shape[i];
    held->steps[static_cast<std::size_t>(i)] = strides[i];
  }
  const auto [code, bits] = type_of(a.held);
  held->managed.tensor = {.data = block->memory(),
                          .device_type = dl_cuda,
                          .device_id = block->queue()->device(),
                          .ndim = a.shape.rank(),
                          .code = code,
                          .bits = bits,
                          .lanes = 1,
                          .shape = held->sizes.data(),
                          .strides = held->steps.data(),
                          .byte_offset = 0};
  held->managed.context = held.get();
  held->managed.deleter = [](Managed* m) { delete static_cast<Export<Managed>*>(m->context); };
  if constexpr (requires { held->managed.version; }) held->managed.version = {1, 0};
  nb::object capsule = nb::steal(PyCapsule_New(&held->managed, name, [](PyObject* capsule) {
    // (One that was used has another name, and its consumer frees what it holds.)
    const char* const now = PyCapsule_GetName(capsule);
    if (now == nullptr || std::string_view(now).starts_with("used_")) return;
    auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, now));
    m->deleter(m);
  }));
  if (!capsule.is_valid()) throw nb::python_error();
  (void)held.release();
  return capsule;
}

[[noreturn]] void buffer_error(const std::string& why) { throw nb::buffer_error(why.c_str()); }

// Two integers, of a tuple.
std::pair<std::int64_t, std::int64_t> two_of(nb::handle tuple, const char* argument) {
  if (PyTuple_Check(tuple.ptr()) == 0 || PyTuple_GET_SIZE(tuple.ptr()) != 2)
    invalid(argument, fmt::format("expected two integers or None, got {}", describe(tuple)));
  const auto part = [&](Py_ssize_t i) {
    const nb::handle item = PyTuple_GET_ITEM(tuple.ptr(), i);
    // (Members of an IntEnum, as NumPy has them, are integers.)
    return parse_integer(item, argument).value_or(0);
  };
  return {part(0), part(1)};
}

nb::object dlpack_of(const nb::object& self, nb::handle stream, nb::handle max_version,
                     nb::handle dl_device, nb::handle copy) {
  const auto& a = nb::cast<const DeviceArray&>(self);
  if (!dl_device.is_none()) {
    const auto [kind, number] = two_of(dl_device, "dl_device");
    if (kind == dl_cpu && !copy.is(nb::handle(Py_False))) return numpy_of(a).attr("__dlpack__")();
    if (kind != dl_cuda || number != a.queue()->device())
      buffer_error(
          fmt::format("octavo: expected dl_device (2, {}), or (1, 0) and a copy, got "
                      "({}, {})",
                      a.queue()->device(), kind, number));
  }
  std::shared_ptr<Block> block = a.block;
  if (copy.is(nb::handle(Py_True))) {
    block = block_for(a.queue(), a.held, a.shape);
    check(a.queue()->copy(block->memory(), a.block->memory(), a.bytes()));
  }
  block->share();
  // 1 and None are the legacy default stream, 2 that of the thread; -1: the consumer sees to it.
  const std::int64_t wanted = parse_integer(stream, "stream").value_or(1);
  if (wanted == 0 || wanted < -1)
    invalid("stream", fmt::format("expected None, -1, 1 (the legacy default stream), 2 (the "
                                  "thread's) or the handle of a stream, got {}",
                                  wanted));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): handles are numbers in Python
  const auto theirs = reinterpret_cast<cuda::StreamHandle>(static_cast<std::uintptr_t>(wanted));
  if (wanted != -1 && theirs != a.queue()->handle()) check(a.queue()->lead(theirs));
  if (!max_version.is_none() && two_of(max_version, "max_version").first >= 1)
    return capsule_of<DLManagedTensorVersioned>(a, block, dl_versioned);
  return capsule_of<DLManagedTensor>(a, block, dl_unversioned);
}

nb::object cuda_interface_of(const DeviceArray& a) {
  if (a.held == Held::bf16)
    throw nb::attribute_error("bfloat16 has no __cuda_array_interface__; use __dlpack__");
  a.block->share();
  const auto handle = reinterpret_cast<std::uintptr_t>(a.queue()->handle());
  nb::dict interface;
  interface["shape"] = tuple_of(a.shape);
  interface["typestr"] = numpy_dtype(a.held, "dtype").attr("str");
  interface["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(a.block->memory()), false);
  interface["strides"] = nb::none();
  interface["stream"] = handle == 0 ? 1 : handle;
  interface["version"] = 3;
  return interface;
}

// ---- octavo.cuda --------------------------------------------------------------------------------

// (name, major, minor, bytes) of each; none where there is no driver.
nb::list devices() {
  nb::list list;
  const auto found = cuda_devices();
  if (!found) return list;
  for (const CudaDevice& d : *found)
    list.append(nb::make_tuple(d.name, d.compute_major, d.compute_minor, d.bytes));
  return list;
}

void synchronize(nb::handle device) {
  const std::optional<std::int32_t> wanted = parse_int32(device, "device");
  Status first;
  for (const QueuePtr& queue : all_queues()) {
    if (!queue->is_busy() || (wanted && queue->device() != *wanted)) continue;
    Status status = synchronized(*queue);
    if (first && !status) first = std::move(status);
  }
  if (!first) refuse_queued(first.error());
}

std::string repr(const DeviceArray& a) {
  return fmt::format("DeviceArray(shape={}, dtype={}, device={})", to_string(a.shape), name(a.held),
                     a.queue()->device());
}

}  // namespace

DeviceArray::DeviceArray(const QueuePtr& queue, Held type, const Shape& sizes)
    : held(type),
      shape(sizes),
      block(block_for(queue, type, sizes)) {}

void define_cuda(nb::module_& m) {
  nb::class_<DeviceArray>(
      m, "DeviceArray",
      "An array in memory of a CUDA device, contiguous: what octavo.cuda.asarray "
      "makes, and what functions return for arrays of a device that are not "
      "PyTorch's. Other libraries take it by DLPack and by the CUDA array "
      "interface.")
      .def_prop_ro(
          "shape", [](const DeviceArray& a) { return tuple_of(a.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const DeviceArray& a) { return numpy_dtype(a.held, "dtype"); }, "NumPy's.",
          nb::sig("def dtype(self) -> typing.Any"))
      .def_prop_ro("ndim", [](const DeviceArray& a) { return a.shape.rank(); })
      .def_prop_ro("nbytes", &DeviceArray::bytes)
      .def_prop_ro(
          "device", [](const DeviceArray& a) { return a.queue()->device(); },
          "The number of its device.")
      .def("numpy", &numpy_of,
           "A copy for the host, when all is done that was called before on its stream. Raises the "
           "first refusal of that.",
           nb::sig("def numpy(self) -> typing.Any"))
      .def("__dlpack__", &dlpack_of, nb::kw_only(), nb::arg("stream").none() = nb::none(),
           nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
           nb::arg("copy").none() = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, "
                   "int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | "
                   "None = None) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const DeviceArray& a) { return nb::make_tuple(dl_cuda, a.queue()->device()); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("__cuda_array_interface__", &cuda_interface_of,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"))
      .def("__repr__", &repr);
  m.def("cuda_asarray", &as_array, nb::arg("array").none(), nb::arg("device").none(),
        nb::rv_policy::take_ownership);
  m.def("cuda_devices", &devices, nb::sig("def cuda_devices() -> list[tuple[str, int, int, int]]"));
  m.def("cuda_synchronize", &synchronize, nb::arg("device").none());
}

}  // namespace octavo::python
