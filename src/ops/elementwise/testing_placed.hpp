// Tensors that lie in memory in any way strides can say, element by element.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/elementwise/testing_data.hpp"
#include "ops/elementwise/testing_plans.hpp"

namespace octavo::testing {

/// A tensor in memory of its own, with room beside it. Elements are counted row-major; values are
/// those of Elements: the bits of a float, the value of an integer.
class Placed {
 public:
  Placed(DType type, const Shape& shape, const Shape& strides)
      : type_(type),
        shape_(shape),
        strides_(strides) {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (int i = 0; i < shape.rank(); ++i) {
      const std::int64_t reach = std::max<std::int64_t>(shape[i] - 1, 0) * strides[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    first_ = beside + bytes_for(type, -lowest);
    memory.resize(static_cast<std::size_t>(first_ + bytes_for(type, highest + 1) + beside), paint);
  }
  Placed(DType type, const Shape& shape) : Placed(type, shape, contiguous_strides(shape, type)) {}

  [[nodiscard]] std::int64_t get(std::int64_t i) const {
    return element().get(byte_of(i), nibble_of(i));
  }
  void set(std::int64_t i, std::int64_t value) {
    element().set(const_cast<std::byte*>(byte_of(i)), nibble_of(i), value);
  }
  [[nodiscard]] std::int64_t size() const { return numel(shape_); }

  [[nodiscard]] TensorRef ref() const { return {memory.data() + first_, type_, shape_, strides_}; }
  [[nodiscard]] TensorMut mut() { return {memory.data() + first_, type_, shape_, strides_}; }

  Bytes memory;

 private:
  static constexpr std::int64_t beside = 64;
  static constexpr std::byte paint{0xA5};

  // One element, or the two of a byte.
  [[nodiscard]] Elements element() const { return {type_, {2}}; }
  [[nodiscard]] std::int64_t offset(std::int64_t i) const {
    std::int64_t at = 0;
    for (int d = shape_.rank() - 1; d >= 0; --d) {
      at += i % shape_[d] * strides_[d];
      i /= shape_[d];
    }
    return at;
  }
  [[nodiscard]] std::int64_t nibble_of(std::int64_t i) const {
    return is_packed(type_) ? offset(i) & 1 : 0;
  }
  [[nodiscard]] const std::byte* byte_of(std::int64_t i) const {
    const std::int64_t at = offset(i) - nibble_of(i);
    return memory.data() + first_ + (is_packed(type_) ? at / 2 : at * (bits(type_) / 8));
  }

  DType type_;
  Shape shape_;
  Shape strides_;
  std::int64_t first_ = 0;
};

/// Moves contiguous data into `to`. Where elements share memory the last one wins, and the
/// contiguous data is changed to what is really there.
inline void place(Bytes& contiguous, const Elements& from, Placed& to) {
  for (std::int64_t i = 0; i < to.size(); ++i) to.set(i, from.get(contiguous.data(), i));
  for (std::int64_t i = 0; i < to.size(); ++i) from.set(contiguous.data(), i, to.get(i));
}

/// What the memory of `output` must be after the call: the oracle's answer where elements are,
/// untouched elsewhere.
[[nodiscard]] inline Bytes expected_memory(const Operands& o, const Placed& output) {
  const Bytes want = expected(o);
  const Elements from(output_type(o.problem), o.problem.shape);
  Placed image = output;
  for (std::int64_t i = 0; i < image.size(); ++i) image.set(i, from.get(want.data(), i));
  return image.memory;
}

/// Selects and runs, with a workspace of its own.
inline Status run_call(const Stream& stream, const Problem& p, Call call) {
  const auto plan = select_plan(stream, p);
  if (!plan) return plan.error();
  if (!has_input(p.op)) call.input = {};
  if (!has_grad(p.op)) call.grad = {};
  const WorkspaceBuffer workspace((*plan)->workspace_size());
  return run_there(stream, {&call.input, &call.grad, &call.scales, &call.zero_points},
                   {&call.output}, workspace,
                   [&](Workspace lent) { return (*plan)->run(stream, lent, call); });
}

/// What every backend must do: tests on a stream of each that there is.
class OnBackend : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == Backend::cuda) cuda_ = cuda_stream();
  }
  [[nodiscard]] bool is_cuda() const { return GetParam() == Backend::cuda; }
  /// (Threads are the CPU's.)
  [[nodiscard]] Stream stream(int threads = 1) const {
    return cuda_ ? *cuda_ : Stream::cpu({.threads = threads});
  }

 private:
  std::optional<Stream> cuda_;
};
[[nodiscard]] inline std::vector<Backend> tested_backends() {
  std::vector<Backend> backends{Backend::cpu};
  if (has_cuda()) backends.push_back(Backend::cuda);
  return backends;
}
[[nodiscard]] inline std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return std::string(name(info.param));
}

/// The problem of a layout on a tensor of this shape: a group is a third of a row.
[[nodiscard]] inline Problem problem_on(const Kind& kind, const Shape& shape, int axis = 0) {
  const std::int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const std::int64_t rows = product(shape, 0, std::max(shape.rank() - 1, 0));
  switch (kind.layout) {
    case Layout::per_tensor:
      return problem_of(kind, {numel(shape)});
    case Layout::per_channel:
      return problem_of(kind, shape, axis);
    default:
      return problem_of(kind, {rows, cols}, 0, cols % 3 == 0 && cols > 0 ? cols / 3 : 1);
  }
}

/// Scales and zero points of no special kind.
inline const Parameters ordinary{{0.1, 0.05, 1, 3, 0x1p-7, 255.5, 1e-5}, {0, 3, -5, 127, -128, 77}};

/// Pairs of a float and an integer type in which each occurs; two of one size may be in place.
inline constexpr std::array<std::pair<DType, DType>, 5> type_pairs{{{DType::f32, DType::s8},
                                                                    {DType::f64, DType::u8},
                                                                    {DType::f16, DType::s4},
                                                                    {DType::bf16, DType::u4},
                                                                    {DType::f16, DType::s16}}};

/// fn(kind) for each of the 24 plans with each of these pairs.
template <class Fn>
void for_each_kind(Fn fn) {
  for (const auto& [element, integer] : type_pairs)
    for (const Op op : all_ops)
      for (const Layout layout : all_layouts)
        fn(Kind{op, layout, element, integer, Profile::torch});
}

}  // namespace octavo::testing
