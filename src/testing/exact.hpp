// Numbers that are integers times powers of two, of any size: sums and products of floats without
// an error, to measure results of floats by.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "testing/floats.hpp"

namespace octavo::testing {

class Exact {
 public:
  Exact() = default;
  explicit Exact(std::int64_t value) : negative_(value < 0) {
    auto left = static_cast<std::uint64_t>(value);
    if (negative_) left = ~left + 1;
    for (; left != 0; left >>= 32U) digits_.push_back(static_cast<std::uint32_t>(left));
  }
  /// A finite number.
  explicit Exact(double value) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    *this = Exact(static_cast<std::int64_t>(std::ldexp(fraction, 53)));
    exponent_ = exponent - 53;
  }
  static Exact power(int exponent) {
    Exact one(std::int64_t{1});
    one.exponent_ = exponent;
    return one;
  }

  [[nodiscard]] bool is_zero() const { return digits_.empty(); }
  [[nodiscard]] Exact operator-() const {
    Exact x = *this;
    x.negative_ = !negative_ && !is_zero();
    return x;
  }
  [[nodiscard]] Exact magnitude() const { return negative_ ? -*this : *this; }

  friend Exact operator+(const Exact& a, const Exact& b) {
    if (a.is_zero()) return b;
    if (b.is_zero()) return a;
    Exact sum;
    sum.exponent_ = std::min(a.exponent_, b.exponent_);
    const Digits x = shifted(a.digits_, a.exponent_ - sum.exponent_);
    const Digits y = shifted(b.digits_, b.exponent_ - sum.exponent_);
    if (a.negative_ == b.negative_) {
      sum.negative_ = a.negative_;
      sum.digits_ = added(x, y);
    } else {
      const bool less = is_less(x, y);
      sum.negative_ = less ? b.negative_ : a.negative_;
      sum.digits_ = less ? subtracted(y, x) : subtracted(x, y);
    }
    if (sum.is_zero()) sum = Exact();
    return sum;
  }
  friend Exact operator-(const Exact& a, const Exact& b) { return a + -b; }
  friend Exact operator*(const Exact& a, const Exact& b) {
    if (a.is_zero() || b.is_zero()) return {};
    Exact product;
    product.negative_ = a.negative_ != b.negative_;
    product.exponent_ = a.exponent_ + b.exponent_;
    product.digits_.assign(a.digits_.size() + b.digits_.size(), 0);
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j < b.digits_.size(); ++j) {
        carry += std::uint64_t{a.digits_[i]} * b.digits_[j] + product.digits_[i + j];
        product.digits_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32U;
      }
      product.digits_[i + b.digits_.size()] = static_cast<std::uint32_t>(carry);
    }
    trim(product.digits_);
    return product;
  }
  friend bool operator<(const Exact& a, const Exact& b) { return (a - b).negative_; }
  friend bool operator==(const Exact& a, const Exact& b) { return (a - b).is_zero(); }

  /// The exponents of the highest and of the lowest bit that is set; not of zero.
  [[nodiscard]] int highest() const { return exponent_ + width() - 1; }
  [[nodiscard]] int lowest() const {
    int at = 0;
    while (!bit(at)) ++at;
    return exponent_ + at;
  }

  /// Rounded once to a float type, to nearest even.
  [[nodiscard]] double rounded(DType type) const {
    if (is_zero()) return 0;
    const FloatFormat f = format_of(type);
    const int unit = std::max(highest() - f.significand, 1 - f.bias() - f.significand);
    std::int64_t units = 0;
    for (int i = highest(); i >= unit; --i) units = 2 * units + (bit(i - exponent_) ? 1 : 0);
    const Exact half = power(unit - 1);
    const Exact rest = magnitude() - Exact(units) * power(unit);
    if (half < rest || (half == rest && units % 2 != 0)) ++units;
    const double value = std::ldexp(static_cast<double>(units), unit);
    const double most = std::ldexp(2.0 - std::ldexp(1.0, -f.significand), f.bias());
    return std::copysign(value > most ? std::numeric_limits<double>::infinity() : value,
                         negative_ ? -1.0 : 1.0);
  }

 private:
  using Digits = std::vector<std::uint32_t>;

  static void trim(Digits& d) {
    while (!d.empty() && d.back() == 0) d.pop_back();
  }
  static Digits shifted(const Digits& d, int by) {
    Digits to(static_cast<std::size_t>(by / 32), 0);
    std::uint64_t carry = 0;
    for (const std::uint32_t digit : d) {
      carry |= std::uint64_t{digit} << (by % 32);
      to.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32U;
    }
    to.push_back(static_cast<std::uint32_t>(carry));
    trim(to);
    return to;
  }
  static std::uint32_t digit(const Digits& d, std::size_t i) { return i < d.size() ? d[i] : 0; }
  static bool is_less(const Digits& a, const Digits& b) {
    for (std::size_t i = std::max(a.size(), b.size()); i-- > 0;)
      if (digit(a, i) != digit(b, i)) return digit(a, i) < digit(b, i);
    return false;
  }
  static Digits added(const Digits& a, const Digits& b) {
    Digits to;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.size(), b.size()) || carry != 0; ++i) {
      carry += std::uint64_t{digit(a, i)} + digit(b, i);
      to.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32U;
    }
    return to;
  }
  static Digits subtracted(const Digits& a, const Digits& b) {  // b is not more than a
    Digits to;
    std::int64_t carry = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      carry += std::int64_t{a[i]} - digit(b, i);
      to.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    trim(to);
    return to;
  }
  [[nodiscard]] int width() const {
    return static_cast<int>(digits_.size()) * 32 - std::countl_zero(digits_.back());
  }
  [[nodiscard]] bool bit(int i) const {
    return i >= 0 && (digit(digits_, static_cast<std::size_t>(i / 32)) >> (i % 32) & 1U) != 0;
  }

  bool negative_ = false;
  Digits digits_;  // the lowest first; the highest is not 0
  int exponent_ = 0;
};

}  // namespace octavo::testing
