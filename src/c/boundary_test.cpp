// The boundary itself: sizes of structs, errors, memory and threads.
#include <atomic>
#include <limits>
#include <thread>

#include "c/testing.hpp"
#include "ops/elementwise/testing.hpp"

namespace octavo::testing {
namespace {

// ---- struct_size --------------------------------------------------------------------------------

TEST(CStruct, ShorterOneHasDefaults) {
  Quantize c;
  // As if `scales` and `zero_points` had not been there yet; what lies behind is not looked at.
  c.args.struct_size = offsetof(octavo_elementwise_args, scales);
  c.args.scales = reinterpret_cast<const octavo_tensor*>(0x10);
  ASSERT_EQ(c.run(), OCTAVO_OK) << octavo_last_error()->message;
  EXPECT_EQ(c.q[0], 31);
  EXPECT_EQ(c.q[5], 127);

  octavo_elementwise_desc d = good_descriptor();
  d.struct_size = offsetof(octavo_elementwise_desc, q_min);
  d.q_min = octavo_some(1000);
  octavo_plan* out = nullptr;
  ASSERT_EQ(octavo_elementwise_select(c.cpu.get(), &d, nullptr, &out), OCTAVO_OK);
  octavo_plan_destroy(out);
}

TEST(CStruct, LongerOneMayOnlyHaveZerosBehind) {
  Quantize c;
  struct {
    octavo_elementwise_args known;
    std::uint64_t unknown[2];
  } args{c.args, {0, 0}};
  args.known.struct_size = sizeof args;
  ASSERT_EQ(octavo_elementwise_run(c.plan.get(), c.cpu.get(), nullptr, 0, &args.known), OCTAVO_OK);
  args.unknown[1] = std::uint64_t{1} << 56;
  expect_refusal(octavo_elementwise_run(c.plan.get(), c.cpu.get(), nullptr, 0, &args.known),
                 OCTAVO_UNSUPPORTED, "struct_size", "does not know");
}

TEST(CStruct, SizeMustBeSet) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{4097},
                                 std::numeric_limits<std::size_t>::max()}) {
    Quantize c;
    c.args.struct_size = size;
    c.expect_refused(OCTAVO_INVALID_PROBLEM, "struct_size", "that args points to");
    c.args.struct_size = sizeof c.args;
    c.input.struct_size = size;
    c.expect_refused(OCTAVO_INVALID_PROBLEM, "struct_size", "that input points to");
    octavo_elementwise_desc d = good_descriptor();
    d.struct_size = size;
    expect_refused(d, OCTAVO_INVALID_PROBLEM, "struct_size", "that desc points to");
  }
}

TEST(CStruct, OutputIsFilledAsFarAsItGoes) {
  const Quantize c;
  struct {
    octavo_guarantee known;
    std::uint64_t newer;
  } out{};
  std::memset(static_cast<void*>(&out), 0x55, sizeof out);
  out.known.struct_size = offsetof(octavo_guarantee, deterministic);
  ASSERT_EQ(octavo_plan_guarantee(c.plan.get(), &out.known), OCTAVO_OK);
  EXPECT_EQ(out.known.struct_size, offsetof(octavo_guarantee, deterministic));
  EXPECT_EQ(out.known.math, OCTAVO_F32);
  EXPECT_EQ(out.known.deterministic, 0x55555555);
  out.known.struct_size = sizeof out;
  ASSERT_EQ(octavo_plan_guarantee(c.plan.get(), &out.known), OCTAVO_OK);
  EXPECT_EQ(out.known.deterministic, 1);
  EXPECT_EQ(out.newer, 0U);
  out.known.struct_size = 0;
  expect_refusal(octavo_plan_guarantee(c.plan.get(), &out.known), OCTAVO_INVALID_PROBLEM,
                 "struct_size", "that out points to");
}

// ---- errors, memory, threads --------------------------------------------------------------------

TEST(CError, SaysAllThatCxxSays) {
  Quantize c;
  c.output.buffer_bytes = 5;
  c.expect_refused(OCTAVO_BUFFER_TOO_SMALL, "output", "which has 5");
  EXPECT_EQ(octavo_last_error()->struct_size, sizeof(octavo_error));
  EXPECT_EQ(octavo_last_error()->needed, 6);
  EXPECT_EQ(octavo_last_error()->got, 5);
  EXPECT_STREQ(octavo_status_name(OCTAVO_BUFFER_TOO_SMALL), "buffer_too_small");
  EXPECT_STREQ(octavo_status_name(OCTAVO_OK), "ok");
  EXPECT_STREQ(octavo_status_name(-5), "unknown");
  c.output.buffer_bytes = 0;
  c.args.scale = 0;
  c.expect_refused(OCTAVO_INVALID_PROBLEM, "scale", "scale");
  // A success leaves it alone.
  c.args.scale = 1;
  ASSERT_EQ(c.run(), OCTAVO_OK);
  EXPECT_STREQ(octavo_last_error()->argument, "scale");
}

TEST(CError, IsOneForEachThread) {
  Quantize c;
  c.args.input = nullptr;
  c.expect_refused(OCTAVO_INVALID_PROBLEM, "input", "NULL");
  std::thread([] {
    EXPECT_EQ(octavo_last_error()->code, OCTAVO_OK);
    EXPECT_STREQ(octavo_last_error()->message, "");
    EXPECT_EQ(octavo_stream_create(nullptr, nullptr), OCTAVO_INVALID_PROBLEM);
    EXPECT_STREQ(octavo_last_error()->argument, "out");
  }).join();
  EXPECT_STREQ(octavo_last_error()->argument, "input");
}

TEST(CError, MemoryThatRunsOutIsOne) {
  if (sanitized) GTEST_SKIP() << "sanitizers end the program when memory runs out";
  void* workspace = nullptr;
  // The last ones would be 0 bytes if they were rounded up to the alignment.
  for (const std::size_t bytes : {std::size_t{1} << 62, std::size_t{PTRDIFF_MAX},
                                  std::size_t{PTRDIFF_MAX} + 1, SIZE_MAX - 63, SIZE_MAX}) {
    expect_refusal(octavo_workspace_create(bytes, &workspace), OCTAVO_BACKEND, "",
                   "memory ran out");
    EXPECT_EQ(workspace, nullptr);
  }
  const auto cpu = c_stream(1);
  for (const std::int64_t channels : {std::int64_t{1} << 43, (std::int64_t{1} << 44) - 1}) {
    octavo_observer_desc d{};
    d.struct_size = sizeof d;
    d.op = OCTAVO_OBSERVE_HISTOGRAM;
    d.scope = OCTAVO_PER_CHANNEL;
    d.channels = channels;
    const auto plan = made<octavo_plan>(
        [&](auto out) { return octavo_observer_select(cpu.get(), &d, nullptr, out); });
    octavo_observer_state* state = nullptr;
    expect_refusal(octavo_observer_make_state(plan.get(), &state), OCTAVO_BACKEND, "",
                   "memory ran out");
    EXPECT_EQ(state, nullptr);
  }
}

TEST(CThreads, ShareStreamsAndPlans) {
  Quantize shared;
  std::atomic<int> wrong{0};
  constexpr int many = 8;
  std::vector<std::thread> threads;
  threads.reserve(many);
  for (int t = 0; t < many; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < (slow_machine() ? 20 : 200); ++i) {
        std::int8_t q[6] = {};
        octavo_tensor output = shared.output;
        output.data = q;
        octavo_elementwise_args args = shared.args;
        args.output = &output;
        const octavo_elementwise_desc d = good_descriptor();
        octavo_plan* own = nullptr;
        if (octavo_elementwise_select(shared.cpu.get(), &d, nullptr, &own) != OCTAVO_OK) ++wrong;
        const octavo_plan* plan = i % 2 == 0 ? own : shared.plan.get();
        if (octavo_elementwise_run(plan, shared.cpu.get(), nullptr, 0, &args) != OCTAVO_OK ||
            q[0] != 31 || q[1] != -127 || q[5] != 127)
          ++wrong;
        // Refusals of other threads do not show here.
        args.scale = -1 - t;
        if (octavo_elementwise_run(plan, shared.cpu.get(), nullptr, 0, &args) !=
                OCTAVO_INVALID_PROBLEM ||
            std::string(octavo_last_error()->message).find(std::to_string(-1 - t)) ==
                std::string::npos)
          ++wrong;
        octavo_plan_destroy(own);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// ---- the rest -----------------------------------------------------------------------------------

TEST(CInfo, IsThatOfCxx) {
  EXPECT_EQ(octavo_version(), OCTAVO_VERSION);
  EXPECT_EQ(std::string(octavo_version_string()), OCTAVO_PROJECT_VERSION);
  std::size_t count = 0;
  ASSERT_EQ(octavo_available_targets(nullptr, 0, &count), OCTAVO_OK);
  ASSERT_EQ(count, available_targets().size());
  std::vector<octavo_target> targets(count + 1, -7);
  ASSERT_EQ(octavo_available_targets(targets.data(), targets.size(), &count), OCTAVO_OK);
  EXPECT_EQ(targets.back(), -7);
  for (std::size_t i = 0; i < count; ++i) {
    const Target target = available_targets()[i];
    EXPECT_EQ(targets[i], static_cast<octavo_target>(target));
    EXPECT_EQ(octavo_target_name(targets[i]), name(target));
    octavo_target parsed = -1;
    ASSERT_EQ(octavo_parse_target(octavo_target_name(targets[i]), &parsed), OCTAVO_OK);
    EXPECT_EQ(parsed, targets[i]);
  }
  octavo_target parsed = -1;
  expect_refusal(octavo_parse_target("mmx", &parsed), OCTAVO_UNSUPPORTED, "name", "got 'mmx'");
  EXPECT_EQ(parsed, -1);
  for (int t = 0; t < dtype_count; ++t) {
    EXPECT_EQ(octavo_dtype_name(t), name(static_cast<DType>(t)));
    EXPECT_EQ(octavo_bytes_for(t, 7), bytes_for(static_cast<DType>(t), 7));
  }
  EXPECT_EQ(octavo_bytes_for(OCTAVO_S8, INT64_MAX), INT64_MAX);
  for (const std::int64_t n : {INT64_MAX, std::int64_t{1} << 60, std::int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(octavo_bytes_for(OCTAVO_F64, n), -1);
    expect_refusal(
        octavo_last_error()->code, OCTAVO_INVALID_PROBLEM, "n",
        "expected 0 or more elements of f64, of less than 2^63 bytes, got " + std::to_string(n));
  }
  EXPECT_EQ(octavo_f16_to_f32(0x3C00), 1.0F);
  EXPECT_EQ(octavo_bf16_to_f32(0x3F80), 1.0F);
  EXPECT_EQ(octavo_f32_to_f16(-2.0F), 0xC000);
  EXPECT_EQ(octavo_f32_to_bf16(-2.0F), 0xC000);
  EXPECT_EQ(octavo_stream_threads(c_stream(3).get()), 3);
  EXPECT_EQ(octavo_stream_synchronize(c_stream(3).get()), OCTAVO_OK);
}

TEST(CPreference, IsHeeded) {
  const auto cpu = c_stream(1);
  octavo_elementwise_desc d = good_descriptor();
  d.layout = OCTAVO_PER_TOKEN;
  d.scale_type = octavo_some(OCTAVO_F16);
  octavo_preference preference{};
  preference.struct_size = sizeof preference;
  preference.target = octavo_some(OCTAVO_SCALAR);
  const auto plan = made<octavo_plan>(
      [&](auto out) { return octavo_elementwise_select(cpu.get(), &d, &preference, out); });
  EXPECT_NE(std::string(octavo_plan_sku(plan.get())).find(".scalar"), std::string::npos);
  EXPECT_EQ(octavo_plan_workspace_size(plan.get()), 4U);
  preference.max_workspace_bytes = 3;  // of no account, for there is no limit
  EXPECT_NE(made<octavo_plan>([&](auto out) {
              return octavo_elementwise_select(cpu.get(), &d, &preference, out);
            }),
            nullptr);
  preference.limit_workspace = 1;
  for (const std::size_t most : {3, 0}) {
    preference.max_workspace_bytes = most;
    octavo_plan* out = nullptr;
    expect_refusal(octavo_elementwise_select(cpu.get(), &d, &preference, &out),
                   OCTAVO_WORKSPACE_TOO_SMALL, "max_workspace_bytes", "expected at least 4");
  }
  octavo_stream_options o{sizeof o, 1, octavo_some(OCTAVO_SCALAR)};
  const auto capped =
      made<octavo_stream>([&](auto stream) { return octavo_stream_create(&o, stream); });
  const auto other = made<octavo_plan>(
      [&](auto to) { return octavo_elementwise_select(capped.get(), &d, nullptr, to); });
  EXPECT_NE(std::string(octavo_plan_sku(other.get())).find(".scalar"), std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
