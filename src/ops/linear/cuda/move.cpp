// Packed weights from the host's memory to a GPU's, and back: through their rows, as either side
// packs what the other has unpacked.
#include <cstring>
#include <vector>

#include "numerics/types.hpp"
#include "ops/linear/cuda/weight.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::cuda {
namespace {

// Device memory for as long as a call.
class Lent {
 public:
  explicit Lent(Context& context) : context_(context) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { context_.free(memory_); }

  /// The same bytes on the device. What was copied is waited for before this ends.
  Status upload(CudaStream& stream, TensorRef& t, std::size_t bytes) {
    const Result<void*> memory = context_.allocate(bytes);
    if (!memory) return memory.error();
    memory_ = *memory;
    const void* from = t.data;
    t.data = memory_;
    if (bytes == 0) return {};
    const Enqueue alone(stream);
    if (!alone.status()) return alone.status();
    const Driver& d = stream.driver();
    return check(
        d, "cuMemcpyHtoDAsync",
        d.copy_to_device(reinterpret_cast<DevicePointer>(memory_), from, bytes, stream.handle()));
  }

 private:
  Context& context_;
  void* memory_ = nullptr;
};

// Of integers, the codes of a column, one by one.
class Codes {
 public:
  Codes(const std::byte* panel, std::int64_t column, DType type)
      : column_(column % panel_columns),
        panel_(panel),
        type_(type) {}
  [[nodiscard]] std::int32_t operator[](std::int64_t k) const {
    const std::int64_t in_block = k % block_k;
    const std::int64_t lane = column_ % 8 * 4 + in_block / 8;
    const std::int64_t second = in_block / 4 % 2;
    if (is_packed(type_)) {
      const auto byte = std::to_integer<std::int32_t>(
          panel_[k / block_k * 512 + 16 * lane + column_ / 8 * 4 + k % 4]);
      return (byte >> (4 * second) & 0xF) - shift_of(type_);
    }
    const auto byte =
        std::to_integer<std::uint8_t>(panel_[k / block_k * 1024 + column_ / 16 * 512 + 16 * lane +
                                             column_ / 8 % 2 * 8 + 4 * second + k % 4]);
    return std::int32_t{static_cast<std::int8_t>(byte)} - shift_of(type_);
  }

 private:
  std::int64_t column_;
  const std::byte* panel_;
  DType type_;
};

void unpack_integers(const CudaWeight& from, const std::byte* body, const TensorMut& weight,
                     const TensorMut& scales, const TensorMut& zero_points) {
  const WeightLayout& layout = from.layout;
  const DType code = from.format.code;
  const auto size = static_cast<std::size_t>(bits(from.format.scales) / 8);
  for (std::int64_t n = 0; n < from.n; ++n) {
    const std::int64_t panel = n / panel_columns;
    const Codes codes(body + panel * layout.blocks * layout.block_bytes, n, code);
    numerics::with_type(detail::LinearWeights(), code, [&]<DType type>() {
      for (std::int64_t k = 0; k < from.k; ++k)
        numerics::Type<type>::write(weight.data, n * weight.strides[0] + k, codes[k]);
    });
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const std::int64_t to = n * layout.groups + g;
      const std::int64_t at = (panel * layout.groups + g) * panel_columns + n % panel_columns;
      if (scales.data != nullptr)
        std::memcpy(static_cast<std::byte*>(scales.data) + static_cast<std::size_t>(to) * size,
                    body + layout.scales + static_cast<std::size_t>(at) * size, size);
      if (zero_points.data != nullptr)
        static_cast<std::int32_t*>(zero_points.data)[to] =
            std::int32_t{
                static_cast<std::int8_t>(std::to_integer<std::uint8_t>(body[layout.zeros + at]))} -
            shift_of(code);
    }
  }
}

void unpack_floats(const CudaWeight& from, const std::byte* body, const TensorMut& weight) {
  const auto size = static_cast<std::size_t>(bits(from.format.code) / 8);
  for (std::int64_t n = 0; n < from.n; ++n)
    for (std::int64_t k = 0; k < from.k; ++k)
      std::memcpy(static_cast<std::byte*>(weight.data) +
                      static_cast<std::size_t>(n * weight.strides[0] + k) * size,
                  body + static_cast<std::size_t>((n / panel_columns * from.k + k) * panel_columns +
                                                  n % panel_columns) *
                             size,
                  size);
}

}  // namespace

Status CudaWeight::unpack(const TensorMut& weight, const TensorMut& scales,
                          const TensorMut& zero_points) const {
  std::vector<std::byte> body(bytes);
  if (bytes > 0) {
    const Current current(*context);
    if (!current.status()) return current.status();
    const Driver& d = context->driver;
    // (The legacy default stream waits for all others that are not expressly apart from it.)
    if (Status s = check(
            d, "cuMemcpyDtoHAsync",
            d.copy_to_host(body.data(), reinterpret_cast<DevicePointer>(at(0)), bytes, nullptr));
        !s)
      return s;
    if (Status s = check(d, "cuStreamSynchronize", d.stream_synchronize(nullptr)); !s) return s;
  }
  if (n == 0 || k == 0) return {};
  if (is_float(format.code)) {
    unpack_floats(*this, body.data(), weight);
  } else {
    unpack_integers(*this, body.data(), weight, scales, zero_points);
  }
  return {};
}

Status CudaPack::pack_from_host(const Stream& on, const PackWeightArgs& args) const {
  CudaStream& stream = cuda_of(on);
  const auto bytes_of = [](const TensorRef& t, DType type, std::int64_t count) {
    return static_cast<std::size_t>(t.data == nullptr ? 0 : bytes_for(type, count));
  };
  PackWeightArgs own = args;
  Lent weight(stream.context());
  Lent scales(stream.context());
  Lent zero_points(stream.context());
  const std::int64_t groups = problem.n * detail::groups_of(problem.k, format.group);
  const std::int64_t stride = problem.k == 0 ? 0 : args.weight.strides[0];
  if (Status s = weight.upload(stream, own.weight,
                               bytes_of(args.weight, problem.weight, problem.n * stride));
      !s)
    return s;
  if (Status s = scales.upload(stream, own.scales, bytes_of(args.scales, problem.scale, groups));
      !s)
    return s;
  if (Status s = zero_points.upload(stream, own.zero_points,
                                    bytes_of(args.zero_points, DType::s32, groups));
      !s)
    return s;
  const Status ran = run(on, own);
  // What was uploaded is the caller's, and what it was copied to goes now.
  const Driver& d = stream.driver();
  const Current current(stream.context());
  const Status waited = current.status()
                            ? check(d, "cuStreamSynchronize", d.stream_synchronize(stream.handle()))
                            : current.status();
  return ran ? waited : ran;
}

}  // namespace octavo::cuda
