// Observers of one batch. The limit reads the input once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "harness.hpp"
#include "measuring/limit.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {
namespace {

struct Size {
  std::int64_t elements;
  const char* name;
  double seconds;  // for each case
};
constexpr std::array<Size, 3> sizes{
    {{1 << 12, "4K", 0.3}, {1 << 20, "1M", 0.4}, {1 << 26, "64M", 1.0}}};

template <class Observer, class State>
void run_case(benchmark::State& state, DType real, const Size& size, int threads, bool quick) {
  static Buffer buffer;
  std::byte* input = buffer.reserve(bytes_for(real, size.elements));
  fill_random(input, real, size.elements, 1);
  const Stream stream = Stream::cpu({.threads = threads});
  const auto observer = Observer::select(stream, {.input = real});
  if (!observer) return state.SkipWithError(observer.error().message().c_str());
  const WorkspaceBuffer workspace(observer->workspace_size());
  State seen = observer->make_state();
  const typename Observer::Args args{.input = {input, real, Shape{size.elements}}, .state = &seen};
  if (const auto status = observer->can_implement(args); !status)
    return state.SkipWithError(status.error().message().c_str());

  std::vector<Competitor> field{{.name = "octavo", .kind = Kind::ours, .run = [&] {
                                   (void)observer->run(stream, workspace, args);
                                 }}};
  const measuring::Traffic traffic{.input = input, .input_bytes = bytes_for(real, size.elements)};
  measuring::add_limits(field, traffic, threads);
  race(field, size.seconds, quick, threads > 1);
  report(state, field, size.elements, traffic.bytes());
}

template <class Observer, class State>
void add_all(const Options& options, Op op) {
  const int all = Stream::cpu().threads();
  for (const DType real : {DType::f32, DType::bf16})
    for (const Size& size : sizes)
      for (int threads = 1; threads <= all; threads += std::max(1, all - 1))
        add_case(options,
                 "observer/" + std::string(name(op)) + "/" + std::string(name(real)) +
                     "/per_tensor/" + size.name + "/" + std::to_string(threads) + "t",
                 [=, quick = options.quick](benchmark::State& s) {
                   run_case<Observer, State>(s, real, size, threads, quick);
                 });
}

}  // namespace

void add_observer(const Options& options) {
  add_all<MinMaxObserver, MinMaxState>(options, Op::observe_min_max);
  add_all<HistogramObserver, HistogramState>(options, Op::observe_histogram);
}

}  // namespace octavo::bench
