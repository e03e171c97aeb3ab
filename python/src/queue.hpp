// Streams of CUDA devices as calls use them: with the memory that they lend in the order of their
// work, and with what orders them after each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/stream.hpp"
#include "octavo/stream.hpp"

namespace octavo::python {

/// A stream, and memory of its device that goes from one call to the next: what was given back may
/// be taken at once, for whoever takes it enqueues after those who had it.
class Queue {
 public:
  explicit Queue(Stream stream) : stream_(std::move(stream)) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();

  [[nodiscard]] const Stream& stream() const { return stream_; }
  [[nodiscard]] int device() const { return on().context().ordinal; }
  [[nodiscard]] cuda::StreamHandle handle() const { return on().handle(); }
  [[nodiscard]] cuda::CudaStream& on() const { return cuda::cuda_of(stream_); }

  /// Null for 0 bytes.
  [[nodiscard]] Result<void*> take(std::size_t bytes);
  /// When all that uses it on this stream is enqueued, and on no other.
  void give(void* memory, std::size_t bytes) noexcept;

  /// From host memory that is not pinned, which may change when it returns.
  [[nodiscard]] Status upload(void* to, const void* from, std::size_t bytes) const;
  [[nodiscard]] Status copy(void* to, const void* from, std::size_t bytes) const;
  /// To host memory; waits for it, and so for all before it.
  [[nodiscard]] Status download(void* to, const void* from, std::size_t bytes) const;
  /// What is enqueued here from now on begins when all that is on the other has ended; or there,
  /// by its handle, when all that is here has.
  [[nodiscard]] Status follow(const Queue& other) const;
  [[nodiscard]] Status lead(cuda::StreamHandle other) const;
  /// Waits; without a look at refusals.
  void wait() const noexcept;
  /// A call ran on it: it is to be waited for. (A framework's may be gone when it was.)
  void note_call() { busy_.store(true); }
  [[nodiscard]] bool is_busy() const { return busy_.load(); }
  [[nodiscard]] Status synchronize() {
    busy_.store(false);
    return stream_.synchronize();
  }

 private:
  void release_all() noexcept;

  const Stream stream_;
  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;
  std::size_t free_bytes_ = 0;
  std::atomic<bool> busy_ = false;
};
using QueuePtr = std::shared_ptr<Queue>;

/// Our own of a device, that of a framework's stream, or a new one. Used with the GIL held.
[[nodiscard]] Result<QueuePtr> own_queue(int device);
[[nodiscard]] Result<QueuePtr> queue_of(int device, std::uintptr_t handle);
[[nodiscard]] Result<QueuePtr> new_queue(int device);
/// All that there are.
[[nodiscard]] std::vector<QueuePtr> all_queues();

/// Memory of a device for a result, in the order of the stream that it was made on.
class Block {
 public:
  Block(QueuePtr queue, void* memory, std::size_t bytes)
      : queue_(std::move(queue)),
        memory_(memory),
        bytes_(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
  [[nodiscard]] static Result<std::shared_ptr<Block>> make(const QueuePtr& queue,
                                                           std::size_t bytes);

  [[nodiscard]] void* memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const QueuePtr& queue() const { return queue_; }
  /// Others may use it on streams that are not known here: it will not be lent again.
  void share() { shared_ = true; }

 private:
  const QueuePtr queue_;
  void* const memory_;
  const std::size_t bytes_;
  bool shared_ = false;
};

/// The streams that only read something on: it must not go before they are done.
class Readers {
 public:
  Readers() = default;
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;
  ~Readers();
  void add(const QueuePtr& queue);

 private:
  std::mutex mutex_;
  std::set<QueuePtr> all_;
};

}  // namespace octavo::python
