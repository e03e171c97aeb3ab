// The linear plans, and the packing of their weights, on CUDA devices.
#include "ops/linear/cuda/linear.hpp"

namespace octavo::detail {
namespace {

Found<std::shared_ptr<LinearImpl>> find_linear(const LinearProblem& p, const Allowed& /*allowed*/) {
  return {std::make_shared<cuda::CudaLinear>(p)};
}
Found<std::shared_ptr<PackImpl>> find_pack(const PackWeightDescriptor& d, const Allowed& allowed) {
  return {std::make_shared<cuda::CudaPack>(d, allowed.device)};
}

constexpr LinearEntry linear_entries[] = {{{Backend::cuda, Target::sm80}, find_linear}};
constexpr PackEntry pack_entries[] = {{{Backend::cuda, Target::sm80}, find_pack}};

}  // namespace

std::span<const LinearEntry> cuda_linear() { return linear_entries; }
std::span<const PackEntry> cuda_pack() { return pack_entries; }

}  // namespace octavo::detail
