// The one place where an implementation is chosen, for every operation.
//
// An operation has a list of implementations, best first and the reference last. Each says of a
// problem whether it covers it, and if not, why. A plan holds the one that was chosen, so that a
// run looks nothing up.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/target.hpp"
#include "octavo/result.hpp"
#include "octavo/stream.hpp"

namespace octavo::detail {

/// Where an implementation runs: on the CPU with a target's instructions, or on another backend.
struct Place {
  Backend backend = Backend::cpu;
  Target target = Target::scalar;  // of cpu
};

/// "avx2", or "cuda".
[[nodiscard]] std::string_view name(const Place& place) noexcept;

/// What `find` says: an implementation (a pointer, or a struct that knows whether it is one), or
/// why there is none.
template <class Impl>
struct Found {
  Impl impl{};
  std::string why_not = "not implemented";
};

template <class Key, class Impl>
struct Entry {
  Place at;
  /// Never asked where `at` is not allowed.
  Found<Impl> (*find)(const Key& key, const Allowed& allowed) = nullptr;
};

template <class Impl>
struct Chosen {
  Place at;
  Impl impl{};
};

/// What was chosen; or nothing, and why: "avx2: ...; scalar: ...".
template <class Impl>
struct Choice {
  std::optional<Chosen<Impl>> chosen;
  std::string reasons;  // of each candidate before it
};

/// The first entry that is allowed, that covers the problem and that the system lets run. For a
/// choice within another: it says why not in its own words.
template <class Key, class Impl>
Choice<Impl> choose_first(const Allowed& allowed, const Key& key,
                          std::initializer_list<std::span<const Entry<Key, Impl>>> lists) {
  Choice<Impl> choice;
  std::string& reasons = choice.reasons;
  for (const auto& list : lists)
    for (const Entry<Key, Impl>& entry : list) {
      if (!allowed.has(entry.at.backend, entry.at.target)) continue;
      Found<Impl> found = entry.find(key, allowed);
      const bool covered = static_cast<bool>(found.impl);
      if (covered && may_run(entry.at.target)) {
        choice.chosen = Chosen<Impl>{entry.at, std::move(found.impl)};
        return choice;
      }
      if (!reasons.empty()) reasons += "; ";
      reasons += std::string(name(entry.at)) + ": " +
                 (covered ? "refused by the system" : found.why_not.c_str());
    }
  return choice;
}

/// The refusal of a problem that nothing allowed covers; `reasons` are those of each candidate.
Error no_implementation(const Allowed& allowed, const std::string& reasons);

/// The same for a plan: a choice, or the refusal of its `select`.
template <class Key, class Impl>
Result<Chosen<Impl>> choose(const Allowed& allowed, const Key& key,
                            std::initializer_list<std::span<const Entry<Key, Impl>>> lists) {
  Choice<Impl> choice = choose_first(allowed, key, lists);
  if (!choice.chosen) return no_implementation(allowed, choice.reasons);
  return *std::move(choice.chosen);
}

}  // namespace octavo::detail
