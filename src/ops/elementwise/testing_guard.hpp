// Every buffer of a call between pages that must not be touched: the short form of this is a test,
// the full form a mode of octavo_exhaustive.
#pragma once

#include <sstream>

#include "ops/elementwise/testing_data.hpp"

namespace octavo::testing {

struct GuardShape {
  Layout layout;
  Shape shape;
  int axis = 0;
  std::int64_t group_size = 0;
};

/// Shapes with rows of `n` elements: one parameter for all, one per lane, one per row or group.
[[nodiscard]] inline std::vector<GuardShape> guard_shapes(std::int64_t n) {
  std::vector<GuardShape> shapes{{Layout::per_tensor, {n}},
                                 {Layout::per_channel, {2, n}, 1},
                                 {Layout::per_channel, {n, 2}, 0},
                                 {Layout::per_token, {2, n}}};
  if (n > 0) shapes.push_back({Layout::per_group, {1, n}, 0, n % 4 == 0 ? n / 4 : n});
  return shapes;
}

/// The five buffers of a call.
class GuardedCall {
 public:
  explicit GuardedCall(std::size_t capacity)
      : input_(capacity),
        grad_(capacity),
        scales_(capacity),
        zero_points_(capacity),
        output_(capacity) {}

  /// Runs with each buffer `offset` bytes (each its own, a multiple of its element) behind the
  /// guard in front, or before the one behind. Empty if all is well, else what was wrong.
  std::string run(const octavo::detail::AnyElementwisePlan& plan, const Stream& stream,
                  const Operands& o, const Bytes& want, bool at_back, std::size_t offset) {
    const auto place = [&](const GuardedMemory& memory, const void* data, std::size_t bytes,
                           DType type, std::size_t factor) {
      const auto element = static_cast<std::size_t>(bytes_for(type, 1));
      const std::size_t away = offset * factor % 64 / element * element;
      std::byte* to = at_back ? memory.back(bytes, away) : memory.front(away);
      if (data != nullptr && bytes > 0) std::memcpy(to, data, bytes);
      return to;
    };
    const Problem& p = o.problem;
    Pointers at;
    at.input = place(input_, o.input.data(), o.input.size(), input_type(p), 29);
    at.grad = place(grad_, o.grad.data(), o.grad.size(), p.element, 37);
    at.scales = place(scales_, o.scale_bytes.data(), o.scale_bytes.size(), scale_type(p), 11);
    at.zero_points =
        place(zero_points_, o.zero_points.data(), 4 * o.zero_points.size(), DType::s32, 53);
    std::byte* output = place(output_, nullptr, want.size(), output_type(p), 1);
    at.output = output;
    output_.repaint(output, want.size());
    const WorkspaceBuffer workspace(plan.workspace_size());
    const Status status = testing::run(plan, stream, p, at, workspace);
    if (!status) return status.error().message();
    if (!std::equal(want.begin(), want.end(), output)) return "the output differs";
    if (!output_.untouched(output, want.size())) return "bytes beside the output changed";
    return {};
  }

 private:
  GuardedMemory input_, grad_, scales_, zero_points_, output_;
};

struct GuardPlan {
  std::int64_t max_length = 257;
  std::vector<std::size_t> offsets{0, 1, 8, 12, 29, 60};
};

/// All kinds of `op` on `target`. Empty if all is well, else the first failure.
[[nodiscard]] inline std::string check_guards(Target target, Op op, const GuardPlan& guard) {
  const FaultNote note;
  const Stream stream =
      target == Target::sm80 ? cuda_stream().value() : Stream::cpu({.threads = 1, .cap = target});
  GuardedCall call(static_cast<std::size_t>(2 * guard.max_length * 8 + 64));
  const Parameters parameters{{0.05, 0.1, 1, 3, 0x1p-7, 0.3, 100}, {3, 0, -5, 127, -128}};
  for (std::int64_t n = 0; n <= guard.max_length; ++n) {
    for (const GuardShape& shape : guard_shapes(n))
      for (const Kind& kind : kinds_of(op, shape.layout)) {
        const Problem p = problem_of(kind, shape.shape, shape.axis, shape.group_size);
        const Operands o = make_operands(p, parameters, static_cast<std::uint64_t>(n));
        const Bytes want = expected(o);
        const auto plan = octavo::detail::AnyElementwisePlan::select(stream, p, {});
        std::ostringstream text;
        text << name(target) << ' ' << name(shape.layout) << ' ' << digest_name(kind) << " axis "
             << shape.axis << " length " << n;
        if (!plan) return text.str() + ": " + plan.error().message();
        FaultNote::set(text.str());
        for (const std::size_t offset : guard.offsets)
          for (const bool at_back : {false, true}) {
            // Flush against both guards; the other alignments in turns.
            if (offset != 0 && at_back != ((offset / 8 + offset) % 2 == 1)) continue;
            std::string wrong = call.run(*plan, stream, o, want, at_back, offset);
            if (wrong.empty() && target != Target::sm80) {
              const StreamedStores streamed;
              wrong = call.run(*plan, stream, o, want, at_back, offset);
            }
            if (wrong.empty()) continue;
            text << (at_back ? " before the back guard" : " behind the front guard") << ", offset "
                 << offset << ": " << wrong;
            return text.str();
          }
      }
  }
  return {};
}

}  // namespace octavo::testing
