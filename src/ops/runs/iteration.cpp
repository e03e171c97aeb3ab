#include "ops/runs/iteration.hpp"

#include "core/check.hpp"

namespace octavo::detail {
namespace {

using Dim = Iteration::Dim;

Dim& at(Iteration& it, int i) { return it.dims[static_cast<std::size_t>(i)]; }

// The dimensions of the tensors as they are, outermost first.
void append_tensor_dims(Iteration& it, const ElementwiseProblem& p, const ElementwiseArgs& args) {
  const Shape& shape = args.output->shape;
  const auto stride = [](const auto* tensor, int i) {
    return tensor == nullptr ? 0 : tensor->strides[i];
  };
  for (int i = 0; i < shape.rank(); ++i)
    at(it, it.rank++) = {shape[i],
                         {stride(args.input, i), stride(args.grad, i), stride(args.output, i), 0}};
  if (it.rank == 0) at(it, it.rank++) = {1, {1, 1, 1, 0}};

  const int last = it.rank - 1;
  if (p.layout == Layout::per_channel && shape.rank() > 0)
    at(it, p.axis < 0 ? p.axis + shape.rank() : p.axis).stride[op_params] = 1;
  std::int64_t row = 1;
  if (p.layout == Layout::per_group) {
    row = p.shape[1] / p.group_size;
    Dim inner = at(it, last);
    inner.size = p.group_size;
    Dim& groups = at(it, last);
    groups.size = row;
    for (int o = op_input; o < op_params; ++o)
      groups.stride[static_cast<std::size_t>(o)] *= p.group_size;
    groups.stride[op_params] = 1;
    at(it, it.rank++) = inner;
  }
  if (p.layout == Layout::per_token || p.layout == Layout::per_group)
    for (int i = last - 1; i >= 0; --i) {
      at(it, i).stride[op_params] = row;
      row *= at(it, i).size;
    }
}

// Drops dimensions of size 1 and joins neighbours that every operand walks through evenly.
void coalesce(Iteration& it) {
  int n = 0;
  for (int i = 0; i < it.rank; ++i) {
    const Dim dim = at(it, i);
    if (dim.size == 1) continue;
    if (n > 0) {
      Dim& outer = at(it, n - 1);
      bool joined = true;
      for (std::size_t o = 0; o < operand_count; ++o)
        joined = joined && outer.stride[o] == dim.stride[o] * dim.size;
      if (joined) {
        outer.size *= dim.size;
        outer.stride = dim.stride;
        continue;
      }
    }
    at(it, n++) = dim;
  }
  it.rank = n;
}

}  // namespace

Iteration iterate(const ElementwiseProblem& p, const ElementwiseArgs& args) {
  Iteration it;
  append_tensor_dims(it, p, args);
  coalesce(it);

  const bool packed_in = args.input != nullptr && is_packed(args.input->dtype);
  const bool packed = packed_in || is_packed(args.output->dtype);
  // Kernels write consecutive elements; a column (or a packed one) is runs of one element.
  if (it.rank == 0 || it.inner().stride[op_output] != 1 ||
      (packed_in && it.inner().stride[op_input] != 1))
    at(it, it.rank++) = {1, {1, 1, 1, 0}};

  it.per_lane = it.inner().stride[op_params] != 0;
  for (int i = 0; i + 1 < it.rank; ++i) it.rows *= at(it, i).size;
  if (packed && p.layout == Layout::per_group && p.group_size % 2 != 0 && p.group_size > 1 &&
      p.group_size < p.shape[1]) {
    it.odd_nibbles = true;
    it.rows_per_cut = p.shape[1] / p.group_size;
  }
  return it;
}

Iteration plain_iteration(const SlicedProblem& p) {
  // (They have an address only to be there.)
  const TensorRef input(nullptr, p.input_type(), p.shape);
  const TensorRef grad(nullptr, p.element, p.shape);
  const TensorMut output(nullptr, p.output_type(), p.shape);
  ElementwiseArgs args;
  args.input = &input;
  args.grad = &grad;
  args.output = &output;
  return iterate(p, args);
}

}  // namespace octavo::detail
