// A stream of a CUDA device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>

#include "core/stream.hpp"
#include "cuda/context.hpp"
#include "cuda/refusal.hpp"

namespace octavo::cuda {

/// Makes an Error of a refusal, in the words of the CPU.
using WordRefusal = Error (*)(const Refusal& refusal);
inline std::uint64_t word_by(WordRefusal function) {
  return reinterpret_cast<std::uint64_t>(function);
}

class CudaStream final : public Stream::Impl {
 public:
  static Result<std::shared_ptr<CudaStream>> make(const CudaOptions& options);
  ~CudaStream() override;

  [[nodiscard]] Status synchronize() override;
  [[nodiscard]] Result<void*> allocate(std::size_t bytes) override;
  void free(void* memory) noexcept override;

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] const std::shared_ptr<Context>& shared_context() const { return context_; }
  [[nodiscard]] StreamHandle handle() const { return handle_; }
  [[nodiscard]] const Driver& driver() const { return context_->driver; }

  /// Enqueues the checks of a run's values, in the CPU's order, at most max_checks; to be called
  /// inside an Enqueue, before the kernels. Those get what `latest()` says, and write nothing where
  /// it holds a refusal.
  Status check_values(std::initializer_list<Check> checks);
  [[nodiscard]] const Refusal* latest() const { return &state_->latest; }
  /// For checks of other kinds, by kernels of several blocks: what comes before them; and where to
  /// write.
  Status fold_refusals();
  [[nodiscard]] RefusalState* state() const { return state_; }
  /// Enqueues a refusal that the host knows of: of a scale given by value. Likewise.
  Status refuse(const Refusal& refusal);

 private:
  friend class Enqueue;
  explicit CudaStream(std::shared_ptr<Context> context)
      : Impl(Backend::cuda, context->ordinal),
        context_(std::move(context)) {}
  Status open(const CudaOptions& options);
  Status read_refusal(std::optional<Refusal>& refusal);

  std::shared_ptr<Context> context_;
  StreamHandle handle_ = nullptr;
  bool owned_ = false;
  RefusalState* state_ = nullptr;  // on the device
  std::mutex mutex_;
};

/// The kernels of one run follow each other on the stream, and the context is current, while one
/// lives: every `run` holds one while it launches.
class Enqueue {
 public:
  explicit Enqueue(CudaStream& stream) : lock_(stream.mutex_), current_(stream.context()) {}
  [[nodiscard]] const Status& status() const { return current_.status(); }

 private:
  std::scoped_lock<std::mutex> lock_;
  Current current_;
};

/// Of a stream whose backend is cuda.
inline CudaStream& cuda_of(const Stream& stream) { return static_cast<CudaStream&>(stream.impl()); }

}  // namespace octavo::cuda
