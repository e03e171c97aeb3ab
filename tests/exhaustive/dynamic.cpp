#include "dynamic.hpp"

#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "ops/dynamic_range/testing_guard.hpp"
#include "sweep.hpp"

namespace octavo::exhaustive {
namespace {

using testing::DynamicCall;

constexpr std::array thread_counts{1, 2, 3, 7};
constexpr std::uint64_t give_up = 100;  // mismatches in a unit: the rest tells nothing new

/// A mode with types that go together.
struct Types {
  RangeMode mode;
  DType element;
  DType integer;

  [[nodiscard]] std::string name() const {
    return std::string(octavo::name(mode)) + '.' + std::string(octavo::name(element)) + '.' +
           std::string(octavo::name(integer));
  }
};

std::vector<Types> all_types() {
  std::vector<Types> types;
  for (const RangeMode mode : testing::all_modes)
    for (const DType element : testing::all_floats)
      for (const DType integer : testing::all_integers)
        if (testing::is_offered(mode, integer)) types.push_back({mode, element, integer});
  return types;
}

struct Scope {
  Layout layout;
  Shape shape;
  int axis = 0;
  std::int64_t group_size = 0;
};

/// Every small shape of every scope, and slices of every length to 1024.
std::vector<Scope> small_scopes() {
  std::vector<Scope> scopes;
  for (std::int64_t rows = 0; rows <= 9; ++rows)
    for (std::int64_t cols = 0; cols <= 65; ++cols)
      scopes.push_back({Layout::per_token, {rows, cols}});
  for (std::int64_t i = 0; i <= 3; ++i)
    for (std::int64_t j = 0; j <= 9; ++j)
      for (std::int64_t k = 0; k <= 33; ++k)
        for (int axis = 0; axis < 3; ++axis)
          scopes.push_back({Layout::per_channel, {i, j, k}, axis});
  for (std::int64_t rows = 0; rows <= 3; ++rows)
    for (std::int64_t groups = 0; groups <= 4; ++groups)
      for (std::int64_t size = 1; size <= 65; ++size)
        scopes.push_back({Layout::per_group, {rows, groups * size}, 0, size});
  for (std::int64_t n = 0; n <= 1024; ++n) {
    scopes.push_back({Layout::per_tensor, {n}});
    scopes.push_back({Layout::per_token, {2, n}});
    scopes.push_back({Layout::per_channel, {2, n}, 1});
    scopes.push_back({Layout::per_channel, {n, 2}, 0});
    scopes.push_back({Layout::per_channel, {2, n, 2}, 1});
    if (n > 0) scopes.push_back({Layout::per_group, {1, 2 * n}, 0, n});
  }
  return scopes;
}

/// Enough elements for several threads, which meet within rows, between them, and in slices that
/// they share.
std::vector<Scope> shared_scopes() {
  return {{Layout::per_tensor, {500'003}},           {Layout::per_token, {499, 1003}},
          {Layout::per_token, {2, 300'001}},         {Layout::per_token, {1, 1'100'003}},
          {Layout::per_channel, {3, 150'001}, 0},    {Layout::per_channel, {150'001, 3}, 1},
          {Layout::per_channel, {3, 150'001}, 1},    {Layout::per_channel, {7, 301, 211}, 1},
          {Layout::per_channel, {2, 17'001, 15}, 1}, {Layout::per_group, {61, 7680}, 0, 96},
          {Layout::per_group, {61, 7665}, 0, 15}};
}

/// The input with its first dimension innermost in memory: rows have to be gathered.
struct Transposed {
  explicit Transposed(const DynamicCall& c) {
    const Shape& shape = c.problem.shape;
    Shape strides = shape;
    std::int64_t stride = 1;
    for (int i = 0; i < shape.rank(); ++i) {
      strides[i] = stride;
      stride *= shape[i];
    }
    const int bytes = bits(c.problem.element) / 8;
    memory.resize(c.input.size());
    for (std::int64_t i = 0; i < stride; ++i) {
      std::int64_t rest = i;
      std::int64_t at = 0;
      for (int d = shape.rank() - 1; d >= 0; --d) {
        at += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      testing::store_bits(memory.data(), bytes, at, testing::load_bits(c.input.data(), bytes, i));
    }
    input = TensorRef(memory.data(), c.problem.element, shape, strides);
  }
  testing::Bytes memory;
  TensorRef input;
};

/// All targets and thread counts against the oracle; every third call is strided as well.
Outcome compare(const Types& types, const std::vector<Scope>& scopes) {
  std::vector<std::pair<Target, Stream>> streams;
  for (const Target target : own_targets())
    for (const int threads : thread_counts)
      streams.emplace_back(target, Stream::cpu({.threads = threads, .cap = target}));
  Outcome outcome;
  std::uint64_t seed = 0;
  for (const Scope& scope : scopes)
    for (const Profile profile : testing::all_profiles) {
      if (outcome.mismatches > give_up) return outcome;
      const testing::Kind kind{Op::quantize, scope.layout, types.element, types.integer, profile};
      const DynamicCall c = testing::make_dynamic(
          testing::problem_of(kind, scope.shape, scope.axis, scope.group_size), types.mode, ++seed);
      const testing::DynamicResult want = testing::expected(c);
      const auto check = [&](const TensorRef* strided) {
        for (const auto& [target, stream] : streams) {
          const std::string wrong = testing::difference(stream, c, want, strided);
          outcome.add(wrong.empty() ? 0 : 1,
                      [&, t = target] { return std::string(name(t)) + ' ' + wrong; });
        }
      };
      check(nullptr);
      if (seed % 3 != 0) continue;
      const Transposed transposed(c);
      check(&transposed.input);
    }
  return outcome;
}

Outcome guard(Target target, const Types& types) {
  testing::DynamicGuardPlan plan;
  plan.max_length = 1024;
  plan.offsets.resize(64);
  std::iota(plan.offsets.begin(), plan.offsets.end(), std::size_t{0});
  Outcome outcome;
  std::string wrong =
      testing::check_dynamic_guards(target, types.mode, types.element, types.integer, plan);
  outcome.add(wrong.empty() ? 0 : 1, [&] { return std::move(wrong); });
  return outcome;
}

}  // namespace

std::vector<Unit> dynamic_units() {
  std::vector<Unit> units;
  for (const Types& types : all_types()) {
    units.push_back(
        {"dynamic/small/" + types.name(), 3, [types] { return compare(types, small_scopes()); }});
    units.push_back({"dynamic/shared/" + types.name(), 1.5,
                     [types] { return compare(types, shared_scopes()); }});
    for (const Target target : own_targets())
      units.push_back({"dynamic/guard/" + std::string(name(target)) + '/' + types.name(), 4,
                       [target, types] { return guard(target, types); }});
  }
  return units;
}

}  // namespace octavo::exhaustive
