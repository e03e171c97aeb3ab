#include "harness.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int early_turns = 2;  // after these, slow ones
constexpr int seldom = 4;       // ... take part in every fourth only
constexpr int least_turns = 7;  // however long they take
constexpr int least_quick_turns = 3;
constexpr double too_slow = 3.0;       // times ours
constexpr double out_of_cache = 2e-3;  // calls longer than this find no cache warm anyway

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() {
  std::timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Thread pools spin for a while when their work is done, some for 20 ms, and would take a core from
// whoever comes next. Waits until no thread of the process is busy.
void wait_until_quiet() {
  constexpr int at_most = 1000;
  constexpr double slice = 300e-6;
  for (int i = 0; i < at_most; ++i) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(microseconds(300));
    if (cpu_seconds() - before < slice / 4) return;
  }
}

double time_calls(const Competitor& c, std::int64_t calls) {
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < calls; ++i) c.run();
  return since(start) / static_cast<double>(calls);
}

// How many calls are timed together, so that neither the clock nor waking the threads counts. The
// first calls count too.
std::int64_t first_calls(Competitor& c, double slice) {
  std::int64_t calls = 1;
  c.seconds = time_calls(c, 1);
  while (c.seconds * static_cast<double>(calls) < slice) {
    calls *= 2;
    c.seconds = std::min(c.seconds, time_calls(c, calls));
  }
  return calls;
}

// One turn: a warm-up that brings caches and threads into the state of steady use, then the timing.
void take_turn(Competitor& c, std::int64_t batch, bool threaded) {
  if (threaded) wait_until_quiet();
  const std::int64_t usual = c.seconds < out_of_cache ? 1 + batch / 4 : 0;
  if (const auto calls = std::max<std::int64_t>(usual, c.warm_up); calls > 0) time_calls(c, calls);
  c.seconds = std::min(c.seconds, time_calls(c, batch));
}

}  // namespace

void race(std::vector<Competitor>& field, double seconds, bool quick, bool threaded) {
  wait_until_quiet();
  const double slice = threaded ? 300e-6 : 60e-6;
  std::vector<std::int64_t> batch(field.size());
  for (std::size_t i = 0; i < field.size(); ++i) batch[i] = first_calls(field[i], slice);

  std::vector<std::size_t> order(field.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Random order: dirty cache lines left behind by one slow down the next.
  std::minstd_rand random(1);  // NOLINT(cert-msc51-cpp): the same order in every run
  const auto start = Clock::now();
  const int least = quick ? least_quick_turns : least_turns;
  const double budget = quick ? seconds / 8 : seconds;
  for (int turn = 0; turn < least || since(start) < budget; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      const bool slow = field[i].seconds > too_slow * field[0].seconds;
      if (slow && turn >= early_turns && turn % seldom != 0) continue;
      take_turn(field[i], batch[i], threaded);
    }
  }
}

void report(benchmark::State& state, const std::vector<Competitor>& field, std::int64_t elements,
            std::int64_t bytes) {
  const double ours = field[0].seconds;
  const Competitor* limit = nullptr;
  for (const auto& c : field) {
    if (c.kind == Kind::peer) state.counters[c.name] = c.seconds / ours;
    if (c.kind == Kind::limit && (!limit || c.seconds < limit->seconds)) limit = &c;
  }
  if (limit) {
    state.counters["limit"] = limit->seconds / ours;
    state.SetLabel(limit->name);
  }
  state.counters["GB/s"] = 1e-9 * static_cast<double>(bytes) / ours;
  state.counters["Gelem/s"] = 1e-9 * static_cast<double>(elements) / ours;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(ours);
}

std::byte* Buffer::reserve(std::int64_t bytes) {
  const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  if (needed > memory_.size()) {
    memory_ = {};  // (first, so that not both are held)
    memory_ = measuring::LargePages<std::byte>(needed);
    std::fill(memory_.begin(), memory_.end(), std::byte{1});
  }
  return memory_.begin();
}

void fill_random(std::byte* data, DType dtype, std::int64_t elements, std::uint32_t seed) {
  constexpr std::int64_t distinct = std::int64_t{1} << 18;  // a block that is repeated
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> real(0.01F, 7.0F);
  const std::int64_t block = std::min(distinct, elements);
  const auto put = [&](auto&& make) {
    using T = decltype(make());
    for (std::int64_t i = 0; i < bytes_for(dtype, block) / static_cast<std::int64_t>(sizeof(T));
         ++i) {
      const T value = make();
      std::memcpy(data + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    }
  };
  const auto signed_real = [&] { return random() % 2 ? real(random) : -real(random); };
  switch (dtype) {
    case DType::f32:
      put([&] { return signed_real(); });
      break;
    case DType::f64:
      put([&] { return static_cast<double>(signed_real()); });
      break;
    case DType::f16:
      put([&] { return to_f16(signed_real()); });
      break;
    case DType::bf16:
      put([&] { return to_bf16(signed_real()); });
      break;
    case DType::s8:
    case DType::u8:
    case DType::s4:
    case DType::u4:
    case DType::s16:
    case DType::s32:
      put([&] { return static_cast<std::uint8_t>(1 + random() % 255); });
      break;
  }
  const std::int64_t total = bytes_for(dtype, elements);
  for (std::int64_t done = bytes_for(dtype, block); done < total;) {
    const std::int64_t next = std::min(done, total - done);
    std::memcpy(data + done, data, static_cast<std::size_t>(next));
    done += next;
  }
}

namespace {
template <class T>
std::int64_t count_different(const void* a, const void* b, std::int64_t count) {
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    T x{}, y{};
    std::memcpy(&x, static_cast<const T*>(a) + i, sizeof x);
    std::memcpy(&y, static_cast<const T*>(b) + i, sizeof y);
    if constexpr (requires { to_float(x); }) {
      different += to_float(x) != to_float(y);
    } else {
      different += x != y;
    }
  }
  return different;
}
}  // namespace

std::int64_t differences(const void* a, const void* b, DType dtype, std::int64_t elements) {
  switch (dtype) {
    case DType::f32:
      return count_different<float>(a, b, elements);
    case DType::f64:
      return count_different<double>(a, b, elements);
    case DType::f16:
      return count_different<f16>(a, b, elements);
    case DType::bf16:
      return count_different<bf16>(a, b, elements);
    case DType::s16:
      return count_different<std::int16_t>(a, b, elements);
    case DType::s32:
      return count_different<std::int32_t>(a, b, elements);
    case DType::s8:
    case DType::u8:
    case DType::s4:  // (two in a byte count once)
    case DType::u4:
      break;
  }
  return count_different<std::uint8_t>(a, b, bytes_for(dtype, elements));
}

void add_case(const Options& options, const std::string& name,
              std::function<void(benchmark::State&)> body) {
  const std::string path = '/' + name + '/';
  for (const auto& word : options.words)
    if (path.find('/' + word + '/') == std::string::npos) return;
  if (options.list) {
    std::puts(name.c_str());
    return;
  }
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace octavo::bench
