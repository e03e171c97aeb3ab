// A test's buffers, where the stream computes: those of the host themselves on the CPU, copies
// elsewhere.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuda/stream.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::testing {

/// Whether there is a CUDA device, or what stands in for one.
[[nodiscard]] inline bool has_cuda() {
  static const bool has = static_cast<bool>(Stream::cuda());
  return has;
}

/// One of a CPU's thread, and one of a CUDA device if there is one.
[[nodiscard]] inline std::vector<Stream> one_of_each() {
  std::vector<Stream> streams{Stream::cpu({.threads = 1})};
  if (has_cuda()) streams.push_back(*Stream::cuda());
  return streams;
}

/// Lends memory of the host to a stream. On a device each lent piece is an allocation of its own,
/// so that who reads or writes beside it is found out.
class Lent {
 public:
  explicit Lent(const Stream& stream) : stream_(stream) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() = default;

  /// Where the stream has these bytes.
  template <class T>
  T* lend(T* host, std::size_t bytes) {
    if (stream_.backend() == Backend::cpu || host == nullptr) return host;
    pieces_.push_back({const_cast<std::remove_const_t<T>*>(host), bytes, !std::is_const_v<T>,
                       WorkspaceBuffer(stream_, std::max<std::size_t>(bytes, 1))});
    auto& piece = pieces_.back();
    to_device(address(piece), piece.host, bytes);
    return static_cast<T*>(Workspace(piece.device).data);
  }
  template <class T>
  T* lend(std::vector<T>& host) {
    return lend(host.data(), host.size() * sizeof(T));
  }
  template <class T>
  const T* lend(const std::vector<T>& host) {
    return lend(host.data(), host.size() * sizeof(T));
  }
  /// The memory from the first to the last element.
  TensorRef lend(TensorRef t) {
    if (t.data == nullptr || stream_.backend() == Backend::cpu) return t;
    std::int64_t low = 0;
    std::int64_t high = 1;
    for (int i = 0; i < t.shape.rank(); ++i) {
      if (t.shape[i] == 0) high = 0;
      (t.strides[i] < 0 ? low : high) += (t.shape[i] - 1) * t.strides[i];
    }
    const std::int64_t before = bytes_for(t.dtype, -low);
    const auto* first = static_cast<const std::byte*>(t.data) - before;
    const std::int64_t bytes = high <= 0 ? 0 : before + bytes_for(t.dtype, high);
    t.data = lend(first, static_cast<std::size_t>(bytes)) + before;
    return t;
  }

  /// Waits for the stream, and brings back what was lent to be written.
  [[nodiscard]] Status fetch() {
    if (Status s = stream_.synchronize(); !s) {
      copy_back();
      return s;
    }
    copy_back();
    return {};
  }

 private:
  struct Piece {
    void* host;
    std::size_t bytes;
    bool is_written;
    WorkspaceBuffer device;
  };
  static cuda::DevicePointer address(const Piece& piece) {
    return reinterpret_cast<cuda::DevicePointer>(Workspace(piece.device).data);
  }
  void must(Status s) {
    if (s) return;
    std::fprintf(stderr, "%s\n", s.error().message().c_str());
    std::abort();
  }
  void to_device(cuda::DevicePointer to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    cuda::CudaStream& on = cuda::cuda_of(stream_);
    const cuda::Enqueue enqueue(on);
    must(enqueue.status());
    must(
        cuda::check(on.driver(), "copy", on.driver().copy_to_device(to, from, bytes, on.handle())));
    must(cuda::check(on.driver(), "wait", on.driver().stream_synchronize(on.handle())));
  }
  void copy_back() {
    if (stream_.backend() == Backend::cpu) return;
    cuda::CudaStream& on = cuda::cuda_of(stream_);
    const cuda::Enqueue enqueue(on);
    must(enqueue.status());
    for (const Piece& piece : pieces_)
      if (piece.is_written && piece.bytes > 0)
        must(cuda::check(
            on.driver(), "copy",
            on.driver().copy_to_host(piece.host, address(piece), piece.bytes, on.handle())));
    must(cuda::check(on.driver(), "wait", on.driver().stream_synchronize(on.handle())));
  }

  Stream stream_;
  std::vector<Piece> pieces_;
};

}  // namespace octavo::testing
