#include "ops/runs/problem.hpp"

#include "core/memory_place.hpp"
#include "numerics/types.hpp"

namespace octavo::detail {
namespace {

using numerics::FloatTypes;
using numerics::IntegerTypes;

bool is_backward(Op op) {
  return op == Op::quantize_backward || op == Op::dequantize_backward ||
         op == Op::fake_quantize_backward;
}

// The names of a problem's fields in the public descriptors and arguments.
const char* element_name(const ElementwiseProblem& p) {
  if (!p.has_integer) return "element";
  return p.has_range ? "input" : "output";
}
const char* output_name(Op op) { return is_backward(op) ? "grad_input" : "output"; }

Status check_types(const ElementwiseProblem& p) {
  if (Status s = check_type<FloatTypes>(element_name(p), p.element); !s) return s;
  if (p.has_integer)
    if (Status s = check_type<IntegerTypes>(p.has_range ? "output" : "input", p.integer); !s)
      return s;
  if (p.scale_type)
    if (Status s = check_type<FloatTypes>("scale_type", *p.scale_type); !s) return s;
  if (p.profile != Profile::torch && p.profile != Profile::onnx)
    return unsupported("profile",
                       fmt::format("expected torch or onnx, got {}", static_cast<int>(p.profile)));
  return {};
}

// Elements and scales of the problem.
struct Sizes {
  std::int64_t numel = 0;
  std::int64_t scales = 1;
};

Result<Sizes> check_sizes(const ElementwiseProblem& p) {
  static constexpr const char* fields[][2] = {
      {"numel", "numel"}, {"shape", "shape"}, {"tokens", "hidden"}, {"rows", "cols"}};
  const auto& field = fields[static_cast<std::size_t>(p.layout)];
  if (p.layout != Layout::per_channel)
    for (int i = 0; i < p.shape.rank(); ++i)
      if (p.shape[i] < 0)
        return invalid(field[i], fmt::format("expected 0 or more, got {}", p.shape[i]));
  const Result<std::int64_t> numel = count_elements(field[0], p.shape);
  if (!numel) return numel.error();
  Sizes sizes{*numel, 1};
  const int rank = p.shape.rank();
  switch (p.layout) {
    case Layout::per_tensor:
      break;
    case Layout::per_token:
      sizes.scales = p.shape[0];
      break;
    case Layout::per_channel:
      if (p.axis < -rank || p.axis >= rank)
        return invalid("axis", fmt::format("expected an axis of shape {}, {} to {}, got {}",
                                           to_string(p.shape), -rank, rank - 1, p.axis));
      sizes.scales = p.shape[p.axis < 0 ? p.axis + rank : p.axis];
      break;
    case Layout::per_group: {
      if (p.group_size <= 0 || p.shape[1] % p.group_size != 0)
        return invalid("group_size", fmt::format("expected a divisor of cols ({}), got {}; pad the "
                                                 "rows or choose another size",
                                                 p.shape[1], p.group_size));
      const Result<std::int64_t> scales =
          count_elements("rows", {p.shape[0], p.shape[1] / p.group_size});
      if (!scales) return scales.error();
      sizes.scales = *scales;
      break;
    }
  }
  // Not bounded by numel when the other sizes are 0.
  const Result<std::int64_t> bounded = count_elements(field[0], {sizes.scales});
  if (!bounded) return bounded.error();
  return sizes;
}

// The shape of an argument, against the descriptor: channel as it is; the others in any shape that
// has the descriptor's rows.
Status check_shape(const char* argument, const ElementwiseProblem& p, const Shape& shape,
                   std::int64_t numel) {
  const auto mismatch = [&](const std::string& expected) {
    return invalid(argument, fmt::format("expected {}, as the plan was made for, got {}", expected,
                                         to_string(shape)));
  };
  const std::int64_t last = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  switch (p.layout) {
    case Layout::per_tensor:
      if (numel != p.shape[0]) return mismatch(fmt::format("a shape of {} elements", p.shape[0]));
      break;
    case Layout::per_channel:
      if (!(shape == p.shape)) return mismatch(fmt::format("shape {}", to_string(p.shape)));
      break;
    case Layout::per_token:
    case Layout::per_group: {
      if (shape.rank() < 1 || last != p.shape[1] || leading_rows(shape) != p.shape[0])
        return mismatch(fmt::format("a shape [..., {}] with {} rows", p.shape[1], p.shape[0]));
      break;
    }
  }
  return {};
}

}  // namespace

std::int64_t leading_rows(const Shape& shape) {
  std::int64_t rows = 1;
  bool overflow = false;  // possible where the last size is 0
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    if (shape[i] == 0) return 0;
    overflow = __builtin_mul_overflow(rows, shape[i], &rows) || overflow;
  }
  return overflow ? -1 : rows;
}

Result<IntRange> check_range(DType integer, std::optional<std::int32_t> q_min,
                             std::optional<std::int32_t> q_max) {
  const IntRange storage = storage_range(integer);
  const IntRange range{q_min.value_or(storage.min), q_max.value_or(storage.max)};
  const auto outside = [&](const char* argument, std::int32_t q) {
    return invalid(argument, fmt::format("expected a value that {} holds, {} to {}, got {}",
                                         name(integer), storage.min, storage.max, q));
  };
  if (range.min < storage.min || range.min > storage.max) return outside("q_min", range.min);
  if (range.max < storage.min || range.max > storage.max) return outside("q_max", range.max);
  if (range.min > range.max)
    return invalid("q_max", fmt::format("expected at least q_min, got q_min {} and q_max {}",
                                        range.min, range.max));
  return range;
}

Result<SlicedProblem> check_problem(const ElementwiseProblem& problem) {
  if (Status s = check_types(problem); !s) return s.error();
  SlicedProblem checked;
  static_cast<ElementwiseProblem&>(checked) = problem;
  if (problem.has_range) {
    const Result<IntRange> range = check_range(problem.has_integer ? problem.integer : DType::s32,
                                               problem.q_min, problem.q_max);
    if (!range) return range.error();
    checked.range = *range;
  }
  const Result<Sizes> sizes = check_sizes(problem);
  if (!sizes) return sizes.error();
  checked.numel = sizes->numel;
  checked.slices = sizes->scales;
  checked.scales = problem.scale_type.value_or(compute_type(problem.element));
  return checked;
}

bool has_zero_points(const ElementwiseArgs& args) {
  return args.zero_points != nullptr &&
         (args.zero_points->data != nullptr || args.zero_points->shape.rank() > 0);
}

Status check_tensors(const SlicedProblem& p, const ElementwiseArgs& args) {
  const char* out_name = output_name(p.op);
  const DType out_type = p.output_type();
  const Result<Checked> out = check_output(out_name, *args.output, out_type);
  if (!out) return out.error();
  if (Status s = check_shape(out_name, p, args.output->shape, out->numel); !s) return s;

  const auto check_read = [&](const char* argument, const TensorRef& t, DType type) -> Status {
    const Result<Checked> in = check_input(argument, t, type);
    if (!in) return in.error();
    if (!(t.shape == args.output->shape))
      return invalid(argument, fmt::format("expected the shape of {}, {}, got {}", out_name,
                                           to_string(args.output->shape), to_string(t.shape)));
    if (!in->extent.overlaps(out->extent)) return {};
    const bool in_place = t.data == args.output->data && bits(type) == bits(out_type) &&
                          same_strides(t, *args.output);
    if (in_place) return {};
    return invalid(out_name,
                   fmt::format("expected memory apart from {}, or exactly the same (pointer, "
                               "element size and strides), got an overlap",
                               argument));
  };
  if (args.input != nullptr)
    if (Status s = check_read("input", *args.input, p.input_type()); !s) return s;
  if (args.grad != nullptr)
    if (Status s = check_read("grad_output", *args.grad, p.element); !s) return s;

  if (args.scales == nullptr) return {};
  const auto check_parameters = [&](const char* argument, const TensorRef& t,
                                    DType type) -> Status {
    const Result<Checked> in = check_array(argument, t, type, p.slices);
    if (!in) return in.error();
    if (in->extent.overlaps(out->extent))
      return invalid(out_name,
                     fmt::format("expected memory apart from {}, got an overlap", argument));
    return {};
  };
  if (args.scales->dtype != p.scales)
    return unsupported("scales", fmt::format("expected {}, as the plan was made for, got {}; set "
                                             "scale_type in the descriptor",
                                             name(p.scales), name(args.scales->dtype)));
  if (Status s = check_parameters("scales", *args.scales, p.scales); !s) return s;
  if (!has_zero_points(args)) return {};
  return check_parameters("zero_points", *args.zero_points, DType::s32);
}

namespace {

// Whether a tensor of `numel` elements of `type` is contiguous, aligned and all there; its extent.
template <class Tensor>
bool is_plain(const Tensor& t, DType type, std::int64_t numel, Extent& extent) {
  const int rank = t.shape.rank();
  if (t.dtype != type || t.data == nullptr || rank > max_rank || t.strides.rank() != rank)
    return false;
  std::int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (t.shape[i] < 1 || (t.strides[i] != step && t.shape[i] != 1)) return false;
    if (__builtin_mul_overflow(step, t.shape[i], &step)) return false;
  }
  // (The elements of a checked problem can be counted in bytes, and sizes are powers of two.)
  const std::int64_t size = is_packed(type) ? 1 : bits(type) / 8;
  const std::int64_t bytes = is_packed(type) ? (numel + 1) / 2 : numel * size;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  const auto alignment = static_cast<std::uintptr_t>(size);
  extent = {address, address + static_cast<std::uintptr_t>(bytes)};
  return step == numel && extent.begin < extent.end && (address & (alignment - 1)) == 0 &&
         (t.buffer_bytes < 0 || t.buffer_bytes >= bytes);
}

}  // namespace

bool are_plain(const SlicedProblem& p, const ElementwiseArgs& args) {
  const Shape& shape = args.output->shape;
  Extent out;
  if (p.numel < 1 || !is_plain(*args.output, p.output_type(), p.numel, out)) return false;
  const int rank = shape.rank();
  // Rows of packed types begin on a byte; those that end on one, too, have no gaps.
  const bool packed = p.has_integer && is_packed(p.integer);
  if (rank > 1 && packed && shape[rank - 1] % 2 != 0) return false;
  switch (p.layout) {
    case Layout::per_tensor:
      break;
    case Layout::per_channel:
      if (!(shape == p.shape)) return false;
      break;
    case Layout::per_token:
    case Layout::per_group:
      if (rank < 1 || shape[rank - 1] != p.shape[1]) return false;
      break;
  }
  Extent in;
  const auto is_read = [&](const TensorRef* t, DType type) {
    if (t == nullptr) return true;
    if (!(t->shape == shape) || !is_plain(*t, type, p.numel, in)) return false;
    return !in.overlaps(out) || (in.begin == out.begin && in.end == out.end);
  };
  if (!is_read(args.input, p.input_type()) || !is_read(args.grad, p.element)) return false;
  const auto is_parameter = [&](const TensorRef& t, DType type) {
    return is_plain(t, type, p.slices, in) && !in.overlaps(out);
  };
  if (args.scales == nullptr) return true;
  return is_parameter(*args.scales, p.scales) &&
         (!has_zero_points(args) || is_parameter(*args.zero_points, DType::s32));
}

Status check_memory(const SlicedProblem& p, const ElementwiseArgs& args, Backend backend,
                    int device, const void* workspace) {
  if (find_memory_place.load(std::memory_order_acquire) == nullptr) return {};
  const auto data = [](const auto* tensor, std::int64_t elements) -> const void* {
    return tensor == nullptr || elements == 0 ? nullptr : tensor->data;
  };
  return check_memory(backend, device,
                      {{output_name(p.op), data(args.output, p.numel)},
                       {"input", data(args.input, p.numel)},
                       {"grad_output", data(args.grad, p.numel)},
                       {"scales", data(args.scales, p.slices)},
                       {"zero_points", data(args.zero_points, p.slices)},
                       {"workspace", workspace}});
}

}  // namespace octavo::detail
