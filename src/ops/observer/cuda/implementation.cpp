// Observers on a GPU. States are the host's: ranges come back and are merged there; counts go to
// the device, are added to and come back, some slices at a time.
#include "ops/observer/implementation.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "numerics/half.hpp"
#include "ops/dynamic_range/cuda/ranges.hpp"
#include "ops/observer/cuda/observer_args.hpp"
#include "ops/observer/iteration.hpp"

namespace octavo::cuda {
extern const Ptx observer_counts_ptx;
}

namespace octavo::detail {
namespace {

using cuda::check;
using cuda::CudaStream;
using cuda::DevicePointer;
using cuda::Kernel;
using cuda::observer_counts_ptx;

constexpr Kernel count_f32{observer_counts_ptx, "count_f32"};
constexpr Kernel count_f64{observer_counts_ptx, "count_f64"};
constexpr Kernel count_f16{observer_counts_ptx, "count_f16"};
constexpr Kernel count_bf16{observer_counts_ptx, "count_bf16"};

// Of counts that are on the device at once, unless a slice has more.
constexpr std::int64_t max_count_bytes = std::int64_t{64} << 20;
// Elements of a row that a thread counts, and 1 << max_lanes threads at most take of it together.
constexpr std::int64_t elements_per_thread = 32;
constexpr int max_lanes = 8;

const Kernel& count_kernel(DType type) {
  switch (type) {
    case DType::f64:
      return count_f64;
    case DType::f16:
      return count_f16;
    case DType::bf16:
      return count_bf16;
    default:
      return count_f32;
  }
}

DevicePointer address(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

// The number of a pattern as ranges have it in the workspace: 16 bits stand in the upper half.
template <class Bits>
double number_of(Bits bits, DType type) {
  if constexpr (sizeof(Bits) == 8) {
    return std::bit_cast<double>(bits);
  } else if (type == DType::f16) {
    return numerics::widen(f16{static_cast<std::uint16_t>(bits >> 16U)});
  } else {
    return std::bit_cast<float>(bits);
  }
}

class CudaObserver final : public ObserverImpl {
 public:
  explicit CudaObserver(const ObserverProblem& p)
      : ObserverImpl(p),
        range_bytes_((range_bytes(p.slices(), p.input) + 15) / 16 * 16) {
    workspace_bytes = range_bytes_;
    if (!p.histogram || p.slices() == 0) return;
    slices_at_once_ = std::clamp<std::int64_t>(max_count_bytes / (p.bins() * 8), 1, p.slices());
    workspace_bytes += static_cast<std::size_t>(slices_at_once_ * p.bins() * 8);
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace, const TensorRef& input,
                           std::int64_t numel, const Seen& seen) const override {
    CudaStream& on = cuda::cuda_of(stream);
    const cuda::Enqueue enqueue(on);
    if (!enqueue.status()) return enqueue.status();
    Status s = observe(on, static_cast<unsigned char*>(workspace), input, numel, seen);
    // (Of a run that failed on its way, too, nothing is queued when it returns.)
    if (!s) (void)wait(on);
    return s;
  }

 private:
  [[nodiscard]] Status observe(CudaStream& on, unsigned char* workspace, const TensorRef& input,
                               std::int64_t numel, const Seen& seen) const {
    const Iteration it = iterate(problem, input, numel);
    Arranged arranged = arrange(it, problem.input, input.data, nullptr, 0);
    arranged.args.ranges = workspace;
    arranged.args.slices = problem.slices();
    if (Status s = find_ranges(on, arranged); !s) return s;
    if (problem.histogram)
      if (Status s = add_counts(on, workspace + range_bytes_, arranged, seen.counts); !s) return s;
    return problem.input == DType::f64 ? merge<std::uint64_t>(on, workspace, seen)
                                       : merge<std::uint32_t>(on, workspace, seen);
  }

  [[nodiscard]] static Status wait(const CudaStream& on) {
    return check(on.driver(), "cuStreamSynchronize", on.driver().stream_synchronize(on.handle()));
  }

  template <class Bits>
  [[nodiscard]] Status merge(const CudaStream& on, const void* workspace, const Seen& seen) const {
    constexpr std::int64_t at_once = 256;
    std::array<Bits, 2 * at_once> ranges;
    const auto* from = static_cast<const Bits*>(workspace);
    for (std::int64_t first = 0; first < problem.slices(); first += at_once) {
      const std::int64_t n = std::min(at_once, problem.slices() - first);
      if (Status s = check(on.driver(), "cuMemcpyDtoHAsync",
                           on.driver().copy_to_host(ranges.data(), address(from + 2 * first),
                                                    static_cast<std::size_t>(2 * n) * sizeof(Bits),
                                                    on.handle()));
          !s)
        return s;
      if (Status s = wait(on); !s) return s;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(2 * i);
        double& low = seen.low[first + i];
        double& high = seen.high[first + i];
        high = std::max(high, number_of(ranges[at], problem.input));
        low = std::min(low, 0.0 - number_of(ranges[at + 1], problem.input));
      }
    }
    return {};
  }

  [[nodiscard]] Status add_counts(CudaStream& on, void* memory, const Arranged& arranged,
                                  std::int64_t* counts) const {
    cuda::CountArgs a;
    a.input = arranged.args.input;
    a.counts = static_cast<std::int64_t*>(memory);
    a.rows = arranged.args.rows;
    a.length = arranged.args.length;
    a.step = arranged.args.step;
    a.bins = problem.bins();
    a.shift = 23 - problem.histogram_bits;
    for (std::int64_t first = 0; first < problem.slices(); first += slices_at_once_) {
      const std::int64_t n = std::min(slices_at_once_, problem.slices() - first);
      std::int64_t* own = counts + first * a.bins;
      const auto bytes = static_cast<std::size_t>(n * a.bins * 8);
      if (Status s = check(on.driver(), "cuMemcpyHtoDAsync",
                           on.driver().copy_to_device(address(memory), own, bytes, on.handle()));
          !s)
        return s;
      if (Status s = count(on, of_slices(a, first, n)); !s) return s;
      if (Status s = check(on.driver(), "cuMemcpyDtoHAsync",
                           on.driver().copy_to_host(own, address(memory), bytes, on.handle()));
          !s)
        return s;
      if (Status s = wait(on); !s) return s;
    }
    return {};
  }

  // Those of a channel lie along one dimension: a part of it.
  [[nodiscard]] cuda::CountArgs of_slices(cuda::CountArgs a, std::int64_t first,
                                          std::int64_t n) const {
    if (n == problem.slices()) return a;
    const std::int64_t bytes = bits(problem.input) / 8;
    const auto* input = static_cast<const unsigned char*>(a.input);
    if (a.step.params != 0) {
      a.input = input + first * a.step.input * bytes;
      a.length = n;
    }
    for (int i = 0; i < a.rows.rank; ++i)
      if (a.rows.stride[i].params != 0) {
        a.input = input + first * a.rows.stride[i].input * bytes;
        a.rows.count = a.rows.count / a.rows.size[i] * n;
        a.rows.size[i] = n;
      }
    return a;
  }

  [[nodiscard]] Status count(CudaStream& on, cuda::CountArgs a) const {
    a.lanes = std::min(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(a.length - 1))),
                       max_lanes);
    a.tile = std::min(a.length, elements_per_thread << a.lanes);
    a.tiles = (a.length + a.tile - 1) / a.tile;
    const std::int64_t teams = cuda::count_threads >> a.lanes;
    const std::int64_t blocks =
        std::min((a.rows.count * a.tiles + teams - 1) / teams, cuda::max_range_blocks);
    return cuda::launch(on, count_kernel(problem.input), {static_cast<unsigned>(blocks)},
                        {cuda::count_threads}, 0, a);
  }

  const std::size_t range_bytes_;
  std::int64_t slices_at_once_ = 1;
};

Found<std::shared_ptr<ObserverImpl>> find(const ObserverProblem& p, const Allowed& /*allowed*/) {
  return {std::make_shared<CudaObserver>(p)};
}

constexpr ObserverEntry entries[] = {{{Backend::cuda, Target::sm80}, find}};

}  // namespace

std::span<const ObserverEntry> cuda_observers() { return entries; }

}  // namespace octavo::detail
