#include "linear.hpp"

#include <array>
#include <memory>
#include <string>

#include "ops/linear/testing_guard.hpp"

namespace octavo::exhaustive {
namespace {

using testing::LinearCase;
using testing::LinearData;

constexpr std::int64_t most = 64;
constexpr std::size_t side = most;

/// One pair of matrices whose every prefix is a problem of its own: [m, k] of the activations by
/// [n, k] of the weights. The sums over the first k products, for all k, are the sums of all of
/// them.
class Prefixes {
 public:
  Prefixes(DType activation, DType weight, std::uint64_t seed)
      : activation_type(activation),
        weight_type(weight) {
    testing::Random random(seed);
    const auto byte = [&] {
      // Ends of the range more often than not: where something would saturate.
      constexpr std::array<std::uint8_t, 4> ends{0x80, 0x7F, 0xFF, 0x00};
      const std::uint64_t r = random.next();
      return r % 2 == 0 ? ends[r / 2 % 4] : static_cast<std::uint8_t>(r >> 32U);
    };
    for (auto& value : activations) value = byte();
    for (auto& value : weights) value = byte();
    const auto zero = [&](DType type) {
      return storage_range(type).min + static_cast<std::int32_t>(random.below(256));
    };
    for (auto& value : activation_zeros) value = zero(activation);
    for (auto& value : weight_zeros) value = zero(weight);
    sums.resize(std::size_t{4} * (side + 1) * side * side);
    for (const bool za : {false, true})
      for (const bool zw : {false, true})
        for (std::size_t m = 0; m < side; ++m)
          for (std::size_t n = 0; n < side; ++n) {
            std::int32_t sum = 0;
            for (std::size_t k = 0; k < side; ++k) {
              const std::int32_t a = integer(activation, activations[m * side + k]);
              const std::int32_t w = integer(weight, weights[n * side + k]);
              sum += (a - (za ? activation_zeros[m] : 0)) * (w - (zw ? weight_zeros[n] : 0));
              sums_of(za, zw, k + 1)[m * side + n] = sum;
            }
          }
  }

  /// [m, n] with rows of 64.
  [[nodiscard]] const std::int32_t* sums_of(bool za, bool zw, std::size_t k) const {
    return sums.data() + ((za ? 2U : 0U) + (zw ? 1U : 0U)) * (side + 1) * side * side +
           k * side * side;
  }

  DType activation_type, weight_type;
  std::array<std::uint8_t, side * side> activations{}, weights{};
  std::array<std::int32_t, side> activation_zeros{}, weight_zeros{};

 private:
  static std::int32_t integer(DType type, std::uint8_t bits) {
    return type == DType::u8 ? bits : static_cast<std::int8_t>(bits);
  }
  std::int32_t* sums_of(bool za, bool zw, std::size_t k) {
    return const_cast<std::int32_t*>(std::as_const(*this).sums_of(za, zw, k));
  }
  std::vector<std::int32_t> sums;
};

/// All pairs of types.
using AllPrefixes = std::vector<std::unique_ptr<const Prefixes>>;

std::string where(Target target, const QuantizedMatmulDescriptor& d, std::int64_t m) {
  return "linear " + std::string(name(target)) + " m=" + std::to_string(m) +
         " n=" + std::to_string(d.n) + " k=" + std::to_string(d.k) + " " +
         std::string(name(d.activation)) + "." + std::string(name(d.weight)) +
         (d.activation_zero_points ? " za" : "") + (d.weight_zero_points ? " zw" : "") +
         (d.packed_weight ? " packed" : "");
}

/// All m and n for one k and one pair of types; zero points, packing and strides in turn.
Outcome all_shapes(Target target, const Prefixes& p, std::int64_t k) {
  Outcome outcome;
  const Stream stream = Stream::cpu({.threads = 1, .cap = target});
  std::vector<std::int32_t> out(side * side);
  std::vector<std::byte> scratch(std::size_t{1} << 17U);
  for (std::int64_t n = 1; n <= most; ++n)
    for (int zeros = 0; zeros < 4; ++zeros) {
      QuantizedMatmulDescriptor d;
      d.m = most;
      d.n = n;
      d.k = k;
      d.activation = p.activation_type;
      d.weight = p.weight_type;
      d.output = DType::s32;
      d.activation_zero_points = (zeros & 2) != 0;
      d.weight_zero_points = (zeros & 1) != 0;
      d.packed_weight = (n + k + zeros) % 2 != 0;
      // Each m with one of the four combinations of zero points here, and with the others for the
      // other pairs of types.
      const auto plan = QuantizedMatmulPlan::select(stream, d);
      const TensorRef rows(p.weights.data(), d.weight, {n, k}, {most, 1});
      PackedWeight packed;
      if (d.packed_weight) packed = *octavo::pack(stream, rows);
      const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
      const std::size_t shift = (64 - address % 64) % 64;
      const Workspace lent{scratch.data() + shift, scratch.size() - shift};
      const auto turn = static_cast<std::int64_t>(d.activation == DType::u8) +
                        2 * static_cast<std::int64_t>(d.weight == DType::u8);
      for (std::int64_t m = 1; m <= most; ++m) {
        if ((m + n + k + turn) % 4 != zeros) continue;
        std::fill(out.begin(), out.end(), 0x5A5A5A5A);
        QuantizedMatmulArgs args;
        args.input = TensorRef(p.activations.data(), d.activation, {m, k}, {most, 1});
        args.weight = d.packed_weight ? WeightRef(packed) : WeightRef(rows);
        if (d.activation_zero_points)
          args.activation_zero_points = TensorRef(p.activation_zeros.data(), {m});
        if (d.weight_zero_points) args.weight_zero_points = TensorRef(p.weight_zeros.data(), {n});
        args.output = TensorMut(out.data(), {m, n}, {most, 1});
        const Status ran = plan ? plan->run(stream, lent, args) : Status(plan.error());
        if (!ran) {
          outcome.add(1, [&] { return where(target, d, m) + ": " + ran.error().message(); });
          continue;
        }
        const std::int32_t* want =
            p.sums_of(d.activation_zero_points, d.weight_zero_points, static_cast<std::size_t>(k));
        bool right = true;
        for (std::int64_t r = 0; r < most; ++r) {
          const std::int32_t* got = out.data() + r * most;
          const std::int64_t written = r < m ? n : 0;
          right = right && std::equal(got, got + written, want + r * most) &&
                  std::all_of(got + written, got + most,
                              [](std::int32_t value) { return value == 0x5A5A5A5A; });
        }
        outcome.add(right ? 0 : 1, [&] { return where(target, d, m) + ": the sums differ"; });
      }
    }
  return outcome;
}

/// Random sizes up to 512, with all else in turn, against the oracle.
Outcome random_shapes(std::uint64_t first, std::uint64_t last) {
  Outcome outcome;
  for (std::uint64_t turn = first; turn < last; ++turn) {
    testing::Random random(turn ^ 0x11EA5);
    const auto size = [&] { return static_cast<std::int64_t>(1 + random.below(512)); };
    const std::int64_t m = size();
    const std::int64_t n = size();
    LinearCase c = turn % 2 == 0 ? testing::linear_case_in_turn(turn, m, n, size())
                                 : testing::group_case_in_turn(turn, m, n, size() / 4 * 4);
    c.extreme = random.below(8) == 0;
    const LinearData d = testing::make_linear(c);
    const testing::Matrix want = testing::expected(d);
    for (const Target target : testing::linear_targets()) {
      const auto threads = static_cast<int>(1 + random.below(3));
      const std::string wrong =
          testing::compare(Stream::cpu({.threads = threads, .cap = target}), d, want);
      outcome.add(wrong.empty() ? 0 : 1,
                  [&] { return "linear " + std::string(name(target)) + " " + wrong; });
    }
  }
  return outcome;
}

/// Groups: every m and n up to 64, with k, types and the rest in turn.
Outcome all_group_shapes(Target target, std::int64_t m) {
  Outcome outcome;
  const Stream stream = Stream::cpu({.threads = 1, .cap = target});
  for (std::int64_t n = 1; n <= most; ++n)
    for (std::uint64_t i = 0; i < 4; ++i) {
      const auto turn = static_cast<std::uint64_t>(m * 64 + n) * 4 + i;
      testing::Random random(turn);
      const auto k = static_cast<std::int64_t>(4 * (1 + random.below(24)));
      const LinearData d = testing::make_linear(testing::group_case_in_turn(turn, m, n, k));
      const std::string wrong = testing::compare(stream, d, testing::expected(d));
      outcome.add(wrong.empty() ? 0 : 1,
                  [&] { return "linear " + std::string(name(target)) + " " + wrong; });
    }
  return outcome;
}

Outcome guards(Target target, std::uint64_t turn) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i <= 34; ++i) sizes.push_back(i);
  for (const std::int64_t more : {47, 48, 49, 63, 64, 65, 66, 127, 128, 129}) sizes.push_back(more);
  Outcome outcome;
  for (const auto in_turn : {testing::linear_case_in_turn, testing::group_case_in_turn}) {
    std::string wrong = testing::check_linear_guards(target, sizes, turn, in_turn);
    outcome.add(wrong.empty() ? 0 : 1, [&] { return std::move(wrong); });
  }
  return outcome;
}

}  // namespace

std::vector<Unit> linear_units() {
  std::vector<Unit> units;
  const auto prefixes = std::make_shared<AllPrefixes>();
  for (const DType activation : {DType::s8, DType::u8})
    for (const DType weight : {DType::s8, DType::u8})
      prefixes->push_back(std::make_unique<Prefixes>(activation, weight, prefixes->size() + 1));
  for (const Target target : testing::linear_targets()) {
    const std::string on = "linear/" + std::string(name(target));
    for (std::int64_t k = 1; k <= most; ++k)
      units.push_back({on + "/k" + std::to_string(k), 0.2, [=] {
                         Outcome all;
                         for (const auto& p : *prefixes) {
                           Outcome one = all_shapes(target, *p, k);
                           all.mismatches += one.mismatches;
                           for (auto& text : one.messages) all.messages.push_back(text);
                         }
                         return all;
                       }});
    for (std::int64_t m = 1; m <= most; ++m)
      units.push_back(
          {on + "/groups/m" + std::to_string(m), 0.2, [=] { return all_group_shapes(target, m); }});
    for (std::uint64_t i = 0; i < 2; ++i)
      units.push_back({on + "/guard" + std::to_string(i), 5.0,
                       [=] { return guards(target, 1'000'000 * (i + 1)); }});
  }
  constexpr std::uint64_t step = 25;
  for (std::uint64_t i = 0; i < 120; ++i)
    units.push_back({"linear/random" + std::to_string(i), 1.5,
                     [=] { return random_shapes(i * step, (i + 1) * step); }});
  return units;
}

}  // namespace octavo::exhaustive
