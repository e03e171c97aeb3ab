// Linear layers against sums without any error: what docs/numerics.md, "How far sums of floats are
// off", promises. The oracle of testing_oracle.hpp repeats the order of the contract; this one
// knows none, so that both cannot share a mistake in it.
//
// With u = 2^-24 (f64: 2^-53), h = 2^-150 (2^-1075), L terms t in S segments, and as long as
// nothing overflows:
//
//     |acc - sum t| <= g(n) * sum |t| + 2 * L * h         g(n) = n * u / (1 - n * u)
//     n = ceil(L / S) + log2 S                            and one more for C(d) in groups
//
// since a term goes through one rounding of its own, at most ceil(L / S) of its segment's, and one
// for each level of the tree; only products can fall below the least normal number, and then they
// are off by h. Each operation after that adds u times its result, those that multiply h as well.
// Where every partial sum is representable, acc is exact and y has only the roundings after it.
#include <gtest/gtest.h>

#include <sstream>

#include "ops/linear/testing.hpp"
#include "ops/linear/testing_targets.hpp"
#include "testing/environment.hpp"
#include "testing/exact.hpp"

namespace octavo::testing {
namespace {

// ---- The numbers --------------------------------------------------------------------------------

TEST(Exact, IsAsIntegersAre) {
  Random random(1);
  const auto any = [&] {
    const auto bits = static_cast<std::int64_t>(random.next());
    return bits >> random.below(64);
  };
  // (128 bits as two halves, to compare with.)
  const auto wide = [](__int128 v) {
    const auto low = static_cast<std::int64_t>(v & 0xFFFFFFFF);
    const auto middle = static_cast<std::int64_t>(v >> 32 & 0xFFFFFFFF);
    return Exact(static_cast<std::int64_t>(v >> 64)) * Exact::power(64) +
           Exact(middle) * Exact::power(32) + Exact(low);
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::int64_t a = any();
    const std::int64_t b = any();
    ASSERT_TRUE(Exact(a) + Exact(b) == wide(static_cast<__int128>(a) + b)) << a << " " << b;
    ASSERT_TRUE(Exact(a) - Exact(b) == wide(static_cast<__int128>(a) - b)) << a << " " << b;
    ASSERT_TRUE(Exact(a) * Exact(b) == wide(static_cast<__int128>(a) * b)) << a << " " << b;
    ASSERT_EQ(Exact(a) < Exact(b), a < b);
    ASSERT_EQ(Exact(a).rounded(DType::f32), static_cast<double>(static_cast<float>(a))) << a;
    ASSERT_EQ(Exact(a).rounded(DType::f64), static_cast<double>(a)) << a;
  }
}

TEST(Exact, IsAsFloatsAre) {
  Random random(2);
  for (int i = 0; i < 20'000; ++i) {
    const double a = decode(DType::f32, random.next() & 0xFFFFFFFFU);
    const double b = decode(DType::f32, random.next() & 0xFFFFFFFFU);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    ASSERT_EQ((Exact(a) * Exact(b)).rounded(DType::f64), a * b);  // exact in f64
    ASSERT_EQ((Exact(a) * Exact(b)).rounded(DType::f32),
              static_cast<double>(static_cast<float>(a) * static_cast<float>(b)));
    ASSERT_EQ((Exact(a) + Exact(b)).rounded(DType::f32),
              static_cast<double>(static_cast<float>(a) + static_cast<float>(b)));
    ASSERT_EQ(Exact(a).rounded(DType::bf16), decode(DType::bf16, encode(DType::bf16, a)));
    ASSERT_EQ(Exact(a).rounded(DType::f16), decode(DType::f16, encode(DType::f16, a)));
  }
}

// ---- The layers ---------------------------------------------------------------------------------

/// What is in the scales.
enum class Scales { tame, powers_of_two, extreme };

double scale_of(Scales style, Random& random) {
  const double sign = random.below(2) != 0 ? -1 : 1;
  switch (style) {
    case Scales::tame:
      return tame(random, 0.125);
    case Scales::powers_of_two:
      return std::ldexp(sign, -static_cast<int>(random.below(4)));
    case Scales::extreme:
      break;
  }
  constexpr std::array<double, 9> few{0.0,      -0.0,    0x1p-149,  0x1.8p-140, 0x1.FFFFFCp-127,
                                      0x1p-126, 0x1p-90, 0x1.5p+60, 0x1.3p+90};
  return sign * few[random.below(few.size())];
}

/// A case whose activations are known integers, whatever the plan does to find them.
struct Known {
  LinearData d;
  std::vector<std::vector<std::int64_t>> activations;  // less their zero points
  std::vector<double> scales;
};

// Rows of floats that quantize to themselves times a power of two: the ends of the range are there.
void fill_dynamic_row(Known& k, std::int64_t row, Random& random) {
  LinearCase& c = k.d.c;
  const int exponent = static_cast<int>(random.below(9)) - 4;
  const bool symmetric = c.mode == RangeMode::symmetric;
  const std::int64_t most = c.quantized == DType::s16 ? 32639 : 127;
  const auto zero = static_cast<std::int64_t>(symmetric ? 0 : random.below(256));
  const std::int64_t least = symmetric ? -most : -zero;
  const std::int64_t greatest = symmetric ? most : 255 - zero;
  k.scales.push_back(std::ldexp(1.0, exponent));
  for (std::int64_t i = 0; i < c.k; ++i) {
    auto& value = k.activations[static_cast<std::size_t>(row)].emplace_back();
    const std::uint64_t end = c.extreme ? random.below(2) : random.below(8);
    const auto values = static_cast<std::uint64_t>(greatest - least + 1);
    if (i == 0 || (i > 1 && end == 0)) {
      value = greatest;
    } else if (i == 1 || end == 1) {
      value = least;
    } else {
      value = least + static_cast<std::int64_t>(random.below(values));
    }
    k.d.input.set(row, i, encode(c.activation, std::ldexp(static_cast<double>(value), exponent)));
  }
}

Known make_known(const LinearCase& c, Scales style) {
  Known k{make_linear(c), {}, {}};
  LinearData& d = k.d;
  Random random(c.seed + 1000);
  const auto fill = [&](Matrix& m, auto value) {
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t i = 0; i < m.columns; ++i) {
        std::uint64_t bits = encode(m.type, value());
        if (!std::isfinite(decode(m.type, bits))) bits = encode(m.type, 1);
        m.set(r, i, bits);
      }
  };
  fill(d.weight_scales, [&] { return scale_of(style, random); });
  fill(d.activation_scales, [&] { return scale_of(style, random); });
  if (c.kind == LinearKind::smoothquant) d.act_scale = scale_of(style, random);
  if (c.kind == LinearKind::floats) {
    // Integers for sums that are exact; else all sizes that do not overflow too often.
    const auto any = [&] {
      if (style == Scales::powers_of_two) return static_cast<double>(random.below(33)) - 16;
      if (style == Scales::tame) return tame(random, 1) * (1 + tame(random, 0x1p-11));
      return std::ldexp(tame(random, 1), static_cast<int>(random.below(170)) - 120);
    };
    fill(d.input, any);
    fill(d.weight, any);
    return k;
  }
  k.activations.resize(static_cast<std::size_t>(c.m));
  for (std::int64_t r = 0; r < c.m; ++r) {
    if (c.kind == LinearKind::dynamic) {
      fill_dynamic_row(k, r, random);
      continue;
    }
    const std::int64_t at = c.one_activation_scale ? 0 : r;
    const bool matmul = c.kind == LinearKind::matmul;
    k.scales.push_back(matmul ? decode(d.activation_scales.type, d.activation_scales.get(0, at))
                              : d.act_scale);
    const std::int64_t zero = !c.activation_zero_points ? 0
                              : matmul ? d.activation_zero_points[static_cast<std::size_t>(at)]
                                       : d.act_zero_point;
    for (std::int64_t i = 0; i < c.k; ++i)
      k.activations[static_cast<std::size_t>(r)].push_back(d.input.integer(r, i) - zero);
  }
  return k;
}

/// A number that is known up to an error.
struct Near {
  Exact value;
  Exact error;
};

/// How many cells were found right, and how many of them to the last bit.
struct Found {
  std::int64_t near = 0;
  std::int64_t exact = 0;
};

class Rational {
 public:
  explicit Rational(const Known& known)
      : known_(known),
        compute_(linear_compute(c_)),
        bits_(compute_ == DType::f64 ? 53 : 24) {}

  /// Empty if this cell of an output is right, or if nothing is promised of it.
  [[nodiscard]] std::string check(const Matrix& out, std::int64_t m, std::int64_t n, Found& found) {
    overflows_ = false;
    exact_ = true;
    Near y = c_.kind == LinearKind::floats ? of_floats(m, n)
             : c_.group == 0               ? of_channel(m, n)
                                           : of_groups(m, n);
    if (contains(c_.epilogue, Epilogue::residual)) {
      exact_ = false;
      y.value = y.value + Exact(decode(d_.residual.type, d_.residual.get(m, n)));
      y = rounded(y, false);
    }
    if (contains(c_.epilogue, Epilogue::relu) && y.value < Exact()) y.value = Exact();
    if (overflows_) return {};
    const double got = decode(c_.output, out.get(m, n));
    const auto text = [&](const char* what) {
      std::ostringstream all;
      all << std::hexfloat << c_.text() << " at [" << m << ", " << n << "]: got " << got
          << ", expected " << what << y.value.rounded(DType::f64);
      return all.str();
    };
    if (c_.output == compute_) {
      if (exact_ && got != y.value.rounded(compute_)) return text("exactly ");
      if (exact_) ++found.exact;
    } else {
      const FloatFormat f = format_of(c_.output);
      const Exact most = y.value.magnitude() + y.error;
      if (Exact::power(f.bias()) < most) return {};
      y.error = y.error + most * Exact::power(-f.significand - 1) +
                Exact::power(-f.bias() - f.significand);
    }
    ++found.near;
    if (!std::isfinite(got)) return text("a finite number about ");
    return y.error < (Exact(got) - y.value).magnitude() ? text("about ") : std::string();
  }

 private:
  [[nodiscard]] Exact in_compute(double value) const {
    return Exact(compute_ == DType::f64 ? value : static_cast<double>(static_cast<float>(value)));
  }
  [[nodiscard]] Exact parameter(const Matrix& m, std::int64_t i) const {
    return in_compute(decode(m.type, m.get(0, i)));
  }
  [[nodiscard]] Exact u() const { return Exact::power(-bits_); }
  [[nodiscard]] Exact h() const { return Exact::power(compute_ == DType::f64 ? -1075 : -150); }
  [[nodiscard]] Exact large() const { return Exact::power(compute_ == DType::f64 ? 1022 : 126); }

  /// What comes out if `y` is rounded once more.
  Near rounded(const Near& y, bool multiplies) {
    const Exact most = y.value.magnitude() + y.error;
    if (large() < most) overflows_ = true;
    return {y.value, y.error + most * u() + (multiplies ? h() : Exact())};
  }

  /// The sum of floats; each term has so many roundings of its own.
  Near sum(const std::vector<Exact>& terms, int roundings) {
    Near acc;
    Exact all;
    int lowest = 5000;
    for (const Exact& t : terms) {
      if (t.is_zero()) continue;
      acc.value = acc.value + t;
      all = all + t.magnitude();
      lowest = std::min(lowest, t.lowest());
    }
    if (all.is_zero()) return acc;
    if (large() < all) overflows_ = true;
    // All partial sums are multiples of the lowest bit, and have no more bits than fit.
    exact_ = !(Exact::power(lowest + bits_) < all) && lowest >= (bits_ == 53 ? -1074 : -149);
    if (exact_) return acc;
    const auto length = static_cast<std::int64_t>(terms.size());
    int levels = 0;
    while (levels < 3 && c_.k >> (levels + 1) >= 512) ++levels;
    const std::int64_t n = ((length + (1 << levels) - 1) >> levels) + levels + roundings;
    EXPECT_LE(n, 1 << 13);  // up to which g(n) is less than n * u * (1 + 2^-10)
    acc.error = Exact(n) * u() * (one + Exact::power(-10)) * all + Exact(2 * length) * h();
    return acc;
  }

  Near with_bias(Near y, std::int64_t n, bool multiplied) {
    const bool bias = contains(c_.epilogue, Epilogue::bias);
    if (bias) y.value = y.value + parameter(d_.bias, n);
    return bias || multiplied ? rounded(y, multiplied) : y;
  }

  [[nodiscard]] std::int64_t weight(std::int64_t n, std::int64_t k) const {
    if (!c_.weight_zero_points) return d_.weight.integer(n, k);
    const std::int64_t at = c_.group != 0         ? n * c_.groups() + k / c_.group
                            : c_.one_weight_scale ? 0
                                                  : n;
    return d_.weight.integer(n, k) - d_.weight_zero_points[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] Exact products(std::int64_t m, std::int64_t n, std::int64_t g) const {
    const std::int64_t length = c_.group == 0 ? c_.k : c_.group;
    std::int64_t d = 0;
    for (std::int64_t k = g * length; k < (g + 1) * length; ++k)
      d += known_.activations[static_cast<std::size_t>(m)][static_cast<std::size_t>(k)] *
           weight(n, k);
    return Exact(d);
  }

  Near of_groups(std::int64_t m, std::int64_t n) {
    std::vector<Exact> terms;
    for (std::int64_t g = 0; g < c_.groups(); ++g)
      terms.push_back(products(m, n, g) * parameter(d_.weight_scales, n * c_.groups() + g));
    const Near acc = sum(terms, 1);
    const Exact scale = in_compute(known_.scales[static_cast<std::size_t>(m)]);
    return with_bias({acc.value * scale, acc.error * scale.magnitude()}, n, true);
  }
  Near of_floats(std::int64_t m, std::int64_t n) {
    std::vector<Exact> terms;
    for (std::int64_t k = 0; k < c_.k; ++k)
      terms.push_back(Exact(decode(d_.input.type, d_.input.get(m, k))) *
                      Exact(decode(d_.weight.type, d_.weight.get(n, k))));
    return with_bias(sum(terms, 0), n, false);
  }
  // C(acc) * (sa * sw): each of the two factors is rounded, and then the product.
  Near of_channel(std::int64_t m, std::int64_t n) {
    const Exact acc = products(m, n, 0);
    const Exact scale = in_compute(known_.scales[static_cast<std::size_t>(m)]) *
                        parameter(d_.weight_scales, c_.one_weight_scale ? 0 : n);
    const Exact y = acc * scale;
    if (large() < scale.magnitude()) {
      overflows_ = true;
      return {};
    }
    exact_ = Exact(acc.rounded(compute_)) == acc && Exact(scale.rounded(compute_)) == scale;
    if (exact_) return with_bias({y, {}}, n, true);
    const Exact error =
        y.magnitude() * u() * (one + one + one) + acc.magnitude() * h() * (one + one);
    return with_bias({y, error}, n, true);
  }

  const Exact one{std::int64_t{1}};
  const Known& known_;
  const LinearData& d_ = known_.d;
  const LinearCase& c_ = d_.c;
  const DType compute_;
  const int bits_;
  bool overflows_ = false;  // perhaps; then nothing is promised
  bool exact_ = true;       // but for the last rounding
};

/// Every target; where one has no products of its own, those of the next below run.
class RationalTarget : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this CPU lacks " << name(GetParam());
  }
  [[nodiscard]] Stream stream() const { return Stream::cpu({.threads = 1, .cap = GetParam()}); }

  /// Runs a case and looks at some of its cells.
  void check(const LinearCase& c, Scales style) {
    const Known known = make_known(c, style);
    Matrix out;
    ASSERT_EQ(run(stream(), known.d, out), "") << c.text();
    Random random(c.seed);
    Rational rational(known);
    for (int i = 0; i < 8; ++i) {
      const auto m = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(c.m)));
      const auto n = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(c.n)));
      ASSERT_EQ(rational.check(out, m, n, found_), "");
    }
    cells_ += 8;
  }
  Found found_;
  std::int64_t cells_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, RationalTarget, ::testing::ValuesIn(machine_targets),
                         [](const auto& info) { return std::string(name(info.param)); });

constexpr std::array weights{DType::s4, DType::u4, DType::s8, DType::u8};
constexpr std::array styles{Scales::tame, Scales::powers_of_two, Scales::extreme};

TEST_P(RationalTarget, SumsOfIntegersAreAsNearAsPromised) {
  constexpr std::array outputs{DType::f32, DType::f32, DType::f64, DType::f16, DType::bf16};
  constexpr std::array<std::array<std::int64_t, 4>, 8> shapes{{{1, 5, 8, 4},
                                                               {3, 33, 96, 32},
                                                               {1, 40, 77, 0},
                                                               {7, 18, 130, 0},
                                                               {2, 3, 1024, 4},
                                                               {1, 34, 1536, 96},
                                                               {2, 20, 2080, 32},
                                                               {1, 17, 4224, 64}}};
  Random random(3);
  for (std::uint64_t i = 0; i < (slow_machine() ? 60U : 900U); ++i) {
    LinearCase c;
    const auto& shape = shapes[random.below(shapes.size())];
    c.m = shape[0];
    c.n = shape[1];
    c.k = shape[2];
    c.group = shape[3];
    c.weight = weights[i % 4];
    c.output = outputs[random.below(outputs.size())];
    c.kind = i / 4 % 2 == 0   ? LinearKind::dynamic
             : i / 8 % 2 == 0 ? LinearKind::matmul
                              : LinearKind::smoothquant;
    if (c.kind == LinearKind::dynamic) {
      c.activation = random.below(3) == 0 ? DType::f64 : DType::f32;
      if (random.below(3) == 0) {
        c.mode = RangeMode::asymmetric;
      } else if (random.below(3) != 0) {
        c.quantized = DType::s16;
      }
    } else {
      c.activation = random.below(2) != 0 ? DType::u8 : DType::s8;
      c.activation_zero_points = random.below(2) != 0;
    }
    c.weight_zero_points = random.below(2) != 0;
    c.packed = random.below(2) != 0;
    c.one_activation_scale = random.below(4) == 0;
    c.one_weight_scale = random.below(4) == 0;
    c.parameter = all_floats[random.below(all_floats.size())];
    c.extreme = random.below(5) == 0;
    c.epilogue = static_cast<Epilogue>(random.below(8));
    c.seed = i + 1;
    check(c, styles[random.below(styles.size())]);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(found_.near, cells_ * 7 / 10);
  EXPECT_GT(found_.exact, cells_ / 8);
}

TEST_P(RationalTarget, SumsOfFloatsAreAsNearAsPromised) {
  constexpr std::array types{DType::f32, DType::f16, DType::bf16};
  constexpr std::array outputs{DType::f32, DType::f32, DType::f16, DType::bf16};
  constexpr std::array<std::int64_t, 8> lengths{1, 7, 64, 511, 1023, 1025, 2050, 4099};
  Random random(4);
  for (std::uint64_t i = 0; i < (slow_machine() ? 20U : 240U); ++i) {
    LinearCase c;
    c.kind = LinearKind::floats;
    c.m = 1 + static_cast<std::int64_t>(random.below(5));
    c.n = 1 + static_cast<std::int64_t>(random.below(40));
    c.k = lengths[i % lengths.size()];
    c.activation = types[random.below(3)];
    c.weight = types[random.below(3)];
    c.output = outputs[random.below(outputs.size())];
    c.packed = random.below(2) != 0;
    c.epilogue = static_cast<Epilogue>(random.below(8));
    c.parameter = all_floats[random.below(all_floats.size())];
    c.seed = i + 1;
    check(c, styles[random.below(styles.size())]);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(found_.near, cells_ * 7 / 10);
  EXPECT_GT(found_.exact, cells_ / 20);
}

// All activations and all weights of a group at one end of their range: what the sum is needs no
// loop, where it just fits 32 bits, where it does not, and beyond.
TEST_P(RationalTarget, SumsOfEqualProductsAreExact) {
  const auto check = [&](DType weight, std::int64_t w, bool zeros, std::int32_t zero, bool sixteen,
                         std::int64_t a, std::int64_t group, std::int64_t m, DType output) {
    LinearCase c;
    c.m = m;
    c.n = 3;
    c.group = group;
    c.k = 2 * group;
    c.weight = weight;
    c.weight_zero_points = zeros;
    c.packed = true;
    c.output = output;
    c.parameter = DType::f32;
    if (sixteen) {
      c.kind = LinearKind::dynamic;
      c.activation = DType::f32;
      c.quantized = DType::s16;
    }
    LinearData d = make_linear(c);
    for (std::int64_t k = 0; k < c.k; ++k) {
      for (std::int64_t r = 0; r < m; ++r)
        d.input.set(
            r, k,
            sixteen ? encode(DType::f32, static_cast<double>(a)) : static_cast<std::uint64_t>(a));
      for (std::int64_t n = 0; n < c.n; ++n) d.weight.set(n, k, static_cast<std::uint64_t>(w));
    }
    if (!sixteen)
      for (std::int64_t r = 0; r < m; ++r) d.activation_scales.set(0, r, encode(DType::f32, 1));
    // The first group alone, the second alone, the one less the other.
    constexpr std::array<double, 6> scales{1, 0, 0, 1, 1, -1};
    for (std::int64_t i = 0; i < 6; ++i)
      d.weight_scales.set(0, i, encode(DType::f32, scales[static_cast<std::size_t>(i)]));
    for (std::int32_t& z : d.weight_zero_points) z = zero;
    Matrix out;
    ASSERT_EQ(run(stream(), d, out), "") << c.text();
    const Exact sum = Exact(group) * Exact(a) * Exact(w - zero);
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t n = 0; n < 3; ++n)
        ASSERT_EQ(decode(output, out.get(r, n)), n == 2 ? 0 : sum.rounded(output))
            << c.text() << " " << a << " times " << w << ", row " << r << ", column " << n;
  };
  for (const DType weight : weights)
    for (const bool with_zeros : {false, true})
      for (const bool sixteen : {false, true}) {
        const IntRange range = storage_range(weight);
        const std::int64_t most =
            with_zeros ? range.max - range.min : std::max(range.max, -range.min);
        const std::int64_t greatest = sixteen ? 32639 : 128;
        const std::int64_t fits = INT32_MAX / (most * greatest) / 4 * 4;
        for (const std::int64_t group : {std::int64_t{32}, fits, fits + 4}) {
          if (group > (slow_machine() ? 1000 : 150'000)) continue;
          for (const std::int64_t w : {range.min, range.max})
            for (const std::int64_t a :
                 {sixteen ? -greatest : -128, sixteen ? greatest : std::int64_t{127}}) {
              const std::int32_t zero = !with_zeros ? 0 : w == range.min ? range.max : range.min;
              for (const std::int64_t m : {1, 3})
                check(weight, w, with_zeros, zero, sixteen, a, group, m, DType::f32);
              check(weight, w, with_zeros, zero, sixteen, a, group, 1, DType::f64);
              if (HasFatalFailure()) return;
            }
        }
      }
}

// What overflows on the way stays infinite, though the exact result would not be: the order is part
// of the result. What is only near to it is not touched.
TEST_P(RationalTarget, OverflowOnTheWay) {
  LinearCase c;
  c.n = 3;
  c.k = 8;
  c.group = 4;
  for (const DType weight : weights)
    for (c.packed = false;; c.packed = true) {
      c.weight = weight;
      LinearData d = make_linear(c);
      for (std::int64_t k = 0; k < c.k; ++k) {
        d.input.set(0, k, k % 4 == 0 ? 1 : 0);
        for (std::int64_t n = 0; n < c.n; ++n) d.weight.set(n, k, n == 2 ? 2 : 1);
      }
      d.activation_scales.set(0, 0, encode(DType::f32, 0x1p-10));
      constexpr double most = 0x1.FFFFFEp127;
      constexpr std::array<double, 6> scales{most, -most, most, 0x1p102, most, -most};
      for (std::int64_t i = 0; i < 6; ++i)
        d.weight_scales.set(0, i, encode(DType::f32, scales[static_cast<std::size_t>(i)]));
      Matrix out;
      ASSERT_EQ(run(stream(), d, out), "");
      EXPECT_EQ(decode(DType::f32, out.get(0, 0)), 0);
      EXPECT_EQ(decode(DType::f32, out.get(0, 1)), most * 0x1p-10);  // less than half a step more
      // 2 * most is rounded with what follows: inf, and then inf - 2 * most.
      EXPECT_EQ(decode(DType::f32, out.get(0, 2)), std::numeric_limits<double>::infinity());
      if (c.packed) break;
    }
}

}  // namespace
}  // namespace octavo::testing
