// Packed weights in a GPU's memory.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/stream.hpp"
#include "ops/linear/cuda/layout.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/packed_weight.hpp"

namespace octavo::cuda {

struct CudaWeight final : PackedWeight::Impl {
  static Result<std::shared_ptr<CudaWeight>> make(const std::shared_ptr<Context>& context,
                                                  std::int64_t n, std::int64_t k,
                                                  const WeightFormat& format);
  ~CudaWeight() override;

  /// Waits for what was run on the context's streams; those of the caller's that are not ordered
  /// with the legacy default stream are the caller's to wait for.
  [[nodiscard]] Status unpack(const TensorMut& weight, const TensorMut& scales,
                              const TensorMut& zero_points) const override;
  [[nodiscard]] bool can_unpack() const override { return true; }

  [[nodiscard]] void* at(std::int64_t offset) const { return static_cast<char*>(memory_) + offset; }

  const WeightLayout layout;
  const std::shared_ptr<Context> context;

 private:
  CudaWeight(const std::shared_ptr<Context>& where, std::int64_t columns, std::int64_t sums_over,
             const WeightFormat& f)
      : Impl(columns, sums_over, f),
        layout(columns, sums_over, f),
        context(where) {
    bytes = static_cast<std::size_t>(layout.bytes);
  }
  void* memory_ = nullptr;
};

inline const CudaWeight& device_weight(const PackedWeight& packed) {
  return static_cast<const CudaWeight&>(*packed.impl());
}

/// That a weight lies on the stream's device.
Status check_device(const CudaWeight& weight, const CudaStream& stream, const char* argument);

/// Where the parts of a packed weight are.
struct WeightParts {
  void* codes = nullptr;
  std::int64_t* sums = nullptr;
  void* scales = nullptr;
  std::int8_t* zeros = nullptr;

  WeightParts() = default;
  WeightParts(void* memory, const WeightLayout& layout, const WeightFormat& format);
};

/// Enqueues the packing of rows; of groups with their scales and zero points. Inside an Enqueue.
Status enqueue_pack(CudaStream& stream, const Refusal* slot, const TensorRef& weight,
                    std::int64_t n, std::int64_t k, bool offset, const WeightFormat& format,
                    const TensorRef* scales, const TensorRef* zero_points, const WeightParts& to);

class CudaPack final : public detail::PackImpl {
 public:
  CudaPack(const PackWeightDescriptor& descriptor, int device);
  [[nodiscard]] Result<PackedWeight> make(bool zeroed) const override;
  [[nodiscard]] Status check_values(const PackWeightArgs& /*args*/) const override { return {}; }
  [[nodiscard]] Status run(const Stream& on, const PackWeightArgs& args) const override;
  [[nodiscard]] bool holds(const PackedWeight& packed) const override;
  [[nodiscard]] Status pack_from_host(const Stream& on, const PackWeightArgs& args) const override;

 private:
  const int device_;
};

}  // namespace octavo::cuda
