// The one place where implementations are chosen.
#include "core/choose.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <string>

#include "core/stream.hpp"

namespace octavo::detail {
namespace {

// A problem is a number, an implementation the name of who does it.
using Name = const char*;
template <Target target, int most>
Found<Name> find(const int& problem, const Allowed& /*allowed*/) {
  static const std::string own(name(target));
  if (problem > most) return {nullptr, "more than " + std::to_string(most)};
  return {own.c_str()};
}

using NamedEntry = Entry<int, Name>;
constexpr std::array<NamedEntry, 3> list{
    {{{Backend::cpu, Target::avx2}, find<Target::avx2, 1>},
     {{Backend::cpu, Target::neon}, find<Target::neon, 2>},
     {{Backend::cpu, Target::scalar}, find<Target::scalar, 3>}}};
constexpr std::array<NamedEntry, 1> device{
    {{{test_backend, Target::scalar}, find<Target::scalar, 9>}}};

constexpr std::uint32_t all = ~0U;
std::uint32_t only(Target target) { return 1U << static_cast<unsigned>(target); }

Result<Chosen<Name>> choose_for(const Allowed& allowed, int problem) {
  return choose(allowed, problem,
                {std::span<const NamedEntry>(list), std::span<const NamedEntry>(device)});
}

TEST(Choose, TheFirstThatCoversTheProblem) {
  for (const auto& [problem, expected] :
       {std::pair{1, Target::avx2}, {2, Target::neon}, {3, Target::scalar}}) {
    const auto chosen = choose_for({Backend::cpu, all}, problem);
    ASSERT_TRUE(chosen) << chosen.error().message();
    EXPECT_EQ(chosen->at.target, expected);
    EXPECT_EQ(chosen->impl, std::string(name(expected)));
  }
}

TEST(Choose, OnlyWhatIsAllowed) {
  const auto chosen = choose_for({Backend::cpu, only(Target::scalar)}, 1);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->at.target, Target::scalar);
}

TEST(Choose, OnTheBackendOfTheStream) {
  const auto chosen = choose_for({test_backend, 0}, 4);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->at.backend, test_backend);
  EXPECT_FALSE(choose_for({Backend::cuda, all}, 1));
}

TEST(Choose, ARefusalKeepsTheReasonOfEachCandidate) {
  const auto none = choose_for({Backend::cpu, all}, 4);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(none.error().argument(), "backend");
  EXPECT_EQ(none.error().message(),
            "backend: expected an implementation on cpu, got none: avx2: more than 1; neon: more "
            "than 2; scalar: more than 3");
  const auto nobody = choose_for({Backend::cuda, 0}, 1);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().message(), "backend: expected an implementation on cuda, got none");
}

// A choice within another has no sentence around its reasons.
TEST(Choose, ReasonsStandAlone) {
  const auto first = [](int problem) {
    return choose_first(Allowed{Backend::cpu, all}, problem, {std::span<const NamedEntry>(list)});
  };
  const Choice<Name> none = first(4);
  EXPECT_FALSE(none.chosen);
  EXPECT_EQ(none.reasons, "avx2: more than 1; neon: more than 2; scalar: more than 3");
  const Choice<Name> second = first(2);
  ASSERT_TRUE(second.chosen);
  EXPECT_EQ(second.chosen->at.target, Target::neon);
  EXPECT_EQ(first(1).reasons, "");
}

// A target is the CPU's: asked for elsewhere, it would be passed over in silence.
TEST(Choose, ATargetIsRefusedOnOtherBackends) {
  const Stream device = StreamAccess::make(std::make_shared<Stream::Impl>(test_backend));
  for (const Target target : {Target::scalar, Target::avx2}) {
    const auto refused = allowed_places(device, {.target = target});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
    EXPECT_EQ(refused.error().argument(), "target");
    EXPECT_EQ(
        refused.error().message(),
        "target: expected none on test (targets are the CPU's), got " + std::string(name(target)));
  }
  const auto allowed = allowed_places(device, {.backend = test_backend});
  ASSERT_TRUE(allowed);
  EXPECT_TRUE(allowed->has(test_backend, Target::scalar));
  EXPECT_FALSE(allowed->has(Backend::cpu, Target::scalar));
  EXPECT_TRUE(allowed_places(Stream::cpu(), {.target = Target::scalar}));
}

TEST(Choose, StreamsAreOfABackend) {
  const Stream cpu = Stream::cpu();
  EXPECT_EQ(cpu.backend(), Backend::cpu);
  EXPECT_TRUE(cpu.synchronize());
  EXPECT_EQ(name(test_backend), "test");
  EXPECT_EQ(name(Backend{7}), "unknown");
}

}  // namespace
}  // namespace octavo::detail
