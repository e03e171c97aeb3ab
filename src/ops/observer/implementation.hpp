// What a backend does for observers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/choose.hpp"
#include "octavo/observer.hpp"

namespace octavo {

namespace detail {

struct ObserverProblem : ObserverDescriptor {
  bool histogram = false;

  [[nodiscard]] std::int64_t slices() const { return scope == Layout::per_channel ? channels : 1; }
  /// Sign, exponent, and the bits behind the point.
  [[nodiscard]] std::int64_t bins() const { return std::int64_t{1} << (9 + histogram_bits); }
};

/// Where a batch is added: one of each per slice, of counts as many as there are bins. States are
/// memory of the host, wherever the batch is.
struct Seen {
  double* low = nullptr;
  double* high = nullptr;
  std::int64_t* counts = nullptr;  // of histograms
};

/// A problem and the way it is done. Immutable once a plan holds it; runs may be many at once.
class ObserverImpl {
 public:
  explicit ObserverImpl(const ObserverProblem& p) : problem(p) {}
  ObserverImpl(const ObserverImpl&) = delete;
  ObserverImpl& operator=(const ObserverImpl&) = delete;
  virtual ~ObserverImpl() = default;

  /// Adds a batch of `numel` > 0 elements. The arguments are checked. The state is the caller's and
  /// read by the host, so this is never queued: it waits for what is (the batch may be written by
  /// it) and for itself, and leaves refusals of earlier runs to `synchronize`.
  [[nodiscard]] virtual Status run(const Stream& stream, void* workspace, const TensorRef& input,
                                   std::int64_t numel, const Seen& seen) const = 0;

  const ObserverProblem problem;
  std::size_t workspace_bytes = 0;  // set by whoever derives from this
  KernelSku sku;
};

using ObserverEntry = Entry<ObserverProblem, std::shared_ptr<ObserverImpl>>;

/// Best first, the reference last.
std::span<const ObserverEntry> cpu_observers();
std::span<const ObserverEntry> cuda_observers();
/// For tests alone: those of a backend that only they have.
inline constinit std::span<const ObserverEntry> test_observers;

}  // namespace detail
}  // namespace octavo
