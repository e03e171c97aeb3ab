// What `select` refuses: descriptors, streams, preferences and targets.
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/elementwise/testing_refusals.hpp"

namespace octavo::testing {
namespace {

constexpr auto no_type = static_cast<DType>(200);
constexpr std::int64_t huge = std::int64_t{1} << 40;

Refusal invalid(std::vector<std::string> arguments, std::vector<std::string> mentions = {}) {
  return {ErrorCode::invalid_problem, std::move(arguments), std::move(mentions)};
}
Refusal unsupported(std::vector<std::string> arguments, std::vector<std::string> mentions = {}) {
  return {ErrorCode::unsupported, std::move(arguments), std::move(mentions)};
}

TEST(SelectRefuses, NothingThatIsFine) {
  for (const DType element : all_floats)
    for (const DType integer : all_integers)
      for_each_plan([](const Problem& p) { Attempt(p).expect_accepted(); }, element, integer);
}

TEST(SelectRefuses, TypesThatAreNotFloats) {
  for (const DType wrong : {DType::s8, DType::u4, DType::s32, no_type})
    for_each_plan([&](Problem p) {
      p.element = wrong;
      // The operands must not be laid out by the wrong type: select alone is asked.
      const auto plan = select_plan(Stream::cpu({.threads = 1}), p);
      SCOPED_TRACE(std::string(name(p.op)) + " of " + std::string(name(wrong)));
      ASSERT_FALSE(plan);
      expect_error(plan.error(), unsupported({element_field(p.op)}, {std::string(name(wrong))}));
    });
}

TEST(SelectRefuses, TypesThatAreNotQuantized) {
  for (const DType wrong : {DType::f32, DType::f16, DType::s32, no_type})
    for_each_plan([&](Problem p) {
      if (!has_integer(p.op)) return;
      p.integer = wrong;
      const auto plan = select_plan(Stream::cpu({.threads = 1}), p);
      SCOPED_TRACE(std::string(name(p.op)) + " of " + std::string(name(wrong)));
      ASSERT_FALSE(plan);
      expect_error(plan.error(), unsupported({integer_field(p.op)}, {std::string(name(wrong))}));
    });
}

TEST(SelectRefuses, TypesThatScalesCannotHave) {
  for (const DType wrong : {DType::s8, DType::u4, DType::s32, no_type})
    for_each_plan([&](Problem p) {
      if (p.layout == Layout::per_tensor) return;
      p.scale_type = wrong;
      const auto plan = select_plan(Stream::cpu({.threads = 1}), p);
      SCOPED_TRACE(std::string(name(p.op)) + " of " + std::string(name(wrong)));
      ASSERT_FALSE(plan);
      expect_error(plan.error(), unsupported({"scale_type"}, {std::string(name(wrong))}));
    });
}

TEST(SelectRefuses, AProfileThatDoesNotExist) {
  for_each_plan([](Problem p) {
    if (!has_range(p.op)) return;
    p.profile = static_cast<Profile>(7);
    Attempt(p).expect_select_refused(unsupported({"profile"}));
  });
}

// A spoiled problem, the layout it belongs to, and the fields that may be blamed.
struct Spoiled {
  const char* what;
  Layout layout;
  std::function<void(Problem&)> spoil;
  std::vector<std::string> arguments;
  std::vector<std::string> mentions;
};

TEST(SelectRefuses, SizesThatMakeNoSense) {
  using enum Layout;
  const Spoiled table[] = {
      {"numel < 0", per_tensor, [](Problem& p) { p.shape = {-1}; }, {"numel"}, {"-1"}},
      {"numel least", per_tensor, [](Problem& p) { p.shape = {INT64_MIN}; }, {"numel"}, {}},
      {"a size < 0",
       per_channel,
       [](Problem& p) {
         p.shape = {4, -6};
       },
       {"shape"},
       {"-6"}},
      {"sizes < 0",
       per_channel,
       [](Problem& p) {
         p.shape = {-4, -6};
       },
       {"shape"},
       {"-4"}},
      {"size < 0 and 0",
       per_channel,
       [](Problem& p) {
         p.shape = {0, -6};
       },
       {"shape"},
       {"-6"}},
      {"tokens < 0",
       per_token,
       [](Problem& p) {
         p.shape = {-4, 6};
       },
       {"tokens"},
       {"-4"}},
      {"hidden < 0",
       per_token,
       [](Problem& p) {
         p.shape = {4, -6};
       },
       {"hidden"},
       {"-6"}},
      {"rows < 0",
       per_group,
       [](Problem& p) {
         p.shape = {-4, 6};
       },
       {"rows"},
       {"-4"}},
      {"cols < 0",
       per_group,
       [](Problem& p) {
         p.shape = {4, -6};
       },
       {"cols"},
       {"-6"}},
      {"too many",
       per_channel,
       [](Problem& p) {
         p.shape = {huge, huge};
       },
       {"shape"},
       {}},
      {"wraps to 0",
       per_channel,
       [](Problem& p) {
         p.shape = {huge, huge * 4096};
       },
       {"shape"},
       {}},
      {"too many",
       per_token,
       [](Problem& p) {
         p.shape = {huge, huge};
       },
       {"tokens", "hidden"},
       {}},
      {"too many",
       per_group,
       [](Problem& p) {
         p.shape = {huge, 3 * huge};
       },
       {"rows", "cols"},
       {}},
      {"scales beyond counting, though no element",
       per_channel,
       [](Problem& p) {
         p.shape = {INT64_MAX / 8 + 1, 0};
         p.axis = 0;
       },
       {"shape"},
       {}},
      {"scales beyond counting, though no element",
       per_token,
       [](Problem& p) {
         p.shape = {INT64_MAX / 8 + 1, 0};
       },
       {"tokens"},
       {}},
      {"rank 9",
       per_channel,
       [](Problem& p) { p.shape = {1, 1, 1, 1, 1, 1, 1, 4, 6}; },
       {"shape"},
       {"9", "8"}},
      {"axis = rank", per_channel, [](Problem& p) { p.axis = 2; }, {"axis"}, {"2"}},
      {"axis < -rank", per_channel, [](Problem& p) { p.axis = -3; }, {"axis"}, {"-3"}},
      {"axis greatest", per_channel, [](Problem& p) { p.axis = INT_MAX; }, {"axis"}, {}},
      {"axis least", per_channel, [](Problem& p) { p.axis = INT_MIN; }, {"axis"}, {}},
      {"no axis at all",
       per_channel,
       [](Problem& p) {
         p.shape = Shape();
         p.axis = 0;
       },
       {"axis"},
       {}},
      {"group 0", per_group, [](Problem& p) { p.group_size = 0; }, {"group_size"}, {"0"}},
      {"group < 0", per_group, [](Problem& p) { p.group_size = -3; }, {"group_size"}, {"-3"}},
      {"group 4 of 6", per_group, [](Problem& p) { p.group_size = 4; }, {"group_size"}, {"4", "6"}},
      {"group 12 of 6", per_group, [](Problem& p) { p.group_size = 12; }, {"group_size"}, {"12"}},
      {"group least", per_group, [](Problem& p) { p.group_size = INT64_MIN; }, {"group_size"}, {}},
  };
  for (const Spoiled& spoiled : table)
    for (const Op op : all_ops) {
      SCOPED_TRACE(spoiled.what);
      Problem p = small_problem(op, spoiled.layout);
      spoiled.spoil(p);
      SCOPED_TRACE(title(p));
      const auto plan = select_plan(Stream::cpu({.threads = 1}), p);
      ASSERT_FALSE(plan);
      expect_error(plan.error(), invalid(spoiled.arguments, spoiled.mentions));
    }
}

TEST(SelectRefuses, RangesUpsideDown) {
  for_each_plan([](Problem p) {
    if (!has_range(p.op)) return;
    p.q_min = 5;
    p.q_max = 4;
    Attempt(p).expect_select_refused(invalid({"q_min", "q_max"}, {"5", "4"}));
    p.q_max = 5;
    Attempt(p).expect_accepted();
  });
}

TEST(SelectRefuses, RangesOutsideTheStorageType) {
  for (const DType integer : all_integers)
    for_each_plan(
        [&](const Problem& base) {
          if (!has_range(base.op)) return;
          const IntRange storage = storage_range(integer);
          for (const std::int64_t beyond : {1, 1000}) {
            Problem low = base;
            low.q_min = static_cast<std::int32_t>(storage.min - beyond);
            low.q_max = storage.max;
            Problem high = base;
            high.q_min = storage.min;
            high.q_max = static_cast<std::int32_t>(storage.max + beyond);
            if (has_integer(base.op)) {
              Attempt(low).expect_select_refused(invalid({"q_min"}, {std::to_string(*low.q_min)}));
              Attempt(high).expect_select_refused(
                  invalid({"q_max"}, {std::to_string(*high.q_max)}));
            } else {
              Attempt(low).expect_accepted();
              Attempt(high).expect_accepted();
            }
          }
          // One end given: the other is the storage type's own.
          if (!has_integer(base.op)) return;
          Problem p = base;
          p.q_max = storage.min - 1;
          Attempt(p).expect_select_refused(invalid({"q_min", "q_max"}));
          p.q_max = storage.min;
          Attempt(p).expect_accepted();
        },
        DType::f32, integer);
}

TEST(SelectRefuses, NothingOfTheWidestRangeOfFakeQuantize) {
  for_each_plan([](Problem p) {
    if (has_integer(p.op)) return;
    p.q_min = INT32_MIN;
    p.q_max = INT32_MAX;
    Attempt(p).expect_accepted();
  });
}

TEST(SelectRefuses, NegativeThreads) {
  for (const int threads : {-1, INT_MIN})
    for_each_plan([&](const Problem& p) {
      Attempt attempt(p);
      attempt.options.threads = threads;
      attempt.expect_select_refused(invalid({"threads"}, {std::to_string(threads)}));
    });
}

TEST(SelectRefuses, AnotherBackend) {
  for_each_plan([](const Problem& p) {
    Attempt attempt(p);
    attempt.preference.backend = Backend::cuda;
    attempt.expect_select_refused(unsupported({"backend"}, {"cuda", "cpu"}));
    attempt.preference.backend = Backend::cpu;
    attempt.expect_accepted();
  });
}

TEST(SelectRefuses, MoreWorkspaceThanPreferred) {
  for_each_plan([](Problem p) {
    Attempt plain(p);
    plain.preference.max_workspace_bytes = 0;
    plain.expect_accepted();  // scales of the compute type need none
    if (p.layout == Layout::per_tensor) return;

    p.scale_type = DType::f64;
    Attempt attempt(p);
    const auto plan = attempt.select();
    ASSERT_TRUE(plan);
    const std::size_t needed = (*plan)->workspace_size();
    EXPECT_GE(needed, static_cast<std::size_t>(slice_count(p)) * sizeof(float));
    attempt.preference.max_workspace_bytes = needed;
    attempt.expect_accepted();
    attempt.preference.max_workspace_bytes = needed - 1;
    attempt.expect_select_refused({ErrorCode::workspace_too_small,
                                   {"max_workspace_bytes"},
                                   {std::to_string(needed), std::to_string(needed - 1)},
                                   static_cast<std::int64_t>(needed),
                                   static_cast<std::int64_t>(needed) - 1});
  });
}

// ---- targets -----------------------------------------------------------------------------------

/// An environment variable for the length of a block.
class Environment {
 public:
  explicit Environment(const std::string& value) {
    if (const char* old = std::getenv(variable)) old_ = old;
    setenv(variable, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (old_) {
      setenv(variable, old_->c_str(), 1);
    } else {
      unsetenv(variable);
    }
  }

 private:
  static constexpr const char* variable = "OCTAVO_TARGET";
  std::optional<std::string> old_;
};

TEST(TargetRefusals, NamesThatAreNotTargets) {
  for (const char* wrong : {"avx1024", "AVX2", "scalar ", "best", "0"}) {
    const Environment environment(wrong);
    for_each_plan([&](const Problem& p) {
      Attempt(p).expect_select_refused(unsupported({"OCTAVO_TARGET"}, {wrong}));
    });
  }
}

TEST(TargetRefusals, TargetsThisCpuLacks) {
  int absent = 0;
  for (int i = 0; i < target_count; ++i) {
    const auto target = static_cast<Target>(i);
    if (is_available(target)) continue;
    ++absent;
    const std::string wrong(name(target));
    for_each_plan([&](const Problem& p) {
      {
        const Environment environment(wrong);
        Attempt(p).expect_select_refused(unsupported({"OCTAVO_TARGET"}, {wrong}));
      }
      Attempt capped(p);
      capped.options.cap = target;
      capped.expect_select_refused(unsupported({"cap"}, {wrong}));
      Attempt preferred(p);
      preferred.preference.target = target;
      preferred.expect_select_refused(unsupported({"target"}, {wrong}));
    });
  }
  EXPECT_GT(absent, 0) << "no CPU has both the x86 and the Arm targets";
}

TEST(TargetRefusals, TargetsThatDoNotExist) {
  for_each_plan([](const Problem& p) {
    Attempt attempt(p);
    attempt.options.cap = static_cast<Target>(77);
    attempt.expect_select_refused(unsupported({"cap"}));
    Attempt other(p);
    other.preference.target = static_cast<Target>(77);
    other.expect_select_refused(unsupported({"target"}));
  });
}

TEST(TargetRefusals, NoneForTargetsThisCpuHas) {
  for (const Target target : available_targets()) {
    const Environment environment{std::string(name(target))};
    for_each_plan([&](const Problem& p) {
      Attempt attempt(p);
      attempt.options.cap = target;
      attempt.preference.target = target;
      attempt.expect_accepted();
    });
  }
  const Environment empty("");
  for_each_plan([](const Problem& p) { Attempt(p).expect_accepted(); });
}

}  // namespace
}  // namespace octavo::testing
