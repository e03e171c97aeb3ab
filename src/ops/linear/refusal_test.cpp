// What `select` of the linear plans refuses: types, sizes, scales, streams, preferences, targets.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <limits>

#include "ops/linear/testing_refusals.hpp"

namespace octavo::testing {
namespace {

using enum LinearKind;
constexpr auto no_type = static_cast<DType>(200);
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t huge = std::int64_t{1} << 40;

std::string text(DType type) { return std::string(name(type)); }

TEST(LinearSelectRefuses, NothingThatIsFine) {
  for (const LinearKind kind : linear_kinds)
    for (const DType output :
         {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s8, DType::u8, DType::s32})
      for (const DType weight : {DType::s8, DType::u8})
        for (const bool packed : {false, true}) {
          if (output == DType::s32 && kind != matmul) continue;
          LinearCase c = full_case(kind);
          c.output = output;
          if (output == DType::s32) c.epilogue = Epilogue::none;
          c.weight = weight;
          c.packed = packed;
          LinearAttempt(c).expect_oracle();
        }
}

TEST(LinearSelectRefuses, Activations) {
  for (const DType wrong :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s4, DType::u4, DType::s32, no_type})
    refuse_select(unsupported("activation", {"s8", "u8", text(wrong)}),
                  [&](auto& d) { d.activation = wrong; }, {matmul, smoothquant});
  for (const DType wrong : {DType::s8, DType::u8, DType::s4, DType::s32, no_type})
    refuse_select(unsupported("activation", {"f32", "f64", "f16", "bf16", text(wrong)}),
                  [&](auto& d) { d.activation = wrong; }, {dynamic});
}

TEST(LinearSelectRefuses, WhatActivationsAreQuantizedTo) {
  for (const DType wrong : {DType::f32, DType::s4, DType::u4, DType::s16, DType::s32, no_type}) {
    LinearAttempt attempt(dynamic);
    attempt.dynamic.quantized = wrong;
    attempt.expect_select_refused(unsupported("quantized", {"s8", "u8", text(wrong)}));
  }
  for (const DType wrong : {DType::u8, DType::f32, DType::s4, DType::s32, no_type}) {
    LinearAttempt attempt(dynamic);
    attempt.dynamic.mode = RangeMode::symmetric;
    attempt.dynamic.quantized = wrong;
    attempt.expect_select_refused(
        unsupported("quantized", {"s8 or s16", "symmetric", text(wrong)}));
  }
  for (const DType right : {DType::s8, DType::u8}) {
    LinearCase c = full_case(dynamic);
    c.quantized = right;
    LinearAttempt(c).expect_oracle();
  }
  LinearCase c = full_case(dynamic);
  c.mode = RangeMode::symmetric;
  c.quantized = DType::s16;
  LinearAttempt(c).expect_oracle();
}

TEST(LinearSelectRefuses, Groups) {
  for (const std::int64_t wrong : {-4, 1, 2, 6})
    refuse_select(invalid("group_size", {"multiple of 4", std::to_string(wrong)}),
                  [&](auto& d) { d.group_size = wrong; });
  refuse_select(invalid("group_size", {"12", "8"}), [](auto& d) {
    d.k = 12;
    d.group_size = 8;
  });
  constexpr std::int64_t longest = std::int64_t{1} << 23;
  refuse_select(invalid("group_size", {"8388608", "8388612"}), [](auto& d) {
    d.k = 2 * (longest + 4);
    d.group_size = longest + 4;
  });
  EXPECT_TRUE(QuantizedMatmulPlan::select(
      Stream::cpu({.threads = 1}), {.m = 1, .n = 1, .k = 2 * longest, .group_size = longest}));
  for (const DType wrong : {DType::s8, DType::s32, no_type})
    refuse_select(unsupported("weight_scale", {"f32", text(wrong)}), [&](auto& d) {
      d.group_size = 4;
      d.weight_scale = wrong;
    });
  LinearAttempt raw(raw_case());
  raw.matmul.group_size = 4;
  raw.expect_select_refused(invalid("group_size", {"s32", "4"}));
  // As many as there are, and more: one scale per channel.
  for (const std::int64_t all : {8, 12, 1000})
    for (const LinearKind kind : linear_kinds) {
      LinearAttempt attempt(kind);
      attempt.describe([&](auto& d) { d.group_size = all; });
      attempt.expect_oracle();
    }
}

TEST(LinearSelectRefuses, TypesOfFloatLayers) {
  const Stream stream = Stream::cpu({.threads = 1});
  const auto check = [&](const char* argument, const std::vector<DType>& listed, auto set) {
    for (int i = 0; i <= dtype_count; ++i) {
      FloatLinearDescriptor d{.m = 2, .n = 3, .k = 4};
      set(d, static_cast<DType>(i));
      const auto plan = FloatLinearPlan::select(stream, d);
      const bool taken = std::count(listed.begin(), listed.end(), static_cast<DType>(i)) > 0;
      ASSERT_EQ(plan.has_value(), taken) << argument << " " << i;
      if (!taken) expect_error(plan.error(), unsupported(argument, {text(static_cast<DType>(i))}));
    }
  };
  const std::vector<DType> floats{DType::f32, DType::f16, DType::bf16};
  check("activation", floats, [](auto& d, DType type) { d.activation = type; });
  check("weight", floats, [](auto& d, DType type) { d.weight = type; });
  check("output", {DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8},
        [](auto& d, DType type) { d.output = type; });
}

TEST(LinearSelectRefuses, AModeThatDoesNotExist) {
  LinearAttempt attempt(dynamic);
  attempt.dynamic.mode = static_cast<RangeMode>(7);
  attempt.expect_select_refused(unsupported("mode", {"symmetric", "asymmetric", "7"}));
}

TEST(LinearSelectRefuses, Weights) {
  for (const DType wrong :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::s16, DType::s32, no_type})
    refuse_select(unsupported("weight", {"s8", "u8", "s4", "u4", text(wrong)}),
                  [&](auto& d) { d.weight = wrong; });
}

TEST(LinearSelectRefuses, Outputs) {
  for (const DType wrong : {DType::s4, DType::u4, no_type})
    refuse_select(unsupported("output", {"f32", "bf16", "s8", "u8", text(wrong)}),
                  [&](auto& d) { d.output = wrong; });
  refuse_select(unsupported("output", {"s32"}), [](auto& d) { d.output = DType::s32; },
                {dynamic, smoothquant});
}

// Every type there is, and one past the last: exactly those that are listed are taken.
TEST(LinearSelectRefuses, TypesThatAreNotListed) {
  using Types = std::vector<DType>;
  const Types floats{DType::f32, DType::f64, DType::f16, DType::bf16};
  const Types bytes{DType::s8, DType::u8};
  const auto all_of = [](Types a, const Types& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const auto check = [](LinearKind kind, const char* argument, const Types& listed, auto set) {
    for (int i = 0; i <= dtype_count; ++i) {
      const auto type = static_cast<DType>(i);
      LinearCase c = full_case(kind);
      c.epilogue = Epilogue::none;
      LinearAttempt attempt(c);
      attempt.describe([&](auto& d) { set(d, type); });
      if (std::find(listed.begin(), listed.end(), type) != listed.end()) {
        attempt.expect_selected();
      } else {
        attempt.expect_select_refused(unsupported(argument, {text(type)}));
      }
    }
  };
  for (const LinearKind kind : linear_kinds) {
    check(kind, "activation", kind == dynamic ? floats : bytes,
          [](auto& d, DType type) { d.activation = type; });
    check(kind, "weight", all_of(bytes, {DType::s4, DType::u4}),
          [](auto& d, DType type) { d.weight = type; });
    check(kind, "output",
          all_of(floats, all_of(bytes, kind == matmul ? Types{DType::s32} : Types{})),
          [](auto& d, DType type) { d.output = type; });
  }
  check(dynamic, "quantized", bytes, [](auto& d, DType type) {
    if constexpr (requires { d.quantized; }) d.quantized = type;
  });
}

TEST(LinearSelectRefuses, EpiloguesAndProfiles) {
  for (const int wrong : {8, 9, 255})
    refuse_select(unsupported("epilogue", {"bias", "residual", "relu", std::to_string(wrong)}),
                  [&](auto& d) { d.epilogue = static_cast<Epilogue>(wrong); });
  for (int wrong = 1; wrong < 8; ++wrong) {
    LinearAttempt attempt(raw_case());
    attempt.matmul.epilogue = static_cast<Epilogue>(wrong);
    attempt.expect_select_refused(
        unsupported("epilogue", {"none", "s32", std::string(name(attempt.matmul.epilogue))}));
  }
  refuse_select(unsupported("profile", {"torch", "onnx", "7"}),
                [](auto& d) { d.profile = static_cast<Profile>(7); });
}

// ---- sizes -------------------------------------------------------------------------------------

TEST(LinearSelectRefuses, NegativeSizes) {
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{-64}, INT64_MIN}) {
    const std::string got = std::to_string(wrong);
    refuse_select(invalid("m", {"0 or more", got}), [&](auto& d) { d.m = wrong; });
    refuse_select(invalid("n", {"0 or more", got}), [&](auto& d) { d.n = wrong; });
    refuse_select(invalid("k", {"0 or more", got}), [&](auto& d) { d.k = wrong; });
    // Nor beside a size of 0.
    refuse_select(invalid("k", {got}), [&](auto& d) {
      d.m = d.n = 0;
      d.k = wrong;
    });
  }
}

TEST(LinearSelectRefuses, SizesBeyondTheAddressSpace) {
  const auto sizes = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return [=](auto& d) {
      d.m = m;
      d.n = n;
      d.k = k;
    };
  };
  refuse_select(invalid("n", {std::to_string(huge)}), sizes(1, huge, huge));
  refuse_select(invalid("n", {std::to_string(INT64_MAX)}), sizes(1, INT64_MAX, 1));
  refuse_select(invalid("k", {std::to_string(INT64_MAX)}), sizes(1, 1, INT64_MAX));
  refuse_select(invalid("k", {std::to_string(INT64_MAX)}), sizes(0, 0, INT64_MAX));
  // A panel of 32 columns and the sums of them come to 2^58 bytes at most.
  refuse_select(invalid("k", {"n = 0", std::to_string(std::int64_t{1} << 53)}),
                sizes(0, 0, std::int64_t{1} << 53));
  for (const LinearKind kind : linear_kinds) {
    LinearAttempt attempt(kind);
    attempt.describe([](auto& d) {
      d.m = d.n = 0;
      d.k = (std::int64_t{1} << 53) - 64;
    });
    attempt.expect_selected();
  }
  refuse_select(invalid("m", {std::to_string(huge)}), sizes(huge, huge, 1));
  refuse_select(invalid("m", {std::to_string(huge)}), sizes(huge, 1, huge));
  refuse_select(invalid("m", {std::to_string(INT64_MAX)}), sizes(INT64_MAX, 1, 1));
  // (Products that wrap round to something small.)
  refuse_select(invalid("n"), sizes(1, std::int64_t{1} << 32, std::int64_t{1} << 32));
  refuse_select(invalid("m"), sizes(std::int64_t{1} << 62, 4, 4));
}

// Weights that are packed run by run take a workspace for each thread.
TEST(LinearSelectRefuses, AWorkspaceBeyondTheAddressSpace) {
  constexpr std::int64_t k = (std::int64_t{1} << 53) - 64;  // of which a panel is within it
  for (const LinearKind kind : linear_kinds)
    for (const int threads : {16, INT_MAX}) {
      LinearAttempt attempt(kind);
      attempt.options.threads = threads;
      attempt.describe([](auto& d) {
        d.m = d.n = 1;
        d.k = k;
      });
      attempt.expect_select_refused(invalid("k", {std::to_string(k)}));
    }
}

TEST(LinearSelectRefuses, SumsThatDoNotFit32Bits) {
  struct Limit {
    DType activation, weight;
    bool za, zw;
    std::int64_t k;
  };
  constexpr auto s8 = DType::s8;
  constexpr auto u8 = DType::u8;
  for (const Limit& l : {Limit{s8, s8, false, false, 131071}, Limit{u8, s8, false, false, 65793},
                         Limit{s8, u8, false, false, 65793}, Limit{s8, s8, true, false, 65793},
                         Limit{s8, s8, false, true, 65793}, Limit{u8, s8, true, false, 65793},
                         Limit{u8, u8, false, false, 33025}, Limit{s8, s8, true, true, 33025},
                         Limit{u8, s8, false, true, 33025}, Limit{s8, u8, true, false, 33025},
                         Limit{u8, u8, true, true, 33025}}) {
    LinearAttempt attempt(raw_case());
    QuantizedMatmulDescriptor& d = attempt.matmul;
    d.activation = l.activation;
    d.weight = l.weight;
    d.activation_zero_points = l.za;
    d.weight_zero_points = l.zw;
    d.k = l.k;
    attempt.expect_selected();
    d.k = l.k + 1;
    attempt.expect_select_refused(
        invalid("k", {std::to_string(l.k), std::to_string(l.k + 1), "s32"}));
    d.output = DType::f32;
    attempt.expect_selected();
  }
}

// ---- the static scale --------------------------------------------------------------------------

TEST(LinearSelectRefuses, StaticScalesThatAreNotFinite) {
  const auto with = [](double scale, DType output) {
    return [=](SmoothQuantLinearDescriptor& d) {
      d.act_scale = scale;
      d.output = output;
    };
  };
  for (const auto& [wrong, shown] :
       {std::pair{inf, "inf"}, {-inf, "-inf"}, {nan, "nan"}, {3.5e38, "3.5e+38"}}) {
    for (const DType output : {DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8}) {
      LinearAttempt attempt(smoothquant);
      with(wrong, output)(attempt.smoothquant);
      attempt.expect_select_refused(invalid("act_scale", {"finite", "f32", shown}));
    }
    LinearAttempt attempt(smoothquant);
    with(wrong, DType::f64)(attempt.smoothquant);
    if (std::isfinite(wrong)) {
      attempt.expect_selected();
    } else {
      attempt.expect_select_refused(invalid("act_scale", {"finite", "f64", shown}));
    }
  }
  // The last double that is rounded to a float, and the first that is not.
  for (const double sign : {1.0, -1.0}) {
    LinearAttempt attempt(smoothquant);
    attempt.smoothquant.act_scale = sign * 0x1.FFFFFEFFFFFFFp127;
    attempt.expect_selected();
    attempt.smoothquant.act_scale = sign * 0x1.FFFFFFp127;
    attempt.expect_select_refused(invalid("act_scale", {"finite"}));
  }
}

TEST(LinearSelectRefuses, StaticZeroPointsOutsideTheStorageType) {
  const auto refused = [](DType type, std::int32_t zero_point, const std::string& range) {
    LinearAttempt attempt(smoothquant);
    attempt.smoothquant.activation = type;
    attempt.smoothquant.act_zero_point = zero_point;
    attempt.expect_select_refused(
        invalid("act_zero_point", {range, text(type), std::to_string(zero_point)}));
  };
  for (const std::int32_t wrong : {-129, 128, INT32_MIN, INT32_MAX})
    refused(DType::s8, wrong, "-128 to 127");
  for (const std::int32_t wrong : {-1, 256, INT32_MIN, INT32_MAX})
    refused(DType::u8, wrong, "0 to 255");
  for (const auto& [type, zero_point] :
       {std::pair{DType::s8, -128}, {DType::s8, 127}, {DType::u8, 0}, {DType::u8, 255}}) {
    LinearAttempt attempt(smoothquant);
    attempt.smoothquant.activation = type;
    attempt.smoothquant.act_zero_point = zero_point;
    attempt.expect_selected();
  }
}

// ---- streams, preferences, targets -------------------------------------------------------------

TEST(LinearSelectRefuses, StreamsAndBackends) {
  for (const LinearKind kind : linear_kinds) {
    LinearAttempt negative(kind);
    negative.options.threads = -1;
    negative.expect_select_refused(invalid("threads", {"0", "-1"}));
    LinearAttempt other(kind);
    other.preference.backend = Backend::cuda;
    other.expect_select_refused(unsupported("backend", {"cpu", "cuda"}));
    other.preference.backend = Backend::cpu;
    other.expect_oracle();
  }
}

TEST(LinearSelectRefuses, MoreWorkspaceThanPreferred) {
  for (const LinearKind kind : linear_kinds) {
    LinearAttempt attempt(kind);
    const auto needed = static_cast<std::int64_t>(attempt.workspace_size());
    ASSERT_GT(needed, 0);
    attempt.preference.max_workspace_bytes = needed;
    attempt.expect_oracle();
    attempt.preference.max_workspace_bytes = needed - 1;
    attempt.expect_select_refused({ErrorCode::workspace_too_small,
                                   {"max_workspace_bytes"},
                                   {std::to_string(needed), std::to_string(needed - 1)},
                                   needed,
                                   needed - 1});
    attempt.preference.max_workspace_bytes = 0;
    attempt.describe([](auto& d) { d.m = 0; });
    attempt.expect_selected();  // nothing is needed for nothing
  }
}

TEST(LinearSelectRefuses, TargetsThisCpuLacks) {
  for (const LinearKind kind : linear_kinds) {
    const auto refused = [&](Target target) {
      LinearAttempt capped(kind);
      capped.options.cap = target;
      capped.expect_select_refused(unsupported("cap", {"scalar", std::string(name(target))}));
      LinearAttempt preferred(kind);
      preferred.preference.target = target;
      preferred.expect_select_refused(unsupported("target", {"scalar", std::string(name(target))}));
    };
    refused(static_cast<Target>(77));
    for (int i = 0; i < target_count; ++i) {
      const auto target = static_cast<Target>(i);
      if (!is_available(target)) {
        refused(target);
        continue;
      }
      LinearAttempt attempt(kind);
      attempt.options.cap = target;
      attempt.preference.target = target;
      attempt.expect_oracle();
    }
  }
}

TEST(LinearSelectRefuses, TargetsOfTheEnvironment) {
  if (std::getenv("OCTAVO_TARGET") != nullptr) GTEST_SKIP() << "OCTAVO_TARGET is set";
  for (const LinearKind kind : linear_kinds) {
    LinearAttempt attempt(kind);
    setenv("OCTAVO_TARGET", "avx1024", 1);
    attempt.expect_select_refused(unsupported("OCTAVO_TARGET", {"avx1024"}));
    setenv("OCTAVO_TARGET", "scalar", 1);
    attempt.expect_oracle();
    unsetenv("OCTAVO_TARGET");
  }
}

}  // namespace
}  // namespace octavo::testing
