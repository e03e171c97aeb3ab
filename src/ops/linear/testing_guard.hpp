// Every buffer of a linear call between pages that must not be touched: the short form of this is a
// test, the full form a part of octavo_exhaustive --linear.
#pragma once

#include "ops/elementwise/testing_guard.hpp"
#include "ops/linear/testing.hpp"
#include "ops/linear/testing_targets.hpp"

namespace octavo::testing {

/// The operands of a call, each flush against a page that must not be touched.
class GuardedLinear {
 public:
  explicit GuardedLinear(std::size_t capacity)
      : input_(capacity),
        weight_(capacity),
        activation_scales_(capacity),
        weight_scales_(capacity),
        activation_zero_points_(capacity),
        weight_zero_points_(capacity),
        bias_(capacity),
        residual_(capacity),
        output_(capacity),
        workspace_(capacity + (std::size_t{1} << 20U)) {}

  /// Empty if all is well, else what was wrong.
  std::string run(const Stream& stream, const LinearData& d, const Matrix& want, bool at_back) {
    switch (d.c.kind) {
      case LinearKind::matmul:
        return run<QuantizedMatmulPlan>(stream, matmul_descriptor(d.c), d, want, at_back);
      case LinearKind::dynamic:
        return run<QuantizedLinearPlan>(stream, dynamic_descriptor(d.c), d, want, at_back);
      case LinearKind::smoothquant:
        return run<SmoothQuantLinearPlan>(stream, smoothquant_descriptor(d), d, want, at_back);
      case LinearKind::floats:
        return run<FloatLinearPlan>(stream, float_descriptor(d.c), d, want, at_back);
    }
    return "unknown kind";
  }

 private:
  template <class Plan>
  std::string run(const Stream& stream, const typename Plan::Descriptor& descriptor,
                  const LinearData& d, const Matrix& want, bool at_back) {
    const auto plan = Plan::select(stream, descriptor);
    if (!plan) return plan.error().message();
    Matrix unused = want;
    auto args = linear_args<typename Plan::Args>(d, PackedWeight(), unused);
    const auto place = [&](const GuardedMemory& memory, TensorRef& t, std::size_t bytes) {
      if (t.data == nullptr) return;
      std::byte* to = at_back ? memory.back(bytes) : memory.front();
      if (bytes > 0) std::memcpy(to, t.data, bytes);
      t.data = to;
    };
    const auto array = [&](const GuardedMemory& memory, TensorRef& t) {
      place(memory, t, static_cast<std::size_t>(bytes_for(t.dtype, numel(t.shape))));
    };
    place(input_, args.input, d.input.bytes.size());
    // Rows that are packed beforehand are read there, and then no more.
    TensorRef rows = d.weight.ref();
    place(weight_, rows, d.weight.bytes.size());
    if (d.c.packed) {
      WeightGroups groups = groups_of(d);
      array(weight_scales_, groups.scales);
      array(weight_zero_points_, groups.zero_points);
      auto made = octavo::pack(stream, rows, groups);
      if (!made) return made.error().message();
      args.weight = *made;
    } else {
      args.weight = rows;
    }
    if constexpr (requires { args.weight_scales; }) {
      array(weight_scales_, args.weight_scales);
      array(weight_zero_points_, args.weight_zero_points);
    }
    array(bias_, args.bias);
    place(residual_, args.residual, d.residual.bytes.size());
    if constexpr (requires { args.activation_scales; }) {
      array(activation_scales_, args.activation_scales);
      array(activation_zero_points_, args.activation_zero_points);
    }
    // Exactly what the plan asks for, full of what was there before. It is a multiple of the
    // alignment, so that it is flush with either page.
    const std::size_t needed = plan->workspace_size();
    if (needed % workspace_alignment != 0) return "the workspace is no multiple of its alignment";
    if (needed > workspace_.size()) return "the workspace is larger than there is room for";
    const Workspace lent{at_back ? workspace_.back(needed) : workspace_.front(), needed};
    std::memset(lent.data, 0xFF, needed);
    std::byte* output = at_back ? output_.back(want.bytes.size()) : output_.front();
    output_.repaint(output, want.bytes.size());
    std::fill_n(output, want.bytes.size(), linear_paint);
    args.output.data = output;
    if (const Status ran = plan->run(stream, lent, args); !ran) return ran.error().message();
    if (!std::equal(want.bytes.begin(), want.bytes.end(), output)) return "the output differs";
    if (!output_.untouched(output, want.bytes.size())) return "bytes beside the output changed";
    return {};
  }

  GuardedMemory input_, weight_, activation_scales_, weight_scales_, activation_zero_points_,
      weight_zero_points_, bias_, residual_, output_, workspace_;
};

/// A case with these sizes; all that is left open goes round with `turn`.
[[nodiscard]] inline LinearCase linear_case_in_turn(std::uint64_t turn, std::int64_t m,
                                                    std::int64_t n, std::int64_t k) {
  constexpr std::array outputs{DType::f32, DType::s32,  DType::f16, DType::s8,
                               DType::f64, DType::bf16, DType::u8};
  constexpr std::array activations{DType::s8,  DType::u8,  DType::f32,
                                   DType::f64, DType::f16, DType::bf16};
  Random random(turn);
  LinearCase c;
  c.seed = turn;
  c.m = m;
  c.n = n;
  c.k = k;
  c.output = outputs[turn % outputs.size()];
  c.activation = activations[random.below(c.output == DType::s32 ? 2 : activations.size())];
  c.weight = random.below(2) != 0 ? DType::u8 : DType::s8;
  if (is_float(c.activation)) {
    c.kind = LinearKind::dynamic;
    c.mode = all_modes[random.below(2)];
    if (c.mode == RangeMode::asymmetric && random.below(3) == 0) c.quantized = DType::s8;
  } else if (c.output != DType::s32 && random.below(2) != 0) {
    c.kind = LinearKind::smoothquant;
  }
  c.activation_zero_points = c.kind != LinearKind::dynamic && random.below(2) != 0;
  c.weight_zero_points = random.below(2) != 0;
  c.packed = random.below(2) != 0;
  if (c.output != DType::s32) c.epilogue = static_cast<Epilogue>(random.below(8));
  c.profile = all_profiles[random.below(2)];
  c.one_activation_scale = random.below(4) == 0;
  c.one_weight_scale = random.below(4) == 0;
  c.parameter = all_floats[random.below(all_floats.size())];
  c.padding = random.below(3) == 0 ? static_cast<std::int64_t>(random.below(70)) : 0;
  return c;
}

/// The same for what group_test.cpp is about: groups, weights of four bits, activations of 16 bits,
/// floats. Groups are as many as divide k.
[[nodiscard]] inline LinearCase group_case_in_turn(std::uint64_t turn, std::int64_t m,
                                                   std::int64_t n, std::int64_t k) {
  LinearCase c = linear_case_in_turn(turn, m, n, k);
  Random random(turn + 1);
  constexpr std::array floats{DType::f32, DType::f16, DType::bf16};
  if (c.output != DType::s32 && c.output != DType::f64 && random.below(4) == 0) {
    c.kind = LinearKind::floats;
    c.activation = floats[random.below(3)];
    c.weight = floats[random.below(3)];
    c.quantized = {};
    c.mode = RangeMode::symmetric;
    c.activation_zero_points = c.weight_zero_points = false;
    return c;
  }
  constexpr std::array codes{DType::s4, DType::u4, DType::s8, DType::u8};
  c.weight = codes[random.below(4)];
  if (c.kind == LinearKind::dynamic && random.below(2) != 0) {
    c.mode = RangeMode::symmetric;
    c.quantized = DType::s16;
  }
  if (c.output != DType::s32 && k % 4 == 0) {
    c.group = 4 * static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(k / 4 + 1)));
    while (c.group != 0 && k % c.group != 0) c.group -= 4;
  }
  return c;
}

/// Guards around calls of all of these sizes, each with types and the rest in turn. Empty if all is
/// well, else the first failure.
template <class F>
[[nodiscard]] std::string check_linear_guards(Target target, const std::vector<std::int64_t>& sizes,
                                              std::uint64_t first_turn, F&& case_in_turn) {
  const FaultNote note;
  const Stream stream = Stream::cpu({.threads = 1, .cap = target});
  const auto most = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  GuardedLinear call(8 * most * (most + 70));
  std::uint64_t turn = first_turn;
  for (const std::int64_t m : sizes)
    for (const std::int64_t n : sizes)
      for (const std::int64_t k : sizes) {
        const LinearData d = make_linear(case_in_turn(++turn, m, n, k));
        const Matrix want = expected(d);
        const std::string text = std::string(name(target)) + " " + d.c.text();
        FaultNote::set(text);
        for (const bool at_back : {false, true})
          if (const std::string wrong = call.run(stream, d, want, at_back); !wrong.empty())
            return std::string(text)
                .append(at_back ? " before the back guard: " : " behind the front guard: ")
                .append(wrong);
      }
  return {};
}

}  // namespace octavo::testing
