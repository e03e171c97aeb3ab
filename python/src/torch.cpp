#include "torch.hpp"

#include <fmt/core.h>

#include <array>

#include "arguments.hpp"
#include "error.hpp"
#include "gil.hpp"

namespace octavo::python {
namespace {

struct Torch {
  nb::object tensor;
  nb::object empty;
  nb::object empty_keywords;
  nb::object cpu;
  nb::object is_grad_enabled;
  nb::object is_tracing;
  nb::object strided;
  std::vector<std::pair<nb::object, Held>> dtypes;

  [[nodiscard]] nb::handle dtype(Held held) const {
    for (const auto& [object, h] : dtypes)
      if (h == held) return object;
    return nb::none();
  }
};

// Made once: looking an attribute up by a string that is new each time takes half as long again.
struct Names {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
};
const Names& names() {
  static const auto* const made = new Names();
  return *made;
}

nb::object checked(PyObject* result) {
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}
nb::object get(nb::handle object, PyObject* name) {
  return checked(into_python([&] { return PyObject_GetAttr(object.ptr(), name); }));
}
nb::object call(nb::handle object, PyObject* method) {
  return checked(into_python([&] { return PyObject_CallMethodNoArgs(object.ptr(), method); }));
}

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
  made->empty_keywords = nb::make_tuple("dtype", "device");
  made->cpu = module.attr("device")("cpu");
  made->is_grad_enabled = module.attr("is_grad_enabled");
  made->is_tracing = module.attr("jit").attr("is_tracing");
  made->strided = module.attr("strided");
  for (const Held held : {Held::f32, Held::f64, Held::f16, Held::bf16, Held::s8, Held::u8,
                          Held::s32, Held::s16, Held::s64, Held::boolean})
    made->dtypes.emplace_back(module.attr(python::name(held)), held);
  for (const Held held : {Held::u16, Held::u32, Held::u64})  // since PyTorch 2.3
    if (nb::hasattr(module, python::name(held)))
      made->dtypes.emplace_back(module.attr(python::name(held)), held);
  found = made.release();
  return found;
}

// The device of CUDA that a tensor which is not on the CPU lies on, or -1.
int cuda_device_of(const nb::object& device) {
  if (text_of(device.attr("type")) != "cuda") return -1;
  const nb::object index = device.attr("index");
  return index.is_none() ? 0 : nb::cast<int>(index);
}

// The handle of the stream that PyTorch's next work on a device goes to.
std::uintptr_t current_stream_of(const nb::object& device) {
  const nb::object cuda = nb::module_::import_("torch").attr("cuda");
  return nb::cast<std::uintptr_t>(cuda.attr("current_stream")(device).attr("cuda_stream"));
}

}  // namespace

bool is_tensor(nb::handle object) {
  const Torch* const t = torch();
  if (t == nullptr) return false;
  const int is = PyObject_IsInstance(object.ptr(), t->tensor.ptr());
  if (is < 0) PyErr_Clear();
  return is == 1;
}

// (On the CPU whatever PyTorch's default device is.)
nb::object empty_tensor(const nb::object& sizes, Held held, nb::handle device) {
  const Torch& t = *torch();
  // A trace would record that the tensor was made, and not what is written into it.
  if (nb::cast<bool>(t.is_tracing()))
    unsupported("out", "expected a call that is not traced by torch.jit.trace, got one");
  const std::array<PyObject*, 3> arguments{sizes.ptr(), t.dtype(held).ptr(),
                                           device.is_valid() ? device.ptr() : t.cpu.ptr()};
  return checked(into_python([&] {
    return PyObject_Vectorcall(t.empty.ptr(), arguments.data(), 1, t.empty_keywords.ptr());
  }));
}

void* data_of_tensor(nb::handle tensor) {
  return PyLong_AsVoidPtr(call(tensor, names().data_ptr).ptr());
}

void Array::from_torch(On* on) {
  maker = Maker::torch;
  const Torch& t = *torch();
  const Names& n = names();
  const nb::object dtype = get(object, n.dtype);
  bool known = false;
  for (const auto& [candidate, h] : t.dtypes)
    if (candidate.is(dtype)) {
      held = h;
      known = true;
      break;
    }
  if (!known)
    unsupported(argument,
                fmt::format("expected floats or integers, got a tensor of {}", str_of(dtype)));
  if (get(object, n.is_cpu).ptr() != Py_True) {
    const nb::object where = get(object, n.device);
    device = cuda_device_of(where);
    if (device < 0 || on == nullptr)
      unsupported(argument, fmt::format("expected a tensor on the CPU, got one on {}{}",
                                        str_of(where), device < 0 ? "" : "; copy it first"));
    (void)on->queue_for(device, argument);  // (refuses where there is no driver)
    const Result<QueuePtr> queue = queue_of(device, current_stream_of(where));
    if (!queue) throw Refused(queue.error());
    home = *queue;
  }
  if (get(object, n.requires_grad).ptr() == Py_True && nb::cast<bool>(t.is_grad_enabled()))
    invalid(argument,
            "expected a tensor without gradient, got one that requires it; use octavo.torch, or "
            "call detach()");
  if (const nb::object layout = get(object, n.layout); !layout.is(t.strided))
    unsupported(argument,
                fmt::format("expected a dense tensor, got one of layout {}", str_of(layout)));
  if (call(object, n.is_neg).ptr() == Py_True)
    unsupported(argument,
                "expected a tensor as it lies in memory, got one that is negated when "
                "read; call resolve_neg()");
  try {
    data = data_of_tensor(object);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_Exception)) throw;
    unsupported(argument, fmt::format("expected a tensor in memory, got {} without: {}",
                                      class_name(object), str_of(nb::borrow(e.value()))));
  }
  const nb::object sizes = get(object, n.shape);
  const nb::object steps = call(object, n.stride);
  const auto rank = static_cast<int>(PyTuple_GET_SIZE(sizes.ptr()));
  check_rank(rank);
  std::array<std::int64_t, max_rank> lengths{};
  std::array<std::int64_t, max_rank> strides_of{};
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    lengths[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.ptr(), i));
    strides_of[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps.ptr(), i));
  }
  shape = Shape(std::span(lengths.data(), static_cast<std::size_t>(rank)));
  strides = Shape(std::span(strides_of.data(), static_cast<std::size_t>(rank)));
}

}  // namespace octavo::python
