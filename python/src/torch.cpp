#include "torch.hpp"

#include <fmt/core.h>

#include <array>

#include "error.hpp"

namespace octavo::python {
namespace {

struct Torch {
  nb::object tensor;
  nb::object empty;
  nb::object is_grad_enabled;
  nb::object is_tracing;
  nb::object cpu;
  nb::object strided;
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
  made->is_tracing = module.attr("jit").attr("is_tracing");
  made->cpu = module.attr("device")("cpu");
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

}  // namespace

bool is_tensor(nb::handle object) {
  const Torch* const t = torch();
  if (t == nullptr) return false;
  const int is = PyObject_IsInstance(object.ptr(), t->tensor.ptr());
  if (is < 0) PyErr_Clear();
  return is == 1;
}

nb::object empty_tensor(const nb::object& sizes, Held held) {
  const Torch& t = *torch();
  // A trace would record that the tensor was made, and not what is written into it.
  if (nb::cast<bool>(t.is_tracing()))
    unsupported("out", "expected a call that is not traced by torch.jit.trace, got one");
  return t.empty(sizes, nb::arg("dtype") = t.dtype(held), nb::arg("device") = t.cpu);
}

void Array::from_torch(bool /*writes*/) {
  maker = Maker::torch;
  const Torch& t = *torch();
  const nb::object dtype = object.attr("dtype");
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
  if (!nb::cast<bool>(object.attr("is_cpu")))
    unsupported(argument, fmt::format("expected a tensor on the CPU, got one on {}",
                                      str_of(object.attr("device"))));
  if (nb::cast<bool>(object.attr("requires_grad")) && nb::cast<bool>(t.is_grad_enabled()))
    invalid(argument,
            "expected a tensor without gradient, got one that requires it; use octavo.torch, or "
            "call detach()");
  if (const nb::object layout = object.attr("layout"); !layout.is(t.strided))
    unsupported(argument,
                fmt::format("expected a dense tensor, got one of layout {}", str_of(layout)));
  if (nb::cast<bool>(object.attr("is_neg")()))
    unsupported(argument,
                "expected a tensor as it lies in memory, got one that is negated when "
                "read; call resolve_neg()");
  try {
    data = PyLong_AsVoidPtr(nb::object(object.attr("data_ptr")()).ptr());
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_Exception)) throw;
    unsupported(argument, fmt::format("expected a tensor in memory, got {} without: {}",
                                      class_name(object), str_of(nb::borrow(e.value()))));
  }
  const nb::object sizes = object.attr("shape");
  const nb::object steps = object.attr("stride")();
  const auto rank = static_cast<int>(PyTuple_GET_SIZE(sizes.ptr()));
  check_rank(rank);
  std::array<std::int64_t, max_rank> n{};
  std::array<std::int64_t, max_rank> s{};
  for (int i = 0; i < rank; ++i) {
    n[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.ptr(), i));
    s[static_cast<std::size_t>(i)] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps.ptr(), i));
  }
  shape = Shape(std::span(n.data(), static_cast<std::size_t>(rank)));
  strides = Shape(std::span(s.data(), static_cast<std::size_t>(rank)));
}

}  // namespace octavo::python
