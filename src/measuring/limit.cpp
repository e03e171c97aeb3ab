#include "measuring/limit.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "measuring/team.hpp"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measuring/limit.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef OCTAVO_MEASURING_LIMIT_SHARED
#define OCTAVO_MEASURING_LIMIT_SHARED
namespace octavo::measuring {
namespace {

enum class Stores { plain, streamed, streamed_prefetched };
constexpr std::array<const char*, 3> store_names{"plain", "nt", "nt+prefetch"};

// Which instance of the kernel: 2^ratio vectors are read for each that is written.
struct Pattern {
  int ratio = 0;
  bool second = false;
  bool only_reads = false;
  Stores stores = Stores::plain;
};
constexpr int largest_ratio = 4;
using Move = void (*)(const Traffic&);
using Read = void (*)(const std::byte* data, std::int64_t bytes);

constexpr std::int64_t line = 64;
constexpr std::int64_t reads(int ratio) { return ratio > 0 ? std::int64_t{1} << ratio : 1; }
constexpr std::int64_t writes(int ratio) { return reads(-ratio); }
// How often the body stands in the loop: at least four lines on the longer side.
constexpr std::int64_t unrolled(int ratio) {
  return std::max<std::int64_t>(1, 4 / std::max(reads(ratio), writes(ratio)));
}

}  // namespace
}  // namespace octavo::measuring
#endif

HWY_BEFORE_NAMESPACE();
namespace octavo::measuring {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::uint8_t>;
using Vector = hn::Vec<D>;

// Keeps a load that nothing uses.
HWY_INLINE void keep(const Vector& v) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  asm volatile("" : : "m"(v));
#elif HWY_ARCH_X86
  asm volatile("" : : "v"(v.raw));
#elif HWY_HAVE_SCALABLE
  asm volatile("" : : "w"(v));
#else
  asm volatile("" : : "w"(v.raw));
#endif
}

template <Stores stores>
HWY_INLINE Vector load(const std::uint8_t* p) {
  constexpr std::size_t ahead = 4096;  // to the second cache; the best of 1 to 128 KB on Zen 4
  if constexpr (stores == Stores::streamed_prefetched) __builtin_prefetch(p + ahead, 0, 2);
  return hn::Load(D(), p);
}

template <Stores stores>
HWY_INLINE void store(const Vector& v, std::uint8_t* p) {
  if constexpr (stores == Stores::plain) {
    hn::Store(v, D(), p);
  } else {
    hn::Stream(v, D(), p);
  }
}

template <int ratio, bool second, Stores stores>
HWY_ATTR void move(const Traffic& part) {
  constexpr std::size_t in_step = reads(ratio), out_step = writes(ratio), turn = unrolled(ratio);
  const std::size_t n = hn::Lanes(D());
  const auto* in = reinterpret_cast<const std::uint8_t*>(part.input);
  const auto* in2 = reinterpret_cast<const std::uint8_t*>(part.second);
  auto* out = reinterpret_cast<std::uint8_t*>(part.output);
  const auto* const end = out + part.output_bytes;
  while (out < end) {
    for (std::size_t u = 0; u < turn; ++u) {
      const Vector v = load<stores>(in);
      if constexpr (second) keep(load<stores>(in2 + u * n));
      for (std::size_t i = 1; i < in_step; ++i) keep(load<stores>(in + i * n));
      for (std::size_t i = 0; i < out_step; ++i) store<stores>(v, out + i * n);
      in += in_step * n;
      out += out_step * n;
    }
    if constexpr (second) in2 += turn * n;
  }
  if constexpr (stores != Stores::plain) hwy::FlushStream();
}

template <Stores stores>
HWY_ATTR void read(const Traffic& part) {
  const std::size_t n = hn::Lanes(D());
  const auto* in = reinterpret_cast<const std::uint8_t*>(part.input);
  const auto* const end = in + part.input_bytes;
  for (; in < end; in += 4 * n)
    for (std::size_t i = 0; i < 4; ++i) keep(load<stores>(in + i * n));
}

template <Stores stores, int... index>
Move choose(const Pattern& pattern, std::integer_sequence<int, index...>) {
  static constexpr Move table[] = {move<index - largest_ratio, false, stores>...};
  if (pattern.only_reads) return read<stores>;
  return pattern.second ? move<0, true, stores> : table[pattern.ratio + largest_ratio];
}

Move find_move(const Pattern& pattern) {
  constexpr std::make_integer_sequence<int, 2 * largest_ratio + 1> ratios;
  switch (pattern.stores) {
    case Stores::plain:
      return choose<Stores::plain>(pattern, ratios);
    case Stores::streamed:
      return choose<Stores::streamed>(pattern, ratios);
    default:
      return choose<Stores::streamed_prefetched>(pattern, ratios);
  }
}

// Reads whole turns of eight vectors; what remains is too little to matter.
template <std::int64_t ahead>
HWY_ATTR void read(const std::byte* data, std::int64_t bytes) {
  constexpr std::size_t turn = 8;
  const auto* p = reinterpret_cast<const std::uint8_t*>(data);
  const std::size_t n = hn::Lanes(D());
  const auto* const end = p + bytes - static_cast<std::int64_t>(turn * n);
  for (; p <= end; p += turn * n)
    for (std::size_t u = 0; u < turn; ++u) {
      if constexpr (ahead > 0) __builtin_prefetch(p + u * n + ahead, 0, 3);
      keep(hn::LoadU(D(), p + u * n));
    }
}

Read find_read(int index) {
  constexpr Read table[] = {read<0>, read<1024>, read<4096>, read<16384>};
  return table[index];
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace octavo::measuring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::measuring {
namespace {

HWY_EXPORT(find_move);
HWY_EXPORT(find_read);
HWY_EXPORT(target_name);

// In the order of find_read.
constexpr std::array<const char*, 4> read_names{"plain", "prefetch 1K", "prefetch 4K",
                                                "prefetch 16K"};

// Each thread's part of `traffic`: whole turns of the unrolled loop.
std::vector<Traffic> split(const Traffic& traffic, int ratio, int threads) {
  const std::int64_t in = line * reads(ratio) * unrolled(ratio);
  const std::int64_t out = line * writes(ratio) * unrolled(ratio);
  const std::int64_t turns = traffic.input_bytes / in;
  std::vector<Traffic> parts;
  for (int i = 0; i < threads; ++i) {
    const std::int64_t first = turns * i / threads;
    const std::int64_t count = turns * (i + 1) / threads - first;
    parts.push_back(
        {traffic.input + first * in, traffic.second ? traffic.second + first * in : nullptr,
         traffic.output ? traffic.output + first * out : nullptr, count * in, count * out});
  }
  return parts;
}

Competitor make_limit(const Traffic& traffic, const Pattern& pattern, int threads) {
  const Move move = HWY_DYNAMIC_DISPATCH(find_move)(pattern);
  Competitor c{.name = store_names[static_cast<std::size_t>(pattern.stores)], .kind = Kind::limit};
  if (threads == 1) {
    c.run = [=] { move(traffic); };
  } else {
    std::function<void(int)> work = [move, parts = split(traffic, pattern.ratio, threads)](int i) {
      move(parts[static_cast<std::size_t>(i)]);
    };
    c.run = [work = std::move(work), &team = Team::of(threads)] { team.run(work); };
  }
  return c;
}

}  // namespace

void add_limits(std::vector<Competitor>& field, const Traffic& traffic, int threads) {
  const auto in = static_cast<std::uint64_t>(traffic.input_bytes);
  const auto out = static_cast<std::uint64_t>(traffic.output_bytes);
  const bool only_reads = out == 0;
  const int ratio = only_reads ? 0 : std::countr_zero(in) - std::countr_zero(out);
  for (const auto stores : {Stores::plain, Stores::streamed, Stores::streamed_prefetched}) {
    if (only_reads && stores == Stores::streamed) continue;
    const Pattern pattern{ratio, traffic.second != nullptr, only_reads, stores};
    field.push_back(make_limit(traffic, pattern, threads));
    if (threads > 1 && traffic.bytes() < Team::worth_it)
      field.push_back(make_limit(traffic, pattern, 1));
  }
}

void add_reads(std::vector<Competitor>& field, const std::vector<const std::byte*>& copies,
               std::int64_t bytes, int threads) {
  for (std::size_t i = 0; i < read_names.size(); ++i) {
    const Read read = HWY_DYNAMIC_DISPATCH(find_read)(static_cast<int>(i));
    auto run = [=, &team = Team::of(threads), next = std::size_t{0}]() mutable {
      const std::byte* data = copies[next++ % copies.size()];
      team.run([=](int part) {
        const std::int64_t first = bytes * part / threads / line * line;
        const std::int64_t last = bytes * (part + 1) / threads / line * line;
        read(data + first, last - first);
      });
    };
    field.push_back({.name = read_names[i], .kind = Kind::limit, .run = std::move(run)});
  }
}

std::string limit_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace octavo::measuring
#endif
