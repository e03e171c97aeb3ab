#include "ops/linear/cuda/weight.hpp"

#include <algorithm>

#include "cuda/launch.hpp"
#include "ops/linear/cuda/args.hpp"
#include "ops/linear/cuda/values.hpp"
#include "ops/linear/problem.hpp"

namespace octavo::cuda {

extern const Ptx linear_pack_ptx;

namespace {

constexpr Kernel pack_bytes(linear_pack_ptx, "linear_pack_bytes");
constexpr Kernel pack_nibbles(linear_pack_ptx, "linear_pack_nibbles");
constexpr Kernel pack_16_bits(linear_pack_ptx, "linear_pack_16_bits");
constexpr Kernel pack_32_bits(linear_pack_ptx, "linear_pack_32_bits");
constexpr Kernel pack_groups(linear_pack_ptx, "linear_pack_groups");

constexpr std::int64_t most_blocks = 0x7FFFFFFF;

const Kernel& pack_kernel(DType code) {
  switch (bits(code)) {
    case 4:
      return pack_nibbles;
    case 8:
      return pack_bytes;
    case 16:
      return pack_16_bits;
    default:
      return pack_32_bits;
  }
}

// What turns a code into the one that is held, in bits.
unsigned flip_of(DType code, bool offset) {
  switch (code) {
    case DType::s4:
      return offset ? 0 : 8;
    case DType::u8:
      return 128;
    case DType::s8:
      return offset ? 128 : 0;
    default:
      return 0;
  }
}

}  // namespace

Result<std::shared_ptr<CudaWeight>> CudaWeight::make(const std::shared_ptr<Context>& context,
                                                     std::int64_t n, std::int64_t k,
                                                     const WeightFormat& format) {
  std::shared_ptr<CudaWeight> made(new CudaWeight(context, n, k, format));
  const Result<void*> memory = context->allocate(made->bytes);
  if (!memory) return memory.error();
  made->memory_ = *memory;
  return made;
}

CudaWeight::~CudaWeight() {
  {
    const Current current(*context);
    // Work that reads it may be queued, on any stream.
    if (current.status() && memory_ != nullptr) (void)context->driver.context_synchronize();
  }
  context->free(memory_);
}

WeightParts::WeightParts(void* memory, const WeightLayout& layout, const WeightFormat& format)
    : codes(memory) {
  const auto at = [&](std::int64_t offset) { return static_cast<char*>(memory) + offset; };
  if (is_float(format.code)) return;
  if (format.group == 0) {
    sums = reinterpret_cast<std::int64_t*>(at(layout.sums));
    return;
  }
  scales = at(layout.scales);
  if (format.zero_points) zeros = reinterpret_cast<std::int8_t*>(at(layout.zeros));
}

Status enqueue_pack(CudaStream& stream, const Refusal* slot, const TensorRef& weight,
                    std::int64_t n, std::int64_t k, bool offset, const WeightFormat& format,
                    const TensorRef* scales, const TensorRef* zero_points, const WeightParts& to) {
  const std::int64_t panels = blocks_of(n, panel_columns);
  PackArgs args;
  args.slot = slot;
  args.rows = weight.data;
  args.stride = k == 0 ? 0 : bytes_for(format.code, weight.strides[0]);
  args.n = n;
  args.k = k;
  args.flip = flip_of(format.code, offset);
  args.codes = to.codes;
  args.sums = to.sums;
  const auto blocks = static_cast<unsigned>(std::min(panels, most_blocks));
  if (Status s = launch(stream, pack_kernel(format.code), {blocks}, {pack_threads}, 0, args); !s)
    return s;
  if (format.group == 0) return {};
  PackGroupsArgs groups;
  groups.slot = slot;
  groups.n = n;
  groups.groups = k / format.group;
  groups.scales = scales->data;
  groups.scale_bits = bits(scales->dtype);
  if (format.zero_points) groups.zero_points = static_cast<const std::int32_t*>(zero_points->data);
  groups.shift = shift_of(format.code);
  groups.packed_scales = to.scales;
  groups.packed_zeros = to.zeros;
  const std::int64_t most = blocks_of(panels * groups.groups * panel_columns, pack_threads);
  return launch(stream, pack_groups, {static_cast<unsigned>(std::min(most, most_blocks))},
                {pack_threads}, 0, groups);
}

CudaPack::CudaPack(const PackWeightDescriptor& d, int device)
    : PackImpl(
          d, device_format(d.weight, detail::group_of(d.k, d.group_size), d.zero_points, d.scale)),
      device_(device) {}

Result<PackedWeight> CudaPack::make(bool zeroed) const {
  const auto context = Context::of_device(device_);
  if (!context) return context.error();
  auto made = CudaWeight::make(*context, problem.n, problem.k, format);
  if (!made) return made.error();
  if (zeroed && (*made)->bytes > 0) {
    const Current current(**context);
    if (!current.status()) return current.status().error();
    const Driver& d = (*context)->driver;
    if (Status s = check(d, "cuMemsetD8Async",
                         d.set_bytes(reinterpret_cast<DevicePointer>((*made)->at(0)), 0,
                                     (*made)->bytes, nullptr));
        !s)
      return s.error();
    if (Status s = check(d, "cuStreamSynchronize", d.stream_synchronize(nullptr)); !s)
      return s.error();
  }
  return PackedWeightAccess::make(*std::move(made));
}

bool CudaPack::holds(const PackedWeight& packed) const {
  return packed.format() == format && device_weight(packed).context->ordinal == device_;
}

Status check_device(const CudaWeight& weight, const CudaStream& stream, const char* argument) {
  const int device = weight.context->ordinal;
  if (device == stream.context().ordinal) return {};
  return detail::invalid(argument,
                         fmt::format("expected one on CUDA device {}, the stream's, got one "
                                     "on device {}; to(stream) makes a copy",
                                     stream.context().ordinal, device));
}

Status CudaPack::run(const Stream& on, const PackWeightArgs& args) const {
  CudaStream& stream = cuda_of(on);
  if (Status s = check_device(device_weight(*args.packed), stream, "packed"); !s) return s;
  const Enqueue alone(stream);
  if (!alone.status()) return alone.status();
  const CudaWeight& to = device_weight(*args.packed);
  const Refusal* slot = nullptr;
  if (format.group != 0) {
    const auto checked = check_group_values(stream, problem.weight, args.scales, args.zero_points);
    if (!checked) return checked.error();
    slot = *checked;
  }
  return enqueue_pack(stream, slot, args.weight, problem.n, problem.k, problem.offset, format,
                      &args.scales, &args.zero_points, WeightParts(to.at(0), to.layout, format));
}

}  // namespace octavo::cuda
