// The targets that linear plans are tested on.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/target.hpp"
#include "ops/elementwise/testing.hpp"
#include "ops/linear/implementation.hpp"
#include "testing/cuda.hpp"

namespace octavo::testing {

/// A CUDA stream for all tests of a program. (It is never given back: at exit the driver may be
/// gone before it.)
[[nodiscard]] inline const Stream& shared_cuda_stream() {
  static const auto& stream = *new Stream(*cuda_stream());
  return stream;
}

/// Whether a target has a dot product of its own.
[[nodiscard]] inline bool has_dot_product(Target target) {
  for (const octavo::detail::LinearEntry& entry : octavo::detail::cpu_linear())
    if (entry.at.target == target) return true;
  return false;
}

/// Those of this machine.
[[nodiscard]] inline std::vector<Target> linear_targets() {
  std::vector<Target> targets;
  for (const Target target : machine_targets)
    if (is_available(target) && has_dot_product(target)) targets.push_back(target);
  return targets;
}

/// And sm80, where there is a device.
[[nodiscard]] inline std::vector<Target> linear_targets_and_device() {
  std::vector<Target> targets = linear_targets();
  if (has_cuda()) targets.push_back(Target::sm80);
  return targets;
}

/// A target; and of AVX-512 VNNI, which has products for CPUs of two sorts, of which sort this one
/// is said to be. All can run both.
struct LinearPlace {
  Target target = Target::scalar;
  std::optional<bool> logic_beside_products = std::nullopt;
};

[[nodiscard]] inline std::string name(const LinearPlace& place) {
  return std::string(octavo::name(place.target)) +
         (place.logic_beside_products.value_or(false) ? "_idle" : "");
}

[[nodiscard]] inline std::vector<LinearPlace> linear_places() {
  std::vector<LinearPlace> places;
  for (const Target target : machine_targets) {
    if (target != Target::avx512vnni) {
      places.push_back({target});
      continue;
    }
    for (const bool logic : {false, true}) places.push_back({target, logic});
  }
  places.push_back({Target::sm80});
  return places;
}

/// Tests on each of them, and on a CUDA device; what this machine lacks is skipped.
class LinearPlaceTest : public ::testing::TestWithParam<LinearPlace> {
 protected:
  void SetUp() override {
    const auto& [target, logic] = GetParam();
    if (on_device()) {
      if (!has_cuda()) GTEST_SKIP() << "there is no CUDA device";
      return;
    }
    if (!is_available(target)) GTEST_SKIP() << "this CPU lacks " << octavo::name(target);
    octavo::detail::pretend_logic_beside_products(logic);
  }
  void TearDown() override { octavo::detail::pretend_logic_beside_products(std::nullopt); }
  [[nodiscard]] Target target() const { return GetParam().target; }
  [[nodiscard]] bool on_device() const { return target() == Target::sm80; }
  /// Whether many cases take too long.
  [[nodiscard]] bool slow() const { return slow_machine() || on_device(); }
  [[nodiscard]] Stream stream(int threads = 1) const {
    if (on_device()) return shared_cuda_stream();
    return Stream::cpu({.threads = threads, .cap = target(), .trace = &trace_});
  }
  void skip_without_dot_product() const {
    if (!on_device() && !has_dot_product(target()))
      GTEST_SKIP() << octavo::name(target()) << " has no dot product of its own";
  }
  mutable std::atomic<std::uint32_t> trace_{0};
};

#define OCTAVO_ON_LINEAR_PLACES(suite)                                       \
  INSTANTIATE_TEST_SUITE_P(All, suite, ::testing::ValuesIn(linear_places()), \
                           [](const auto& info) { return octavo::testing::name(info.param); })

}  // namespace octavo::testing
