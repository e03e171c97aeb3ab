// A CUDA device for tests: the stand-in driver's, or a real one's. Tests have their tensors in the
// host's memory; a Mirror brings them to the device and back.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/stream.hpp"
#include "octavo/stream.hpp"
#include "octavo/tensor.hpp"

namespace octavo::testing {

/// A stream of its own on device 0; none where there is no device. OCTAVO_TEST_CUDA=0 says that
/// there is none.
[[nodiscard]] inline std::optional<Stream> cuda_stream() {
  const char* wanted = std::getenv("OCTAVO_TEST_CUDA");
  if (wanted != nullptr && *wanted == '0') return std::nullopt;
  auto stream = Stream::cuda();
  if (!stream) return std::nullopt;
  return *std::move(stream);
}
[[nodiscard]] inline bool has_cuda() {
  static const bool found = cuda_stream().has_value();
  return found;
}

/// Memory of a stream's device, of exactly so many bytes each time, until this goes.
class CudaMemory {
 public:
  explicit CudaMemory(Stream stream) : stream_(std::move(stream)) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() {
    for (void* memory : all_) on().context().free(memory);
  }

  void* allocate(std::size_t bytes) {
    const Result<void*> memory = on().context().allocate(bytes);
    if (!memory) throw std::bad_alloc();
    all_.push_back(*memory);
    return *memory;
  }
  void write(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    const octavo::cuda::Current current(on().context());
    require(on().driver().copy_to_device(address(to), from, bytes, on().handle()));
    require(on().driver().stream_synchronize(on().handle()));
  }
  /// After all that was run.
  void read(const void* from, std::size_t bytes, void* to) {
    if (bytes == 0) return;
    const octavo::cuda::Current current(on().context());
    require(on().driver().copy_to_host(to, address(from), bytes, on().handle()));
    require(on().driver().stream_synchronize(on().handle()));
  }
  void* upload(const void* from, std::size_t bytes) {
    void* to = allocate(bytes);
    write(to, from, bytes);
    return to;
  }

 private:
  [[nodiscard]] octavo::cuda::CudaStream& on() const { return octavo::cuda::cuda_of(stream_); }
  static octavo::cuda::DevicePointer address(const void* memory) {
    return reinterpret_cast<octavo::cuda::DevicePointer>(memory);
  }
  static void require(int error) {
    if (error != octavo::cuda::success) throw std::runtime_error("a copy failed");
  }
  Stream stream_;
  std::vector<void*> all_;
};

/// Ranges of the host's memory on a device, each in an allocation that ends where it ends, and as
/// far from a multiple of 256 bytes as on the host. What overlaps is one range.
class Mirror {
 public:
  explicit Mirror(const Stream& stream) : memory_(stream) {}

  void add(const void* begin, std::size_t bytes) {
    if (begin == nullptr || bytes == 0) return;
    auto first = reinterpret_cast<std::uintptr_t>(begin);
    std::uintptr_t end = first + bytes;
    for (auto at = ranges_.begin(); at != ranges_.end();) {
      if (at->first < end && first < at->second.end) {
        first = std::min(first, at->first);
        end = std::max(end, at->second.end);
        at = ranges_.erase(at);
      } else {
        ++at;
      }
    }
    ranges_[first] = {end, nullptr};
  }
  /// The elements of a tensor, and what is between them.
  void add(const TensorRef& t) {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (int i = 0; i < t.shape.rank(); ++i) {
      if (t.shape[i] <= 0) return;
      const std::int64_t reach = (t.shape[i] - 1) * t.strides[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    const std::int64_t before = bytes_for(t.dtype, -lowest);
    add(static_cast<const std::byte*>(t.data) - before,
        static_cast<std::size_t>(before + bytes_for(t.dtype, highest + 1)));
  }
  void upload() {
    for (auto& [begin, range] : ranges_) {
      const std::size_t away = begin % 256;
      auto* memory = static_cast<std::byte*>(memory_.allocate(away + (range.end - begin)));
      const std::vector<std::byte> beside(away, paint);
      memory_.write(memory, beside.data(), away);
      range.device = memory + away;
      memory_.write(range.device, std::bit_cast<const void*>(begin), range.end - begin);
    }
  }
  /// Where a pointer into a range is on the device; any other stays what it is.
  template <class Void>
  [[nodiscard]] Void* at(Void* host) const {
    const auto address = reinterpret_cast<std::uintptr_t>(host);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return host;
    --after;
    if (address >= after->second.end) return host;
    return after->second.device + (address - after->first);
  }
  template <class Tensor>
  [[nodiscard]] Tensor moved(Tensor tensor) const {
    tensor.data = at(tensor.data);
    return tensor;
  }
  /// Back to where it came from. False if something in front of a range has changed.
  [[nodiscard]] bool download() {
    bool untouched = true;
    for (const auto& [begin, range] : ranges_) {
      memory_.read(range.device, range.end - begin, std::bit_cast<void*>(begin));
      std::vector<std::byte> beside(begin % 256);
      memory_.read(range.device - beside.size(), beside.size(), beside.data());
      for (const std::byte b : beside) untouched = untouched && b == paint;
    }
    return untouched;
  }

 private:
  static constexpr std::byte paint{0xA5};
  struct Range {
    std::uintptr_t end = 0;
    std::byte* device = nullptr;
  };
  CudaMemory memory_;
  std::map<std::uintptr_t, Range> ranges_;
};

/// Runs `run(workspace)` with tensors of the host's memory on a CUDA stream: they are moved there,
/// and what has changed comes back. Elsewhere they stay.
template <class Run>
Status run_there(const Stream& stream, std::initializer_list<TensorRef*> inputs,
                 std::initializer_list<TensorMut*> outputs, Workspace workspace, Run run) {
  if (stream.backend() != Backend::cuda) return run(workspace);
  Mirror mirror(stream);
  for (const TensorRef* t : inputs) mirror.add(*t);
  for (const TensorMut* t : outputs) mirror.add(*t);
  mirror.upload();
  for (TensorRef* t : inputs) *t = mirror.moved(*t);
  for (TensorMut* t : outputs) *t = mirror.moved(*t);
  const WorkspaceBuffer lent(stream, workspace.bytes);
  if (Status s = run(static_cast<Workspace>(lent)); !s) return s;
  if (Status s = stream.synchronize(); !s) return s;
  if (!mirror.download())
    return Error(ErrorCode::backend, "output", "output: bytes in front of an argument changed");
  return {};
}

}  // namespace octavo::testing
