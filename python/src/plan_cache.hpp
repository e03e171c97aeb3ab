// Plans that were selected before. One is found by its whole problem, so that a problem with a new
// field needs nothing here; the hash may know fewer fields.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/stream.hpp"
#include "octavo/dynamic_range_quantize.hpp"
#include "octavo/elementwise.hpp"
#include "octavo/embedding.hpp"
#include "octavo/linear.hpp"
#include "octavo/stream.hpp"

namespace octavo::python {

class Hash {
 public:
  std::size_t operator()(const detail::ElementwiseProblem& p) const {
    return mixed(mixed(static_cast<std::uint64_t>(p.op), static_cast<std::uint64_t>(p.layout)),
                 p.shape);
  }
  std::size_t operator()(const DynamicRangeQuantizeDescriptor& d) const {
    return mixed(static_cast<std::uint64_t>(d.scope), d.shape);
  }
  std::size_t operator()(const EmbeddingDescriptor& d) const {
    return mixed(static_cast<std::uint64_t>(d.table) | static_cast<std::uint64_t>(d.output) << 8U,
                 Shape{d.m, d.rows, d.columns, d.group_size});
  }
  std::size_t operator()(const detail::LinearProblem& p) const {
    const auto types = static_cast<std::uint64_t>(p.op) |
                       static_cast<std::uint64_t>(p.weight) << 8U |
                       static_cast<std::uint64_t>(p.weight_scale) << 16U |
                       static_cast<std::uint64_t>(p.quantized) << 24U;
    return mixed(mixed(types, std::bit_cast<std::uint64_t>(p.act_scale.value)),
                 Shape{p.m, p.n, p.k, p.group});
  }

 private:
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;
    hash = (hash ^ value) * odd;
    return hash ^ (hash >> 32U);
  }
  static std::uint64_t mixed(std::uint64_t hash, const Shape& shape) {
    for (int i = 0; i < shape.rank(); ++i) hash = mixed(hash, static_cast<std::uint64_t>(shape[i]));
    return hash;
  }
};

/// What a selection depends on beside its problem.
struct Place {
  explicit Place(const Stream& stream)
      : backend(stream.backend()),
        device(stream.impl().device),
        threads(stream.options().threads),
        cap(stream.options().cap) {
    if (const char* target = std::getenv("OCTAVO_TARGET")) environment = target;
  }
  Backend backend;
  int device;
  int threads;
  std::optional<Target> cap;
  std::string environment;  // (no target has a name that would be allocated)

  friend bool operator==(const Place&, const Place&) = default;
};

/// Used with the GIL held.
template <class Problem, class Plan>
class PlanCache {
 public:
  template <class Make>
  std::shared_ptr<const Plan> get(const Stream& stream, const Problem& problem, Make&& make) {
    Key key{problem, Place(stream)};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    constexpr std::size_t most = 4096;
    if (plans_.size() >= most) plans_.clear();
    auto plan = std::make_shared<const Plan>(make());
    plans_.emplace(std::move(key), plan);
    return plan;
  }

 private:
  struct Key {
    Problem problem;
    Place place;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const { return Hash()(key.problem); }
  };
  std::unordered_map<Key, std::shared_ptr<const Plan>, HashKey> plans_;
};

}  // namespace octavo::python
