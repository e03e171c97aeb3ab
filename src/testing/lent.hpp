// Memory of the host that several runs on a stream share: as it is on the CPU; on a CUDA device a
// copy, which comes back when it is fetched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "testing/cuda.hpp"
#include "tests/cuda/driver/control.hpp"

namespace octavo::testing {

/// One of a CPU's thread, and one of a CUDA device if there is one.
[[nodiscard]] inline std::vector<Stream> one_of_each() {
  std::vector<Stream> streams{Stream::cpu({.threads = 1})};
  if (has_cuda()) streams.push_back(*cuda_stream());
  return streams;
}

/// Whether tests on a device may take minutes: OCTAVO_TEST_CUDA=all.
[[nodiscard]] inline bool all_cuda_tests() {
  const char* wanted = std::getenv("OCTAVO_TEST_CUDA");
  return wanted != nullptr && std::string_view(wanted) == "all" && has_cuda();
}

class Lent {
 public:
  explicit Lent(const Stream& stream) : stream_(stream) {
    if (is_host()) return;
    memory_.emplace(stream);
    // Every order of warps and blocks is as good.
    static std::atomic<std::uint64_t> seed{0};
    if (const auto* standin = standin::Control::find()) standin->set_seed(seed++ % 5);
  }

  /// Where the stream has these bytes, in an allocation of their own.
  template <class T>
  T* lend(T* host, std::size_t bytes) {
    if (is_host() || host == nullptr) return host;
    void* device = memory_->upload(host, bytes);
    if constexpr (!std::is_const_v<T>) written_.push_back({host, device, bytes});
    return static_cast<T*>(device);
  }
  template <class T>
  T* lend(std::vector<T>& host) {
    return lend(host.data(), host.size() * sizeof(T));
  }
  template <class T>
  const T* lend(const std::vector<T>& host) {
    return lend(host.data(), host.size() * sizeof(T));
  }
  /// From the first element to the last; strides are not negative.
  TensorRef lend(TensorRef t) {
    std::int64_t elements = 1;
    for (int i = 0; i < t.shape.rank(); ++i)
      elements = t.shape[i] == 0 || elements == 0 ? 0 : elements + (t.shape[i] - 1) * t.strides[i];
    t.data = lend(static_cast<const std::byte*>(t.data),
                  static_cast<std::size_t>(bytes_for(t.dtype, elements)));
    return t;
  }

  /// Waits for the stream and brings back what was lent to be written; what the stream has refused.
  [[nodiscard]] Status fetch() {
    Status s = stream_.synchronize();
    for (const Written& w : written_) memory_->read(w.device, w.bytes, w.host);
    return s;
  }

 private:
  [[nodiscard]] bool is_host() const { return stream_.backend() == Backend::cpu; }
  struct Written {
    void* host;
    const void* device;
    std::size_t bytes;
  };
  Stream stream_;
  std::optional<CudaMemory> memory_;
  std::vector<Written> written_;
};

}  // namespace octavo::testing
