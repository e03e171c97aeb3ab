// Histograms: how many finite values fall in each bin.
#include "cuda/device/device.hpp"

#include "ops/observer/cuda/observer_args.hpp"
#include "ops/runs/cuda/piece.hpp"
#include "ops/runs/cuda/start.hpp"

namespace octavo::cuda {
namespace {

/// The f32 pattern that a value is counted by: f64 is rounded, and huge values count as the
/// largest.
template <class T>
OCTAVO_DEVICE std::uint32_t counted_pattern(BitsOf<T> bits) {
  if constexpr (std::is_same_v<T, double>) {
    constexpr double most = std::numeric_limits<float>::max();
    const double x = number<T>(bits);
    return std::bit_cast<std::uint32_t>(static_cast<float>(x < -most  ? -most
                                                           : x > most ? most
                                                                      : x));
  } else {
    return std::bit_cast<std::uint32_t>(number<T>(bits));
  }
}

/// Values come in crowds: equal bins one after another are added at once, and zeros at the end.
template <class T>
OCTAVO_DEVICE void count_values(const CountArgs& a) {
  const unsigned lanes = 1U << a.lanes;
  const unsigned lane = thread_x() & (lanes - 1);
  const unsigned team = thread_x() >> a.lanes;
  const unsigned teams = count_threads >> a.lanes;
  const std::int64_t items = a.rows.count * a.tiles;
  for (std::int64_t first = std::int64_t{block_x()} * teams; first < items;
       first += std::int64_t{blocks_x()} * teams) {
    const bool is_item = first + team < items;
    const Division d = divide(is_item ? first + team : 0, a.tiles);
    const Start start = start_of(a.rows, d.quotient);
    const std::int64_t end = is_item ? std::min(a.length, (d.rest + 1) * a.tile) : 0;
    const bool same_slice = a.step.params == 0;
    std::int64_t zeros = 0;
    std::int64_t crowd = 0;
    std::int64_t of = 0;  // its bin
    const auto add = [&](std::int64_t bin, std::int64_t n) {
      if (n > 0)
        __nvvm_atom_add_gen_ll(reinterpret_cast<long long*>(a.counts + bin),
                               static_cast<long long>(n));
    };
    for (std::int64_t i = d.rest * a.tile + lane; i < end; i += lanes) {
      const BitsOf<T> bits = load_pattern<T>(a.input, start.input + i * a.step.input);
      if ((bits & Pattern<T>::infinity) == Pattern<T>::infinity) continue;
      const std::int64_t slice = (start.params + i * a.step.params) * a.bins;
      const std::int64_t bin = slice + (counted_pattern<T>(bits) >> a.shift);
      if (same_slice && bits == 0) {
        ++zeros;
      } else if (bin == of) {
        ++crowd;
      } else {
        add(of, crowd);
        of = bin;
        crowd = 1;
      }
    }
    add(of, crowd);
    if (!same_slice) continue;
    const unsigned together = lanes < warp_size ? lanes : warp_size;
    for (unsigned apart = 1; apart < together; apart *= 2)
      zeros += static_cast<std::int64_t>(shuffle_xor(static_cast<std::uint64_t>(zeros), apart));
    if (lane % together == 0) add(start.params * a.bins, zeros);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(count_threads) count_f32(const CountArgs args) {
  count_values<float>(args);
}
extern "C" __global__ void __launch_bounds__(count_threads) count_f64(const CountArgs args) {
  count_values<double>(args);
}
extern "C" __global__ void __launch_bounds__(count_threads) count_f16(const CountArgs args) {
  count_values<f16>(args);
}
extern "C" __global__ void __launch_bounds__(count_threads) count_bf16(const CountArgs args) {
  count_values<bf16>(args);
}

}  // namespace octavo::cuda
