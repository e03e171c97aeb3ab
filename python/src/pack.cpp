// pack: weights of the host's memory, or of a device's.
#include <cmath>
#include <cstring>

#include "linear_call.hpp"
#include "packed_weight.hpp"

namespace octavo::python {
namespace {

// Numbers of output channels, checked here: a call that is refused later could not say where they
// came from. (On a device that call is all there is to see them.)
template <class Good>
Kept keep(Numbers& numbers, const char* argument, Good good, const std::string& expected, On& on) {
  if (!numbers.on_device())
    for (std::int64_t i = 0; i < numbers.numel(); ++i)
      if (!good(numbers.at(i)))
        invalid(argument,
                fmt::format("expected {}, got {} at index {}", expected, numbers.at(i), i));
  const TensorRef ref = numbers.ref(1, on);
  const auto size = static_cast<std::size_t>(numbers.numel() * bytes_for(ref.dtype, 1));
  Kept kept;
  kept.dtype = ref.dtype;
  if (on.on_device()) {
    const auto block = Block::make(on.queue(), size);
    if (!block) throw Refused(block.error());
    if (Status s = on.queue()->copy((*block)->memory(), ref.data, size); !s)
      throw Refused(s.error());
    kept.block = *block;
    return kept;
  }
  kept.bytes.resize(size);
  if (!kept.bytes.empty()) std::memcpy(kept.bytes.data(), ref.data, kept.bytes.size());
  return kept;
}

void keep_channels(PyPackedWeight& made, Numbers& scale, Numbers& zero_point, DType weight,
                   On& on) {
  if (scale.given())
    made.scale = keep(
        scale, "scale", [](double v) { return std::isfinite(v); }, "scales that are finite", on);
  if (!zero_point.matter()) return;
  const IntRange range = storage_range(weight);
  made.zero_point = keep(
      zero_point, "zero_point", [&](double v) { return v >= range.min && v <= range.max; },
      fmt::format("{} to {}, the range of {}", range.min, range.max, octavo::name(weight)), on);
}

// Codes as compressed-tensors stores them: [N, ceil(K / 8)] of int32 for s4, [N, ceil(K / 4)] for
// s8, the first in the lowest bits, more by 8 or 128. Nothing, if the weight is no such words.
std::optional<TensorRef> words_of(const Rows& rows, nb::handle q_dtype, nb::handle length) {
  const Array& array = rows.array();
  if (array.held != Held::s32 || array.rank() != 2 || q_dtype.is_none()) return std::nullopt;
  const DType type = parse_dtype(q_dtype, "q_dtype");
  if (type != DType::s4 && type != DType::s8) return std::nullopt;
  const std::int64_t per_word = 32 / bits(type);
  const std::int64_t words = rows.ref.shape[1];
  const std::int64_t k = parse_integer(length, "length").value_or(words * per_word);
  if (k < 0 || k > words * per_word || (k + per_word - 1) / per_word != words)
    invalid("length",
            fmt::format("expected {} to {} for rows of {} words of 32 bits, got {}",
                        words > 0 ? (words - 1) * per_word + 1 : 0, words * per_word, words, k));
  return TensorRef(rows.ref.data, type, Shape{rows.ref.shape[0], k},
                   Shape{rows.ref.strides[0] * per_word, 1});
}

}  // namespace

PyPackedWeight pack_weight(nb::handle weight_q, nb::handle scale, nb::handle zero_point,
                           nb::handle group_size, nb::handle q_dtype, nb::handle length) {
  On on;
  const Rows rows(weight_q, "weight_q", on);
  const std::optional<TensorRef> words = words_of(rows, q_dtype, length);
  const TensorRef w = words ? *words : weight_of(rows, q_dtype, length);
  if (is_float(w.dtype))
    for (const auto& [value, argument] :
         {std::pair(scale, "scale"), {zero_point, "zero_point"}, {group_size, "group_size"}})
      if (!value.is_none())
        invalid(argument,
                fmt::format("expected None with weights of floats, got {}", describe(value)));
  const std::int64_t n = w.shape[0];
  const std::int64_t k = w.shape[1];
  const std::int64_t group = parse_weight_group(group_size, k);
  Numbers scales(scale, "scale", false, on);
  Numbers zero_points(zero_point, "zero_point", true, on);
  if (!scales.given() && !group_size.is_none())
    invalid("scale", "expected the scales of the groups, got None");
  check_weight_numbers(scales, "scale", n, k, group);
  check_weight_numbers(zero_points, "zero_point", n, k, group);
  PyPackedWeight made;
  made.maker = rows.array().maker;
  WeightGroups groups;
  groups.offset = words.has_value();
  if (group != 0) {
    const std::int64_t count = n * (k / group);
    groups.size = group;
    groups.scales = scales.ref(count, on);
    if (zero_points.matter()) groups.zero_points = zero_points.ref(count, on);
  }
  if (on.on_device()) made.device = on.queue()->device();
  if (Status s = on.begin(); !s) throw Refused(s.error());
  std::optional<Result<PackedWeight>> packed;
  {
    const WithoutGil released;
    packed.emplace(pack(on.stream(), w, groups));
  }
  if (*packed) made.packed = **packed;
  Status status = *packed ? Status() : Status(packed->error());
  if (status && group == 0) keep_channels(made, scales, zero_points, w.dtype, on);
  status = on.end(std::move(status));
  if (status && on.on_device()) {
    status = synchronized(*on.queue());  // (it serves on any stream from now on)
  }
  if (!status)
    refuse(status.error(), {{"weight", "weight_q"},
                            {"n", "weight_q"},
                            {"k", "weight_q"},
                            {"scales", "scale"},
                            {"zero_points", "zero_point"}});
  return made;
}

}  // namespace octavo::python
