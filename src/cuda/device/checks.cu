// Checks of scales and zero points on the device; refusal.hpp has how they work.
#include "cuda/device/device.hpp"
#include "cuda/device/refusals.hpp"

namespace octavo::cuda {
namespace {

template <class C>
OCTAVO_DEVICE bool is_good(const Check& check, C value, std::int64_t i) {
  if (check.converted != nullptr) static_cast<C*>(check.converted)[i] = value;
  return check.rule == Rule::divisor ? numerics::is_divisor(value) : numerics::is_finite(value);
}

template <DType type>
OCTAVO_DEVICE bool is_good_as(const Check& check, std::int64_t i) {
  const auto value = numerics::Type<type>::read(check.values, i);
  return check.compute == DType::f64 ? is_good(check, static_cast<double>(value), i)
                                     : is_good(check, static_cast<float>(value), i);
}

OCTAVO_DEVICE bool is_good(const Check& check, std::int64_t i) {
  switch (check.type) {
    case DType::f32:
      return is_good_as<DType::f32>(check, i);
    case DType::f64:
      return is_good_as<DType::f64>(check, i);
    case DType::f16:
      return is_good_as<DType::f16>(check, i);
    case DType::bf16:
      return is_good_as<DType::bf16>(check, i);
    default: {
      const std::int32_t value = static_cast<const std::int32_t*>(check.values)[i];
      return check.low <= value && value <= check.high;
    }
  }
}

OCTAVO_DEVICE std::uint64_t bits_of(const Check& check, std::int64_t i) {
  switch (check.type) {
    case DType::f64:
      return static_cast<const std::uint64_t*>(check.values)[i];
    case DType::f32:
    case DType::s32:
      return static_cast<const std::uint32_t*>(check.values)[i];
    default:
      return static_cast<const std::uint16_t*>(check.values)[i];
  }
}

}  // namespace

extern "C" __global__ void fold_refusals(const FoldArgs args) { fold(*args.state); }

extern "C" __global__ void refuse(const RefuseArgs args) {
  fold(*args.state);
  args.state->latest = args.refusal;
}

// Any number of blocks; of several, the last that is done writes the record, and `fold_refusals` is
// launched before.
extern "C" __global__ void __launch_bounds__(check_threads) check_values(const CheckArgs args) {
  RefusalState& state = *args.state;
  if (blocks_x() == 1 && thread_x() == 0) fold(state);

  std::uint64_t least = nothing_wrong;
  const std::int64_t step = std::int64_t{blocks_x()} * check_threads;
  for (int c = 0; c < args.count; ++c) {
    const Check& check = args.checks[c];
    const std::int64_t from = std::int64_t{block_x()} * check_threads + thread_x();
    for (std::int64_t i = from; i < check.count; i += step) {
      if (is_good(check, i)) continue;
      const auto key = static_cast<std::uint64_t>(c) << 48U | static_cast<std::uint64_t>(i);
      least = std::min(least, key);
    }
  }
  least = least_of_block<check_threads>(least);
  if (thread_x() != 0) return;
  least = least_of_grid(state, least);
  if (least == nothing_wrong) return;
  const Check& wrong = args.checks[least >> 48U];
  Refusal& record = state.latest;
  record.key = least;
  record.bits = bits_of(wrong, record.index());
  record.word = wrong.word;
  record.detail = wrong.detail;
}

}  // namespace octavo::cuda
