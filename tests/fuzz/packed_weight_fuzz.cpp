// Images of packed weights. The first byte says what is made right before one is read:
//
//     i   nothing
//     c   its checksum
//     s   the sums of its columns (of layout 1), and its checksum
//     p   it is packed: the next three bytes are n, k and which type, the rest are weights
//     g   the same in groups: k is four times as much, the groups are of 4 or 8, the first weights
//         are taken as scales, too
//
// Padding that is not 0 is left as it is; that is refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "files.hpp"
#include "octavo/packed_weight.hpp"
#include "octavo/quantized_matmul.hpp"

namespace octavo::fuzz {
namespace {

using Image = std::vector<std::byte>;
constexpr std::size_t n_at = 16, k_at = 24, checksum_at = 32, header_bytes = 64;

// Panels of columns, of each of which four weights lie together; k is padded to 64.
constexpr std::int64_t columns = 16, step = 4, padded = 64;

template <class T>
T get(const Image& image, std::size_t at) {
  T value{};
  std::memcpy(&value, image.data() + at, sizeof(value));
  return value;
}
template <class T>
void set(Image& image, std::size_t at, T value) {
  std::memcpy(image.data() + at, &value, sizeof(value));
}

void make_sums_right(Image& image) {
  const auto n = get<std::int64_t>(image, n_at), k = get<std::int64_t>(image, k_at);
  constexpr std::int64_t most = 1 << 20;
  if (n < 0 || k < 0 || n > most || k > most) return;
  const std::int64_t panels = (n + columns - 1) / columns;
  const std::int64_t panel = (k + padded - 1) / padded * padded * columns;
  constexpr auto first = static_cast<std::int64_t>(header_bytes);
  if (std::ssize(image) != first + panels * (panel + columns * 8)) return;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(panels * columns));
  for (std::int64_t i = 0; i < panels * panel; ++i)
    sums[static_cast<std::size_t>(i / panel * columns + i / step % columns)] +=
        static_cast<std::int8_t>(image[static_cast<std::size_t>(first + i)]);
  if (!sums.empty())
    std::memcpy(image.data() + image.size() - sums.size() * 8, sums.data(), sums.size() * 8);
}

void make_checksum_right(Image& image) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  std::uint64_t h = 0;
  set(image, checksum_at, std::uint64_t{0});
  const auto add = [&](std::size_t first, std::size_t bytes) {
    h ^= bytes * odd;
    for (std::size_t i = 0; i < bytes; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, image.data() + first + i, std::min<std::size_t>(8, bytes - i));
      h = (h ^ word) * odd;
      h ^= h >> 32U;
    }
  };
  add(0, header_bytes);
  add(header_bytes, image.size() - header_bytes);
  set(image, checksum_at, h);
}

// The image of weights that are as long as n, k and the bytes there are say.
Image packed(std::span<const std::byte> bytes, bool in_groups) {
  if (bytes.size() < 3) return {};
  const auto n = static_cast<std::int64_t>(bytes[0]);
  const auto k = static_cast<std::int64_t>(bytes[1]) * (in_groups ? 4 : 1);
  const auto which = std::to_integer<std::size_t>(bytes[2]);
  constexpr DType types[] = {DType::s8,  DType::u8,  DType::s4,  DType::u4,
                             DType::f32, DType::f16, DType::bf16};
  const DType type = types[which % (in_groups ? 4 : 7)];
  std::vector<std::byte> weights(bytes.begin() + 3, bytes.end());
  weights.resize(static_cast<std::size_t>(n * bytes_for(type, k)) + 16);
  const TensorRef rows(weights.data(), type, {n, k});
  const Stream stream = Stream::cpu({.threads = 1});
  if (!in_groups) {
    const auto made = pack(stream, rows);
    require(accepted(made), "weights that can be packed");
    return made->serialize();
  }
  const std::int64_t group = which % 8 < 4 || k % 8 != 0 ? 4 : 8;
  const std::vector<f16> scales(static_cast<std::size_t>(n * (k / group)),
                                f16{static_cast<std::uint16_t>(which << 4U)});
  const auto made = pack(stream, rows, {group, TensorRef(scales.data(), {n, k / group})});
  require(accepted(made), "groups that can be packed");
  return made->serialize();
}

// What was read is what was packed: unpacked and packed again it is the same.
void require_same_again(const Image& image, const PackedWeight& w) {
  const WeightFormat f = w.format();
  const std::int64_t groups = f.group == 0 ? 0 : w.k() / f.group;
  Image rows(static_cast<std::size_t>(w.n() * bytes_for(f.code, w.k())) + 1);
  Image scales(static_cast<std::size_t>(bytes_for(f.scales, w.n() * groups)) + 1);
  std::vector<std::int32_t> zeros(static_cast<std::size_t>(w.n() * groups) + 1);
  const TensorMut weight(rows.data(), f.code, {w.n(), w.k()});
  const TensorMut scale(scales.data(), f.scales, {w.n(), groups});
  const TensorMut zero(zeros.data(), DType::s32, {w.n(), groups});
  require(accepted(w.unpack(weight, groups > 0 ? scale : TensorMut(),
                            f.zero_points ? zero : TensorMut())),
          "that what was read can be unpacked");
  WeightGroups with;
  if (groups > 0) {
    with.size = f.group;
    with.scales = scale;
    if (f.zero_points) with.zero_points = zero;
  }
  const auto again = pack(Stream::cpu({.threads = 1}), weight, with);
  require(accepted(again) && again->serialize() == image, "the same image of what was unpacked");
}

// Activations, and their zero point, so that the sums of columns count.
constexpr std::int32_t zero_point = 3;
std::uint8_t activation_at(std::int64_t k) { return static_cast<std::uint8_t>(k * 37 + 11); }

// One row of activations times the weights of an image that was accepted, in plain loops.
std::vector<std::int32_t> expected(const Image& image, const PackedWeight& w) {
  std::vector<std::int32_t> y;
  const std::int64_t depth = (w.k() + padded - 1) / padded * padded;
  constexpr auto first = static_cast<std::int64_t>(header_bytes);
  for (std::int64_t n = 0; n < w.n(); ++n) {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < w.k(); ++k) {
      const std::int64_t at =
          (n / columns * depth + k / step * step) * columns + n % columns * step + k % step;
      const auto weight = static_cast<std::int8_t>(image[static_cast<std::size_t>(first + at)]);
      sum += std::int64_t{activation_at(k) - zero_point} *
             (weight + (w.dtype() == DType::u8 ? 128 : 0));
    }
    y.push_back(static_cast<std::int32_t>(sum));
  }
  return y;
}

// The same by the kernels of a target.
std::vector<std::int32_t> product(const PackedWeight& w, Target cap) {
  const Stream stream = Stream::cpu({.threads = 1, .cap = cap});
  const auto plan = QuantizedMatmulPlan::select(stream, {.m = 1,
                                                         .n = w.n(),
                                                         .k = w.k(),
                                                         .activation = DType::u8,
                                                         .weight = w.dtype(),
                                                         .output = DType::s32,
                                                         .activation_zero_points = true,
                                                         .packed_weight = true});
  require(accepted(plan), "a plan for what was read");
  std::vector<std::uint8_t> x;
  for (std::int64_t k = 0; k < w.k(); ++k) x.push_back(activation_at(k));
  std::vector<std::int32_t> y(static_cast<std::size_t>(w.n()));
  const WorkspaceBuffer workspace(plan->workspace_size());
  require(accepted(plan->run(stream, workspace,
                             {.input = TensorRef(x, {1, w.k()}),
                              .activation_zero_points = TensorRef(&zero_point, {1}),
                              .weight = w,
                              .output = TensorMut(y, {1, w.n()})})),
          "a run with what was read");
  return y;
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto mode = static_cast<char>(input.front());
  input = input.subspan(1);
  const bool makes = mode == 'p' || mode == 'g';
  Image image = makes ? packed(input, mode == 'g') : Image(input.begin(), input.end());
  if (image.size() >= header_bytes) {
    if (mode == 's') make_sums_right(image);
    if (mode == 's' || mode == 'c') make_checksum_right(image);
  }
  const auto read = PackedWeight::deserialize(image);
  if (!accepted(read)) {
    require(!makes || image.empty(), "that what was packed can be read");
    return;
  }
  constexpr std::size_t version_at = 8;
  constexpr std::int64_t most = 1 << 16;
  if (read->n() > most || read->k() > most) return;
  if (get<std::uint32_t>(image, version_at) == 1) image = read->serialize();
  require(read->serialize() == image, "the same image of what was read");
  require_same_again(image, *read);
  if (read->format().layout != 1) return;
  const std::vector<std::int32_t> sums = expected(image, *read);
  for (const Target target : available_targets())
    require(product(*read, target) == sums, "the sums of its weights on every target");
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
