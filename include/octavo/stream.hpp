// Where work runs: targets (instruction sets), backends, streams and the workspace lent to them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/export.h"
#include "octavo/result.hpp"

namespace octavo {

/// An instruction set that kernels are written for. x86: scalar < avx2 < avx512 < avx512vnni < amx,
/// and avxvnni branches off above avx2. Arm: scalar < neon < dotprod < i8mm < sve. Of CUDA devices:
/// sm80, which no CPU has.
enum class Target : std::uint8_t {
  scalar = 0,  ///< the reference; runs everywhere
  avx2 = 1,    ///< with FMA, F16C and BMI2
  avxvnni = 2,
  avx512 = 3,      ///< F, BW, DQ, VL
  avx512vnni = 4,  ///< as Ice Lake and Zen 4 have it
  amx = 5,
  neon = 6,
  dotprod = 7,
  i8mm = 8,
  sve = 9,
  sm80 = 10,  ///< compute capability 8.0 and all later ones
};

inline constexpr int target_count = 11;

[[nodiscard]] OCTAVO_API std::string_view name(Target target) noexcept;
[[nodiscard]] OCTAVO_API std::optional<Target> parse_target(std::string_view wanted) noexcept;
/// Whether a kernel for `a` uses only what `b` has: the order of the ladder above.
[[nodiscard]] OCTAVO_API bool at_or_below(Target a, Target b) noexcept;
/// What this CPU (and its operating system) offers, `scalar` first.
[[nodiscard]] OCTAVO_API std::vector<Target> available_targets();
[[nodiscard]] OCTAVO_API bool is_available(Target target) noexcept;

enum class Backend : std::uint8_t { cpu = 0, cuda = 1 };
[[nodiscard]] OCTAVO_API std::string_view name(Backend backend) noexcept;

struct CpuOptions {
  /// How many threads share the work; 0: as many as the machine has cores. Never changes a bit.
  int threads = 0;
  /// Use no kernel above this target. Never changes a bit. The environment variable OCTAVO_TARGET
  /// caps every stream in the same way.
  std::optional<Target> cap = std::nullopt;
  /// If set, bit `1 << int(target)` is set for every target whose code really ran.
  std::atomic<std::uint32_t>* trace = nullptr;
};

struct CudaOptions {
  /// Which device, as the driver counts them.
  int device = 0;
  /// A CUstream of the device's primary context (a cudaStream_t, say; null is the legacy default
  /// one) to enqueue on, which outlives this. Left out: a stream of its own.
  std::optional<void*> stream = std::nullopt;
};

/// A device that the driver finds, of any age.
struct CudaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t bytes = 0;  ///< of memory
};
/// All of them, in the driver's order; an error where there is no driver, or where this library was
/// built without device code.
[[nodiscard]] OCTAVO_API Result<std::vector<CudaDevice>> cuda_devices();

namespace detail {
struct StreamAccess;
}

/// A place to run plans. Cheap to copy; copies share their threads. May be used from many threads
/// at once. A plan runs on any stream of the backend that it was made for, and on no other.
class OCTAVO_API Stream {
 public:
  [[nodiscard]] static Stream cpu(const CpuOptions& options = {});
  /// Of a CUDA device of compute capability 8.0 or later. `run` enqueues and returns; all pointers
  /// are to the device's memory. An error where there is no driver, no such device, or an older
  /// one.
  [[nodiscard]] static Result<Stream> cuda(const CudaOptions& options = {});

  [[nodiscard]] Backend backend() const noexcept;
  /// Waits until all that was run on this stream is done. On the CPU it is when `run` returns, and
  /// nothing can be wrong here. Where work is queued, values of scales and zero points are checked
  /// when it is carried out: a run that they are wrong for writes nothing, those after it go on,
  /// and the first such refusal since the last `synchronize` is returned here, once.
  [[nodiscard]] Status synchronize() const;
  [[nodiscard]] int threads() const noexcept;
  [[nodiscard]] const CpuOptions& options() const noexcept;

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  friend struct detail::StreamAccess;
  friend class WorkspaceBuffer;
  explicit Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// Scratch memory that the caller lends to `run`: at least `plan.workspace_size()` bytes, aligned
/// to `workspace_alignment`. Two runs at the same time need two.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

inline constexpr std::size_t workspace_alignment = 64;

/// A Workspace that owns its memory. Throws std::bad_alloc where there is none.
class OCTAVO_API WorkspaceBuffer {
 public:
  explicit WorkspaceBuffer(std::size_t bytes);
  /// Where the stream computes. What was run on that stream is waited for before the memory is
  /// freed.
  WorkspaceBuffer(const Stream& stream, std::size_t bytes);
  [[nodiscard]] operator Workspace() const noexcept { return {data_.get(), bytes_}; }

 private:
  struct Free {
    std::shared_ptr<Stream::Impl> from;  // null: the host
    void operator()(std::byte* p) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

/// What the caller would like of a plan.
struct PlanPreference {
  /// `select` fails rather than choose a kernel that needs more.
  std::optional<std::size_t> max_workspace_bytes = std::nullopt;
  /// `select` fails if the stream's backend is another one.
  std::optional<Backend> backend = std::nullopt;
  /// Use no kernel above this target: the same rule as a stream's cap, for one plan. Of the CPU;
  /// `select` fails where the stream's backend is another one.
  std::optional<Target> target = std::nullopt;
};

}  // namespace octavo
