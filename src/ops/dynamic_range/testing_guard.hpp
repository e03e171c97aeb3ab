// Every buffer of a dynamic-range call between pages that must not be touched: the short form of
// this is a test, the full form a mode of octavo_exhaustive.
#pragma once

#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_guard.hpp"

namespace octavo::testing {

/// The buffers of a call, the workspace among them.
class GuardedDynamicCall {
 public:
  explicit GuardedDynamicCall(std::size_t capacity)
      : input_(capacity),
        output_(capacity),
        scales_(capacity),
        zero_points_(capacity),
        workspace_(capacity) {}

  /// Runs with each buffer `offset` bytes (each its own, a multiple of its element) behind the
  /// guard in front, or before the one behind. Empty if all is well, else what was wrong.
  std::string run(const DynamicRangeQuantizePlan& plan, const Stream& stream, const DynamicCall& c,
                  const DynamicResult& want, bool at_back, std::size_t offset) {
    const Problem& p = c.problem;
    const DType compute = compute_type(p.element);
    const auto place = [&](const GuardedMemory& memory, std::size_t bytes, DType type,
                           std::size_t factor) {
      const auto element = static_cast<std::size_t>(bytes_for(type, 1));
      const std::size_t away = offset * factor % 64 / element * element;
      return at_back ? memory.back(bytes, away) : memory.front(away);
    };
    struct Written {
      const GuardedMemory& memory;
      std::byte* at;
      const void* want;
      std::size_t bytes;
    };
    const auto written = [&](const GuardedMemory& memory, const auto& of, DType type,
                             std::size_t factor) {
      const std::size_t bytes = of.size() * sizeof(of[0]);
      std::byte* at = place(memory, bytes, type, factor);
      memory.repaint(at, bytes);
      return Written{memory, at, of.data(), bytes};
    };
    std::byte* input = place(input_, c.input.size(), p.element, 29);
    std::copy(c.input.begin(), c.input.end(), input);
    const std::array<Written, 3> outputs{written(output_, want.output, p.integer, 1),
                                         written(scales_, want.scales, compute, 11),
                                         written(zero_points_, want.zero_points, DType::s32, 53)};
    const std::size_t needed = plan.workspace_size();
    // Aligned, so that only what it is rounded up to lies before the guard behind.
    const std::size_t rounded =
        (needed + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
    const Shape slices{slice_count(p)};
    const Status status =
        plan.run(stream, {at_back ? workspace_.back(rounded) : workspace_.front(), needed},
                 {.input = {input, p.element, p.shape},
                  .output = {outputs[0].at, p.integer, p.shape},
                  .scales = {outputs[1].at, compute, slices},
                  .zero_points = {outputs[2].at, DType::s32, slices}});
    if (!status) return status.error().message();
    for (const Written& w : outputs) {
      if (w.bytes > 0 && std::memcmp(w.at, w.want, w.bytes) != 0) return "a result differs";
      if (!w.memory.untouched(w.at, w.bytes)) return "bytes beside a result changed";
    }
    return {};
  }

 private:
  GuardedMemory input_, output_, scales_, zero_points_, workspace_;
};

struct DynamicGuardPlan {
  std::int64_t max_length = 257;
  std::int64_t step = 1;
  std::vector<std::size_t> offsets{0, 12, 29};
};

/// A mode and its types on `target`, profiles in turn. Empty if all is well, else the first
/// failure.
[[nodiscard]] inline std::string check_dynamic_guards(Target target, RangeMode mode, DType element,
                                                      DType integer,
                                                      const DynamicGuardPlan& guard) {
  const FaultNote note;
  const Stream stream = Stream::cpu({.threads = 1, .cap = target});
  GuardedDynamicCall call(static_cast<std::size_t>(2 * guard.max_length * 8 + 64));
  for (std::int64_t n = 0; n <= guard.max_length; n += guard.step)
    for (const GuardShape& shape : guard_shapes(n))
      for (const Profile profile : all_profiles) {
        const Kind kind{Op::quantize, shape.layout, element, integer, profile};
        const DynamicCall c =
            make_dynamic(problem_of(kind, shape.shape, shape.axis, shape.group_size), mode,
                         static_cast<std::uint64_t>(2 * n) + (profile == Profile::onnx ? 1 : 0));
        const DynamicResult want = expected(c);
        std::ostringstream text;
        text << name(target) << ' ' << name(mode) << ' ';
        describe(text, c.problem);
        FaultNote::set(text.str());
        const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
        if (!plan) return text.str() + ": " + plan.error().message();
        for (const std::size_t offset : guard.offsets)
          for (const bool at_back : {false, true}) {
            // Flush against both guards, by plain stores and by streamed ones; the other alignments
            // in turns.
            if (offset != 0 && at_back != ((offset / 8 + offset) % 2 == 1)) continue;
            const bool streams = (static_cast<std::size_t>(n) + offset) % 2 == 1;
            std::string wrong;
            if (offset == 0 || !streams) wrong = call.run(*plan, stream, c, want, at_back, offset);
            if (wrong.empty() && (offset == 0 || streams)) {
              const StreamedStores streamed;
              wrong = call.run(*plan, stream, c, want, at_back, offset);
            }
            if (wrong.empty()) continue;
            text << (at_back ? " before the back guard" : " behind the front guard") << ", offset "
                 << offset << ": " << wrong;
            return text.str();
          }
      }
  return {};
}

}  // namespace octavo::testing
