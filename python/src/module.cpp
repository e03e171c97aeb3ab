// The extension module octavo._core: what Python calls, argument by argument, and its classes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <fstream>

#include "device_array.hpp"
#include "functions.hpp"

namespace octavo::python {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const Target target : available_targets()) names.emplace_back(name(target));
  return names;
}

// The best that streams without a cap may use.
std::string best_target() {
  const char* wanted = std::getenv("OCTAVO_TARGET");
  const std::optional<Target> cap = parse_target(wanted != nullptr ? wanted : "");
  Target best = Target::scalar;
  for (const Target target : available_targets())
    if (!cap || at_or_below(target, *cap)) best = target;
  return std::string(name(best));
}

PyStream make_stream(nb::handle threads, nb::handle target) {
  CpuOptions options;
  const std::optional<std::int32_t> wanted = parse_int32(threads, "threads");
  if (wanted && *wanted < 1)
    invalid("threads", fmt::format("expected 1 or more, or None for all cores, got {}", *wanted));
  options.threads = wanted.value_or(0);
  if (!target.is_none()) {
    const std::optional<Target> known = parse_target(text_of(target));
    if (!known || !is_available(*known)) {
      std::string all;
      for (const std::string& one : target_names()) all += (all.empty() ? "" : ", ") + one;
      unsupported("target", fmt::format("expected a target that this CPU has ({}), got {}", all,
                                        describe(target)));
    }
    options.cap = known;
  }
  return {Stream::cpu(options)};
}

// Whose handle a stream of another library's is: PyTorch's cuda_stream, CuPy's ptr, or an integer.
std::int64_t handle_of(nb::handle stream) {
  for (const char* attribute : {"cuda_stream", "ptr"})
    if (nb::hasattr(stream, attribute)) return handle_of(stream.attr(attribute));
  const std::int64_t handle = *parse_integer(stream, "stream");
  if (handle < 0) invalid("stream", fmt::format("expected the handle of a stream, got {}", handle));
  return handle;
}

PyStream make_cuda_stream(nb::handle device, nb::handle stream) {
  const std::int32_t number = parse_int32(device, "device").value_or(0);
  const Result<QueuePtr> queue =
      stream.is_none() ? new_queue(number)
                       : queue_of(number, static_cast<std::uintptr_t>(handle_of(stream)));
  if (!queue) throw Refused(queue.error());
  return {(*queue)->stream(), *queue};
}

nb::object device_of(const PyStream& s) {
  return s.queue == nullptr ? nb::object(nb::none()) : nb::object(nb::int_(s.queue->device()));
}

nb::object cuda_stream_of(const PyStream& s) {
  if (s.queue == nullptr) return nb::none();
  return nb::int_(reinterpret_cast<std::uintptr_t>(s.queue->handle()));
}

void synchronize(const PyStream& s) {
  if (s.queue == nullptr) return;
  if (const Status status = synchronized(*s.queue); !status) refuse_queued(status.error());
}

nb::object target_of(const PyStream& s) {
  const std::optional<Target>& cap = s.stream.options().cap;
  return cap ? nb::object(nb::str(std::string(name(*cap)).c_str())) : nb::none();
}

std::string repr(const PyStream& s) {
  if (s.queue != nullptr)
    return fmt::format("Stream.cuda(device={}, stream={:#x})", s.queue->device(),
                       reinterpret_cast<std::uintptr_t>(s.queue->handle()));
  const std::optional<Target>& cap = s.stream.options().cap;
  return fmt::format("Stream(threads={}, target={})", s.stream.threads(),
                     cap ? fmt::format("'{}'", name(*cap)) : "None");
}

// A function whose arguments are all taken as they come, None included.
template <class R, class... Args>
void define(nb::module_& m, const char* name, R (*function)(Args...)) {
  m.def(name, function, ((void)sizeof(Args), nb::arg().none())...);
}

PyObject* error_type = nullptr;  // octavo.Error, once the package is imported

// Raises octavo.Error(code, message, argument). It is made later, by the interpreter (since 3.12 at
// once): code of Python must not run here, inside the handler of an exception, in which the end of
// the interpreter could not be caught.
void raise(const Refused& refused) {
  const Error& e = refused.error();
  // Names of files may be any bytes.
  const auto text = [](const std::string& bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                          "backslashreplace"));
  };
  const nb::object arguments =
      nb::make_tuple(static_cast<int>(e.code()), text(e.message()), text(e.argument()));
  PyErr_SetObject(error_type != nullptr ? error_type : PyExc_RuntimeError, arguments.ptr());
}

}  // namespace
}  // namespace octavo::python

NB_MODULE(_core, m) {
  using namespace octavo::python;
  m.attr("version") = OCTAVO_MODULE_VERSION;  // (stubs have no names with underscores)
  // What lives until the interpreter ends (in a cache of torch.compile, say) is not worth a
  // warning.
  nb::set_leak_warnings(false);
  m.doc() = "The compiled part of octavo; use the functions of the package.";
  m.def(
      "raise_as", [](nb::object type) { error_type = type.release().ptr(); }, nb::arg("type"),
      "Sets the class of all errors: octavo.Error.");
  nb::register_exception_translator([](const std::exception_ptr& p, void* /*payload*/) {
    try {
      std::rethrow_exception(p);
    } catch (const Refused& refused) {
      raise(refused);
    }
  });

  nb::class_<PyStream>(m, "Stream",
                       "Stream(threads=None, target=None)\n--\n\n"
                       "Where calls run. Never changes a bit of a result.\n\n"
                       "threads: how many share the work; None: all cores.\n"
                       "target: the best instruction set that may be used; None: any.\n\n"
                       ">>> octavo.Stream(threads=1).threads\n1")
      .def(
          "__init__",
          [](PyStream* self, nb::handle threads, nb::handle target) {
            new (self) PyStream(make_stream(threads, target));
          },
          nb::arg("threads").none() = nb::none(), nb::arg("target").none() = nb::none(),
          nb::sig("def __init__(self, threads: int | None = None, target: str | None = None) -> "
                  "None"))
      .def_static("cuda", &make_cuda_stream, nb::arg("device").none() = 0,
                  nb::arg("stream").none() = nb::none(),
                  "A stream of a CUDA device: one of its own, or another library's, as the handle "
                  "of a CUstream (0 is the legacy default one) or as an object with `cuda_stream` "
                  "(PyTorch) or `ptr` (CuPy). Such a one must live until what was called on it is "
                  "done.",
                  nb::sig("def cuda(device: int = 0, stream: typing.Any = None) -> Stream"))
      .def("synchronize", &synchronize,
           "Waits for all that was called on it; raises the first refusal of values that only the "
           "device sees. (On the CPU calls return when they are done.)",
           nb::sig("def synchronize(self) -> None"))
      .def_prop_ro("device", &device_of, "The number of the CUDA device; None for the CPU.",
                   nb::sig("def device(self) -> int | None"))
      .def_prop_ro("cuda_stream", &cuda_stream_of,
                   "The handle of its CUstream, for other libraries; None for the CPU.",
                   nb::sig("def cuda_stream(self) -> int | None"))
      .def_prop_ro("threads", [](const PyStream& s) { return s.stream.threads(); })
      .def_prop_ro("target", &target_of, nb::sig("def target(self) -> str | None"))
      .def("__repr__", &repr);

  define_cuda(m);
  define_packed_weight(m);
  define(m, "quantize", &quantize);
  define(m, "quantize_backward", &quantize_backward);
  define(m, "fake_quantize", &fake_quantize);
  define(m, "fake_quantize_backward", &fake_quantize_backward);
  define(m, "dequantize", &dequantize);
  define(m, "dequantize_backward", &dequantize_backward);
  define(m, "quantize_dynamic", &quantize_dynamic);
  define(m, "linear", &linear);
  define(m, "smoothquant_linear", &smoothquant_linear);
  define(m, "quantized_matmul", &quantized_matmul);
  define(m, "int_matmul", &int_matmul);
  define(m, "float_linear", &float_linear);
  define(m, "embedding", &embedding);
  define(m, "pack", &pack_weight);
  define_offline(m);
  m.def("targets", &target_names);
  m.def("best_target", &best_target);
  m.def("cpu_name", &cpu_name);
  m.def("default_threads", [] { return parse_stream(nb::none()).stream.threads(); });
}
