#include "core/target.hpp"

#include <fmt/core.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "core/check.hpp"
#include "core/choose.hpp"
#include "core/stream.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

namespace octavo {
namespace {

constexpr std::array<std::string_view, target_count> target_names = {
    "scalar", "avx2",    "avxvnni", "avx512", "avx512vnni", "amx",
    "neon",   "dotprod", "i8mm",    "sve",    "sm80"};

constexpr std::uint32_t bit(Target t) { return 1U << static_cast<unsigned>(t); }

#if defined(__x86_64__)
constexpr bool all(std::uint64_t value, std::initializer_list<int> bits) {
  for (const int b : bits)
    if (((value >> b) & 1U) == 0) return false;
  return true;
}

constexpr unsigned tile_data = 18;  // XFEATURE_XTILEDATA

// Whether the system would hand out tiles to a process that asks.
bool has_tiles() {
  constexpr long get_supported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  std::uint64_t supported = 0;
  return syscall(SYS_arch_prctl, get_supported, &supported) == 0 &&
         ((supported >> tile_data) & 1U) != 0;
}

bool ask_for_tiles() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, request_permission, long{tile_data}) == 0;
}

std::uint32_t detect() {
  struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
  };
  const auto leaf = [](unsigned number, unsigned sub) {
    Leaf l;
    __get_cpuid_count(number, sub, &l.a, &l.b, &l.c, &l.d);
    return l;
  };
  std::uint32_t found = bit(Target::scalar);
  const Leaf one = leaf(1, 0);
  if (!all(one.c, {12, 27, 28, 29})) return found;  // FMA, OSXSAVE, AVX, F16C
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const std::uint64_t state = (std::uint64_t{high} << 32U) | low;  // what the system saves
  const Leaf seven = leaf(7, 0);
  const Leaf seven1 = seven.a >= 1 ? leaf(7, 1) : Leaf{};
  if (!all(state, {1, 2}) || !all(seven.b, {3, 5, 8})) return found;  // BMI1, AVX2, BMI2
  found |= bit(Target::avx2);
  if (all(seven1.a, {4})) found |= bit(Target::avxvnni);
  if (!all(state, {5, 6, 7}) || !all(seven.b, {16, 17, 30, 31})) return found;  // F, DQ, BW, VL
  found |= bit(Target::avx512);
  if (!all(seven.c, {11})) return found;
  found |= bit(Target::avx512vnni);
  if (all(state, {17, 18}) && all(seven.d, {24, 25}) && has_tiles()) found |= bit(Target::amx);
  return found;
}
#else
std::uint32_t detect() {
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  std::uint32_t found = bit(Target::scalar);
  if ((caps >> 1U) & 1U) found |= bit(Target::neon);
  if ((caps >> 20U) & 1U) found |= bit(Target::dotprod);
  if ((caps2 >> 13U) & 1U) found |= bit(Target::i8mm);
  if ((caps >> 22U) & 1U) found |= bit(Target::sve);
  return found;
}
#endif

constinit detail::Pretence pretence;
constinit std::optional<bool> pretended_logic;
constinit std::atomic<bool> tiles_refused{false};

// Kept without a lock, as the initialiser of a static has one: a fork while it is held would leave
// a child that waits for ever. Found twice, it is the same. Tiles count until the system has
// refused them.
std::uint32_t detected() {
  static std::atomic<std::uint32_t> found{0};
  if (found == 0) found = detect() | pretence.targets;
  return tiles_refused ? found & ~bit(Target::amx) : found.load();
}

std::string list_available() {
  std::string list;
  for (const Target t : available_targets()) {
    if (!list.empty()) list += ", ";
    list += name(t);
  }
  return list;
}

}  // namespace

std::string_view name(Target target) noexcept {
  const auto i = static_cast<std::size_t>(target);
  return i < target_names.size() ? target_names[i] : "unknown";
}

std::optional<Target> parse_target(std::string_view wanted) noexcept {
  for (std::size_t i = 0; i < target_names.size(); ++i)
    if (target_names[i] == wanted) return static_cast<Target>(i);
  return std::nullopt;
}

bool at_or_below(Target a, Target b) noexcept {
  if (a == b) return true;
  if (a == Target::sm80 || b == Target::sm80) return false;  // (not a CPU's)
  if (a == Target::scalar) return true;
  if ((a >= Target::neon) != (b >= Target::neon)) return false;
  if (a == Target::avxvnni) return false;  // nothing above it needs it
  if (b == Target::avxvnni) return a == Target::avx2;
  return a < b;
}

std::vector<Target> available_targets() {
  std::vector<Target> targets;
  for (int i = 0; i < target_count; ++i)
    if (is_available(static_cast<Target>(i))) targets.push_back(static_cast<Target>(i));
  return targets;
}

bool is_available(Target target) noexcept { return (detected() & bit(target)) != 0; }

std::string_view name(Backend backend) noexcept {
  switch (backend) {
    case Backend::cpu:
      return "cpu";
    case Backend::cuda:
      return "cuda";
  }
  return backend == detail::test_backend ? "test" : "unknown";
}

namespace detail {

void pretend(const Pretence& made_up) { pretence = made_up; }

void pretend_logic_beside_products(std::optional<bool> answer) { pretended_logic = answer; }

bool has_logic_beside_products() {
  if (pretended_logic) return *pretended_logic;
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

bool may_run([[maybe_unused]] Target target) {
#if defined(__x86_64__)
  if (target == Target::amx) {
    static std::atomic<int> granted{-1};  // (as in detected)
    if (granted < 0) {
      const auto ask = pretence.ask_for_tiles != nullptr ? pretence.ask_for_tiles : ask_for_tiles;
      granted = ask() ? 1 : 0;
      tiles_refused = granted == 0;
    }
    return granted == 1;
  }
#endif
  return true;
}

std::string_view name(const Place& place) noexcept {
  return place.backend == Backend::cpu ? name(place.target) : name(place.backend);
}

Error no_implementation(const Allowed& allowed, const std::string& reasons) {
  return unsupported("backend",
                     fmt::format("expected an implementation on {}, got none{}{}",
                                 name(allowed.backend), reasons.empty() ? "" : ": ", reasons));
}

Error wrong_stream(const Stream& stream, Backend backend) {
  return unsupported("stream", fmt::format("expected a stream of {}, as the plan was made for, got "
                                           "one of {}",
                                           name(backend), name(stream.backend())));
}

Result<Allowed> allowed_places(const Stream& stream, const PlanPreference& preference) {
  if (stream.options().threads < 0)
    return invalid("threads",
                   fmt::format("expected 0 (all) or more, got {}", stream.options().threads));
  if (preference.backend && *preference.backend != stream.backend())
    return unsupported("backend", fmt::format("expected {}, the stream's, got {}",
                                              name(stream.backend()), name(*preference.backend)));
  if (stream.backend() != Backend::cpu) {
    if (preference.target)
      return unsupported("target", fmt::format("expected none on {} (targets are the CPU's), got "
                                               "{}",
                                               name(stream.backend()), name(*preference.target)));
    return Allowed{stream.backend(), 0, stream.threads(), stream.impl().device};
  }
  std::uint32_t allowed = detected();
  const auto apply = [&](const char* argument, Target cap) -> Status {
    if (static_cast<int>(cap) >= target_count || !is_available(cap))
      return Error(ErrorCode::unsupported, argument,
                   fmt::format("{}: expected a target that this CPU has ({}), got {}", argument,
                               list_available(), name(cap)));
    for (int i = 0; i < target_count; ++i)
      if (!at_or_below(static_cast<Target>(i), cap)) allowed &= ~(1U << i);
    return {};
  };
  if (stream.options().cap)
    if (Status s = apply("cap", *stream.options().cap); !s) return s.error();
  if (preference.target)
    if (Status s = apply("target", *preference.target); !s) return s.error();
  if (const char* wanted = std::getenv("OCTAVO_TARGET"); wanted != nullptr && *wanted != '\0') {
    const std::optional<Target> target = parse_target(wanted);
    if (!target)
      return Error(ErrorCode::unsupported, "OCTAVO_TARGET",
                   fmt::format("OCTAVO_TARGET: expected a target that this CPU has ({}), got '{}'",
                               list_available(), wanted));
    if (Status s = apply("OCTAVO_TARGET", *target); !s) return s.error();
  }
  return Allowed{Backend::cpu, allowed, stream.threads()};
}

}  // namespace detail
}  // namespace octavo
