// The data of the tour and small tools. Data comes from integer arithmetic and single IEEE
// operations, so that it is the same on every machine, and with it the digests.
#pragma once

#include <octavo/octavo.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tour {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// 0 .. 65535
  std::int32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int32_t>(state_ >> 48U);
  }
  /// About a bell curve, between -2 and 2.
  float bell() {
    const std::int32_t sum = next() + next() + next() + next() - 2 * 65535;
    return static_cast<float>(sum) / 65536.0F;
  }

 private:
  std::uint64_t state_;
};

struct Matrix {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<float> values;

  [[nodiscard]] std::int64_t numel() const { return rows * cols; }
  [[nodiscard]] octavo::Shape shape() const { return {rows, cols}; }
};

/// Weights whose rows differ in size by up to 16, as those of real layers do.
inline Matrix make_weights(std::int64_t rows, std::int64_t cols) {
  Matrix m{rows, cols, {}};
  Random random(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto size = static_cast<float>(row * 37 % 16 + 1) / 64.0F;
    for (std::int64_t i = 0; i < cols; ++i) m.values.push_back(random.bell() * size);
  }
  return m;
}

/// Activations that reach much further up than down, as after a GELU; some tokens are louder.
inline Matrix make_activations(std::int64_t tokens, std::int64_t hidden) {
  Matrix m{tokens, hidden, {}};
  Random random(2);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto loud = static_cast<float>(token % 7 + 1);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const float x = random.bell();
      m.values.push_back((x > 0 ? x : x * 0.0625F) * loud);
    }
  }
  return m;
}

/// Everything that is hard: NaN, infinities, subnormals, ties, huge and ordinary numbers.
inline Matrix make_hard(std::int64_t rows, std::int64_t cols) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr std::array special{std::numeric_limits<float>::quiet_NaN(),
                               infinity,
                               -infinity,
                               -0.0F,
                               0x1p-149F,
                               -0x1p-130F,
                               3e38F,
                               -3e38F,
                               0.025F,
                               0.075F};
  Matrix m{rows, cols, {}};
  Random random(3);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto kind = static_cast<std::size_t>(random.next() % 32);
    m.values.push_back(kind < special.size() ? special[kind] : random.bell() * 4.0F);
  }
  return m;
}

/// Scales (and zero points) that just cover each run of `length` values.
struct Parameters {
  std::vector<float> scales;
  std::vector<std::int32_t> zero_points;
};
inline Parameters symmetric(std::span<const float> values, std::int64_t length, int q_max) {
  Parameters p;
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(length)) {
    float most = 0;
    for (const float x : values.subspan(at, static_cast<std::size_t>(length)))
      most = std::max(most, std::abs(x));
    p.scales.push_back(most > 0 ? most / static_cast<float>(q_max) : 1.0F);
    p.zero_points.push_back(0);
  }
  return p;
}
inline Parameters asymmetric_u8(std::span<const float> values, std::int64_t length) {
  Parameters p;
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(length)) {
    float low = 0;
    float high = 0;
    for (const float x : values.subspan(at, static_cast<std::size_t>(length))) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
    p.scales.push_back(high > low ? (high - low) / 255.0F : 1.0F);
    p.zero_points.push_back(static_cast<std::int32_t>(std::nearbyint(-low / p.scales.back())));
  }
  return p;
}

/// FNV-1a over everything that was added.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(b)) * 0x100000001B3U;
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

/// Stops the tour if a step was refused.
template <class T>
void must(const octavo::Result<T>& result) {
  if (result) return;
  std::printf("octavo_tour: refused: %s\n", result.error().message().c_str());
  std::exit(1);
}

/// Selects a plan and runs it once.
template <class Plan>
void run(const octavo::Stream& stream, const typename Plan::Descriptor& descriptor,
         const typename Plan::Args& args) {
  const auto plan = Plan::select(stream, descriptor);
  must(plan);
  must(plan->run(stream, {}, args));
}

}  // namespace tour
