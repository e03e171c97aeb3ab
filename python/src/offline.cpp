// Statistics and smoothing: the code of the offline command, for PyTorch models.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "functions.hpp"
#include "numerics/stored_scale.hpp"
#include "octavo/pattern.hpp"
#include "octavo/smooth.hpp"
#include "octavo/statistics.hpp"

namespace octavo::python {
namespace {

template <class T>
nb::object numpy_of(const std::vector<T>& values, const Shape& shape, const char* dtype) {
  nb::object array =
      nb::module_::import_("numpy").attr("empty")(static_cast<std::int64_t>(values.size()), dtype);
  const Array view(array, "array", true);
  if (!values.empty()) std::memcpy(view.data, values.data(), values.size() * sizeof(T));
  if (shape.rank() == 2) return array.attr("reshape")(shape[0], shape[1]);
  return array;
}

void check(const Status& status) {
  if (!status) throw Refused(status.error());
}

Statistics make_statistics(nb::handle sample_rows, nb::handle histogram_bits) {
  StatisticsOptions options;
  options.sample_rows = parse_integer(sample_rows, "sample_rows").value_or(0);
  options.histogram_bits = parse_int32(histogram_bits, "histogram_bits").value_or(-1);
  return Statistics(options);
}

void update(Statistics& self, nb::handle layer, nb::handle rows) {
  const std::string name = parse_text(layer, "layer");
  const Array array(rows, "rows");
  const TensorRef ref = array.ref();
  const Stream& stream = parse_stream(nb::none()).stream;
  Status status;
  {
    const WithoutGil released;
    status = self.update(stream, name, ref);
  }
  check(status);
}

nb::object layer_of(const Statistics& self, nb::handle layer) {
  const std::optional<LayerStatistics> found = self.layer(parse_text(layer, "layer"));
  if (!found) return nb::none();
  nb::dict result;
  result["count"] = found->count();
  result["absmax"] = numpy_of(found->absmax(), {}, "float32");
  result["min"] = numpy_of(found->min(), {}, "float32");
  result["max"] = numpy_of(found->max(), {}, "float32");
  result["histogram"] = numpy_of(found->histogram(), {}, "int64");
  result["sample"] =
      numpy_of(found->sample(), {found->sample_count(), found->channels()}, "float32");
  return result;
}

// Weights of the layers that share an input, seen as tensors.
struct Weights {
  explicit Weights(nb::handle list, bool writes) {
    if (PySequence_Check(list.ptr()) == 0)
      unsupported("weights",
                  fmt::format("expected a list of arrays, got {}", Py_TYPE(list.ptr())->tp_name));
    const nb::object items = nb::steal(into_python([&] { return PySequence_List(list.ptr()); }));
    if (!items.is_valid()) throw nb::python_error();
    for (const nb::handle& item : nb::borrow<nb::list>(items)) {
      arrays.emplace_back(item, "weights", writes);
      refs.push_back(arrays.back().ref());
      muts.push_back(arrays.back().mut());
    }
  }
  std::vector<Array> arrays;
  std::vector<TensorRef> refs;
  std::vector<TensorMut> muts;
};

std::vector<float> floats_of(nb::handle values, const char* argument) {
  const Array array(values, argument);
  if (array.rank() != 1)
    invalid(argument, fmt::format("expected one dimension, got shape {}", to_string(array.shape)));
  std::vector<float> result(static_cast<std::size_t>(array.numel()));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(array.as_double(static_cast<std::int64_t>(i)));
  return result;
}

nb::object scales(nb::handle weights, nb::handle absmax, nb::handle alpha) {
  const Weights w(weights, false);
  const std::vector<float> a = floats_of(absmax, "absmax");
  const auto found =
      smoothing_scales(parse_stream(nb::none()).stream, w.refs, a, parse_number(alpha, "alpha"));
  if (!found) throw Refused(found.error());
  return numpy_of(*found, {}, "float32");
}

// The scale of a static layer's input; `smoothing` is None, or what divides its channels.
double static_scale_of(nb::handle absmax, nb::handle smoothing) {
  const std::vector<float> a = floats_of(absmax, "absmax");
  if (smoothing.is_none()) return double{static_scale(a)};
  const auto scale = static_scale(a, floats_of(smoothing, "smoothing"));
  if (!scale) throw Refused(scale.error());
  return double{*scale};
}

// f32 scales of weights as they are stored in 16 bits.
nb::object stored_scales(nb::handle scales, nb::handle dtype) {
  const Array given(scales, "scales");
  const DType type = parse_dtype(dtype, "dtype");
  if (given.held != Held::f32 || !given.is_contiguous())
    unsupported("scales", fmt::format("expected contiguous float32, got {}", name(given.held)));
  if (type != DType::f16 && type != DType::bf16)
    unsupported("dtype", fmt::format("expected 'f16' or 'bf16', got '{}'", octavo::name(type)));
  const Array stored = Array::make(given.maker, given.shape, type, "dtype");
  const auto* const from = static_cast<const float*>(given.data);
  for (std::int64_t i = 0; i < given.numel(); ++i)
    if (type == DType::f16)
      static_cast<f16*>(stored.data)[i] = numerics::stored_scale_f16(from[i]);
    else
      static_cast<bf16*>(stored.data)[i] = numerics::stored_scale_bf16(from[i]);
  return stored.object;
}

void apply(nb::handle norm_weight, nb::handle norm_bias, nb::handle weights, nb::handle s) {
  const Array norm(norm_weight, "norm_weight", true);
  std::optional<Array> bias;
  if (!norm_bias.is_none()) bias.emplace(norm_bias, "norm_bias", true);
  const Weights w(weights, true);
  const std::vector<float> values = floats_of(s, "scales");
  check(smooth(parse_stream(nb::none()).stream, {.norm_weight = norm.mut(),
                                                 .norm_bias = bias ? bias->mut() : TensorMut(),
                                                 .weights = w.muts,
                                                 .scales = values}));
}

nb::typed<nb::tuple, double, double, std::vector<double>> find_alpha(nb::handle weights,
                                                                     nb::handle absmax,
                                                                     nb::handle rows,
                                                                     nb::handle scheme) {
  const Weights w(weights, false);
  const std::vector<float> a = floats_of(absmax, "absmax");
  const Array sample(rows, "rows");
  const auto wanted = parse_scheme(parse_text(scheme, "scheme"));
  if (!wanted) throw Refused(wanted.error());
  const auto found =
      search_alpha(parse_stream(nb::none()).stream,
                   {.weights = w.refs, .absmax = a, .rows = sample.ref(), .scheme = *wanted});
  if (!found) throw Refused(found.error());
  return nb::make_tuple(found->alpha, found->error, found->errors);
}

nb::dict pairs_of(const nb::list& tensors, nb::handle model_type, bool norm_feeds_residual) {
  std::vector<std::string> names;
  for (const nb::handle& tensor : tensors) names.push_back(parse_text(tensor, "model"));
  const SmoothingPairs found =
      smoothing_pairs(names, {parse_text(model_type, "model"), norm_feeds_residual});
  nb::list pairs;
  for (const SmoothingPair& pair : found.pairs)
    pairs.append(nb::make_tuple(pair.norm, pair.linears));
  nb::dict result;
  result["architecture"] = found.architecture;
  result["pairs"] = pairs;
  result["note"] = found.note;
  return result;
}

}  // namespace

void define_offline(nb::module_& m) {
  nb::class_<Statistics>(m, "Statistics",
                         "What the inputs of linear layers looked like: extremes of each channel, "
                         "and, if asked for, a histogram and sampled rows. In fixed memory, the "
                         "same bytes in any order of batches, and from any number of threads at "
                         "once.\n\n"
                         ">>> seen = octavo.Statistics()\n"
                         ">>> seen.update('layer', np.float32([[1, -2], [-3, 0]]))\n"
                         ">>> seen.layer('layer')['absmax']\n"
                         "array([3., 2.], dtype=float32)")
      .def(
          "__init__",
          [](Statistics* self, nb::handle sample_rows, nb::handle histogram_bits) {
            new (self) Statistics(make_statistics(sample_rows, histogram_bits));
          },
          nb::arg("sample_rows").none() = 0, nb::arg("histogram_bits").none() = nb::none(),
          nb::sig("def __init__(self, sample_rows: int = 0, histogram_bits: int | None = None) -> "
                  "None"))
      .def("update", &update, nb::arg("layer").none(), nb::arg("rows").none(),
           "Adds rows [..., channels] that went into a layer.",
           nb::sig("def update(self, layer: str, rows: object) -> None"))
      .def(
          "merge",
          [](Statistics& self, nb::handle other) {
            if (!nb::isinstance<Statistics>(other))
              unsupported("other", fmt::format("expected octavo.Statistics, got {}",
                                               Py_TYPE(other.ptr())->tp_name));
            check(self.merge(nb::cast<const Statistics&>(other)));
          },
          nb::arg("other").none(), "Adds what another one saw.",
          nb::sig("def merge(self, other: Statistics) -> None"))
      .def(
          "write",
          [](const Statistics& self, nb::handle path) {
            check(self.write(parse_path(path, "path")));
          },
          nb::arg("path").none(), "Writes the safetensors file that the command reads.",
          nb::sig("def write(self, path: object) -> None"))
      .def_static(
          "read",
          [](nb::handle path) {
            Result<Statistics> found = Statistics::read(parse_path(path, "path"));
            if (!found) throw Refused(found.error());
            return *std::move(found);
          },
          nb::arg("path").none(), "Reads one back.",
          nb::sig("def read(path: object) -> Statistics"))
      .def("layers", &Statistics::names, "The names of all layers.")
      .def("layer", &layer_of, nb::arg("layer").none(),
           "What a layer saw, as NumPy arrays; None if it is not known.",
           nb::sig("def layer(self, layer: str) -> dict[str, typing.Any] | None"))
      .def("__repr__", [](const Statistics& self) {
        return fmt::format("Statistics({} layers)", self.names().size());
      });
  nb::class_<Pattern>(m, "Pattern")
      .def(
          "matches",
          [](const Pattern& self, nb::handle name) {
            const std::string_view text = text_of(name);  // (a NUL is a character like others)
            return self.matches(text.empty() ? parse_text(name, "model") : std::string(text));
          },
          nb::arg("name"));
  m.def(
      "pattern",
      [](nb::handle text) {
        auto parsed = Pattern::parse("ignore", parse_text(text, "ignore"));
        if (!parsed) throw Refused(parsed.error());
        return *std::move(parsed);
      },
      nb::arg("text"));
  m.def("smoothing_scales", &scales, nb::arg("weights"), nb::arg("absmax"), nb::arg("alpha"));
  m.def("static_scale", &static_scale_of, nb::arg("absmax"), nb::arg("smoothing").none());
  m.def("stored_scales", &stored_scales, nb::arg("scales"), nb::arg("dtype"));
  m.def("smooth", &apply, nb::arg("norm_weight"), nb::arg("norm_bias").none(), nb::arg("weights"),
        nb::arg("scales"));
  m.def("search_alpha", &find_alpha, nb::arg("weights"), nb::arg("absmax"), nb::arg("rows"),
        nb::arg("scheme") = "w8a8-dynamic");
  m.def("smoothing_pairs", &pairs_of, nb::arg("tensors"), nb::arg("model_type") = "",
        nb::arg("norm_feeds_residual") = false,
        nb::sig("def smoothing_pairs(tensors: list[str], model_type: str = '', "
                "norm_feeds_residual: bool = False) -> dict[str, typing.Any]"));
}

}  // namespace octavo::python
