#include "sweep.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>

#include "fast_oracle.hpp"
#include "ops/elementwise/testing_data.hpp"

namespace octavo::exhaustive {
namespace {

constexpr std::size_t block_bits = 15;  // all arrays of a block stay in the L2 cache
constexpr std::size_t unit_bits = 24;
constexpr std::size_t block = std::size_t{1} << block_bits;
constexpr std::size_t pairs_on_scalar = 2;
constexpr std::uint64_t give_up = 100'000;  // mismatches in a unit: the rest tells nothing new

constexpr std::array<Op, 4> operations{Op::quantize, Op::fake_quantize, Op::quantize_backward,
                                       Op::fake_quantize_backward};
constexpr std::array<DType, 3> integers{DType::s8, DType::u8, DType::s16};

/// Easy ones first (they run on scalar too), then powers of two, the ends of what is allowed, the
/// ends of where a reciprocal is safe, and zero points at and beyond the ends of the range.
constexpr std::array<Pair, 24> listed_pairs{{
    {0.05F, 3},
    {1.0F, 0},
    {0.1F, -128},
    {0x1p-7F, 127},
    {0x1.000008p-128F, 0},
    {0x1.fffffep127F, 1},
    {0x1p-126F, 255},
    {1e-30F, -5},
    {1e30F, 7},
    {3e38F, 128},
    {0x1p-64F, 100},
    {0x1.7p-65F, 11},
    {0x1.fffffep63F, 2},
    {0x1.3p64F, -1},
    {1.0F / 3, 64},
    {0x1.fffffep-1F, 1000},
    {0x1.000002p0F, -999},
    {0x1p-20F, 31},
    {0x1.8p-127F, 0},
    {7.0F, 200},
    {1e-5F, -100},
    {0x1.555556p5F, 0},
    {0x1p100F, -77},
    {0.0117F, 1 << 20},
}};

Pair pair_at(std::size_t i) {
  if (i < listed_pairs.size()) return listed_pairs[i];
  testing::Random random(i);
  const auto exponent = static_cast<std::uint32_t>(random.below(250) + 2);
  const auto significand = static_cast<std::uint32_t>(random.below(1U << 23));
  return {std::bit_cast<float>(exponent << 23 | significand),
          static_cast<std::int32_t>(random.below(512)) - 256};
}

/// One kernel under test.
struct Subject {
  Target target;
  Op op;
  testing::Problem problem;
  octavo::detail::AnyElementwisePlan plan;
};

/// All that does not change between blocks.
struct Sweep {
  struct Case {
    Setting setting;
    std::vector<std::uint32_t> divided;
    std::vector<const Subject*> subjects;
  };
  Gradients gradients;
  std::vector<std::unique_ptr<const Subject>> subjects;
  std::vector<Case> cases;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(2);
}

Stream stream_on(Target target) { return Stream::cpu({.threads = 1, .cap = target}); }

std::unique_ptr<const Subject> subject_of(Target target, Op op, DType integer, Profile profile) {
  testing::Problem p = testing::problem_of({op, Layout::per_tensor, DType::f32, integer, profile},
                                           {static_cast<std::int64_t>(block)});
  p.q_min = storage_range(integer).min;
  p.q_max = storage_range(integer).max;
  auto plan = octavo::detail::AnyElementwisePlan::select(stream_on(target), p, {});
  if (!plan) fail(plan.error().message());
  return std::make_unique<const Subject>(Subject{target, op, p, *plan});
}

std::shared_ptr<const Sweep> make_sweep(std::size_t pairs) {
  auto sweep = std::make_shared<Sweep>();
  testing::Random random(1);
  for (std::size_t i = 0; i < block; ++i) {
    const auto bits = static_cast<std::uint32_t>(testing::HardFloats{}.bits(1.0, 0, random));
    sweep->gradients.given.push_back(std::bit_cast<float>(bits));
    sweep->gradients.canonical.push_back(
        static_cast<std::uint32_t>(testing::encode(DType::f32, sweep->gradients.given.back())));
  }
  for (const Profile profile : testing::all_profiles)
    for (const DType integer : integers) {
      const std::size_t first = sweep->subjects.size();
      for (const Target target : own_targets())
        for (const Op op : operations)
          sweep->subjects.push_back(subject_of(target, op, integer, profile));
      for (std::size_t pair = 0; pair < pairs; pair += bits(integer) == 16 ? 2 : 1) {
        Sweep::Case c{
            {pair_at(pair), profile, storage_range(integer), bits(integer) == 16}, {}, {}};
        const std::string wrong = check_fast_oracle(c.setting);
        if (!wrong.empty()) fail(wrong);
        c.divided = divided(sweep->gradients, c.setting);
        for (std::size_t i = first; i < sweep->subjects.size(); ++i)
          if (pair < pairs_on_scalar || sweep->subjects[i]->target != Target::scalar)
            c.subjects.push_back(sweep->subjects[i].get());
        sweep->cases.push_back(std::move(c));
      }
    }
  return sweep;
}

/// What one subject must answer, and how wide its elements are.
std::pair<const void*, std::size_t> answer_to(Op op, bool wide, const Answers& answers) {
  switch (op) {
    case Op::quantize:
      return {answers.quantize.data(), wide ? 2 : 1};
    case Op::fake_quantize:
      return {answers.fake_quantize.data(), 4};
    case Op::quantize_backward:
      return {answers.quantize_backward.data(), 4};
    default:
      return {answers.fake_quantize_backward.data(), 4};
  }
}

/// The buffers of one worker.
struct Bench {
  std::vector<std::uint32_t> inputs = std::vector<std::uint32_t>(block);
  std::vector<std::uint32_t> output = std::vector<std::uint32_t>(block);
  Answers answers{block};
};

void compare(const Subject& subject, const Setting& setting, const Bench& bench, Outcome& outcome) {
  const auto [want, width] = answer_to(subject.op, setting.wide, bench.answers);
  if (std::memcmp(want, bench.output.data(), block * width) == 0) return;
  const auto bytes = static_cast<int>(width);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(block); ++i) {
    const std::uint64_t expected = testing::load_bits(want, bytes, i);
    const std::uint64_t got = testing::load_bits(bench.output.data(), bytes, i);
    if (expected == got) continue;
    outcome.add(1, [&] {
      std::ostringstream text;
      text << to_string(subject.plan.sku()) << std::hex << " input 0x"
           << bench.inputs[static_cast<std::size_t>(i)] << " expected 0x" << expected << " got 0x"
           << got << std::dec << " scale " << std::hexfloat << setting.pair.scale << " zero point "
           << setting.pair.zero_point << " range " << setting.range.min << ".."
           << setting.range.max;
      return text.str();
    });
  }
}

Outcome sweep_unit(const Sweep& sweep, std::uint32_t first) {
  Outcome outcome;
  Bench bench;
  std::vector<std::pair<Target, Stream>> streams;
  for (const Target target : own_targets()) streams.emplace_back(target, stream_on(target));
  for (std::size_t at = 0; at < std::size_t{1} << (unit_bits - block_bits); ++at) {
    if (outcome.mismatches > give_up) break;
    for (std::size_t i = 0; i < block; ++i)
      bench.inputs[i] = first + static_cast<std::uint32_t>(at * block + i);
    for (const Sweep::Case& c : sweep.cases) {
      answer(c.setting, bench.inputs, sweep.gradients, c.divided, bench.answers);
      const testing::Pointers pointers{bench.inputs.data(), sweep.gradients.given.data(),
                                       &c.setting.pair.scale, &c.setting.pair.zero_point,
                                       bench.output.data()};
      for (const Subject* subject : c.subjects) {
        const auto found = std::find_if(streams.begin(), streams.end(),
                                        [&](const auto& s) { return s.first == subject->target; });
        const Status status =
            testing::run(subject->plan, found->second, subject->problem, pointers);
        if (!status) fail(status.error().message());
        compare(*subject, c.setting, bench, outcome);
      }
    }
  }
  return outcome;
}

}  // namespace

std::vector<Target> own_targets() {
  std::vector<Target> targets;
  for (const Target target : testing::machine_targets)
    if (testing::own_kernels(target)) targets.push_back(target);
  return targets;
}

std::vector<Unit> sweep_units(int pairs) {
  const std::shared_ptr<const Sweep> sweep = make_sweep(static_cast<std::size_t>(pairs));
  std::vector<Unit> units;
  for (std::uint64_t first = 0; first < std::uint64_t{1} << 32; first += 1U << unit_bits) {
    std::ostringstream text;
    text << "floats/" << pairs << "-pairs/0x" << std::hex << (first >> unit_bits);
    units.push_back({text.str(), 0.38 * pairs + 2.3, [sweep, first] {
                       return sweep_unit(*sweep, static_cast<std::uint32_t>(first));
                     }});
  }
  return units;
}

}  // namespace octavo::exhaustive
