// Packed weights: what is known of them, and their image.
#include "ops/linear/packed_weight.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/panels.hpp"
#include "ops/linear/problem.hpp"

namespace octavo {
namespace {

// An image: a header, and the weights as they are held; all little-endian, as both kinds of CPU
// are. Headers of version 1 end after the checksum; all of those are of layout 1.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t dtype;
  std::int64_t n;
  std::int64_t k;
  std::uint64_t checksum;  // of all else, this being 0
  std::int64_t group;
  std::uint32_t layout;
  std::uint8_t scales;
  std::uint8_t zero_points;
  std::uint8_t unused[10];
};
static_assert(sizeof(Header) == 64);  // so that what follows is aligned where the image is
constexpr std::size_t header_1 = 40;
constexpr char magic[8] = {'O', 'C', 'T', 'A', 'V', 'O', 'P', 'W'};
constexpr std::uint32_t version = 2;

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t h) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  h ^= bytes.size() * odd;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof h) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    h = (h ^ word) * odd;
    h ^= h >> 32U;
  }
  return h;
}
std::uint64_t checksum(Header header, std::size_t header_bytes, std::span<const std::byte> rest) {
  header.checksum = 0;
  const auto bytes = std::as_bytes(std::span(&header, 1)).first(header_bytes);
  return checksum(rest, checksum(bytes, 0));
}

// What a header says, checked.
struct Described {
  std::size_t header_bytes = 0;
  WeightFormat format;
};

Result<Described> describe(const Header& h, std::size_t size) {
  using detail::invalid;
  using detail::unsupported;
  if (h.version < 1 || h.version > version)
    return unsupported("image",
                       fmt::format("expected version 1 to {}, got {}", version, h.version));
  Described d;
  d.header_bytes = h.version == 1 ? header_1 : sizeof h;
  if (size < d.header_bytes)
    return invalid("image",
                   fmt::format("expected at least {} bytes, got {}", d.header_bytes, size));
  const auto code = static_cast<DType>(h.dtype);
  if (h.version == 1) {
    if (h.dtype > 0xFF || !detail::LinearBytes::has(code))
      return unsupported("image", fmt::format("expected weights of {}, got type {}",
                                              detail::LinearBytes::words(), h.dtype));
    d.format = detail::host_format(code, 0, false, DType::f32);
  } else {
    if (h.dtype > 0xFF || !detail::PackedTypes::has(code))
      return unsupported("image", fmt::format("expected weights of {}, got type {}",
                                              detail::PackedTypes::words(), h.dtype));
    if (Status s = detail::check_group(h.group, h.k); !s)
      return invalid("image",
                     fmt::format("expected groups of at most {} that divide k = {}, got {}",
                                 detail::max_group, h.k, h.group));
    d.format = {code, h.group, h.layout, h.zero_points == 1, static_cast<DType>(h.scales)};
    constexpr Header none{};
    if (h.zero_points > 1 || std::memcmp(h.unused, none.unused, sizeof h.unused) != 0 ||
        !detail::LinearFloats::has(d.format.scales) || (h.group != 0 && h.group >= h.k) ||
        d.format != detail::host_format(code, h.group, d.format.zero_points, d.format.scales))
      return unsupported("image", fmt::format("expected a format that CPUs read, got {}",
                                              detail::to_string(d.format)));
  }
  if (Status s = detail::check_weight_sizes(h.n, h.k); !s) return s.error();
  const std::size_t expected =
      static_cast<std::size_t>(detail::packed_bytes(h.n, h.k, d.format)) + d.header_bytes;
  const std::string text =
      fmt::format("expected {} bytes for [{}, {}], got {}", expected, h.n, h.k, size);
  if (size < expected)
    return Error(ErrorCode::buffer_too_small, "image", "image: " + text,
                 static_cast<std::int64_t>(expected), static_cast<std::int64_t>(size));
  if (size > expected) return invalid("image", text);
  return d;
}

}  // namespace

std::int64_t PackedWeight::n() const noexcept { return impl_ ? impl_->n : 0; }
std::int64_t PackedWeight::k() const noexcept { return impl_ ? impl_->k : 0; }
DType PackedWeight::dtype() const noexcept { return format().code; }
WeightFormat PackedWeight::format() const noexcept {
  return impl_ ? impl_->format : WeightFormat();
}
std::size_t PackedWeight::bytes() const noexcept { return impl_ ? impl_->bytes : 0; }

std::size_t PackedWeight::serialized_bytes() const noexcept {
  return empty() || impl_->image() == nullptr ? 0 : sizeof(Header) + bytes();
}

std::vector<std::byte> PackedWeight::serialize() const {
  std::vector<std::byte> image(serialized_bytes());
  (void)serialize(image);
  return image;
}

Status PackedWeight::serialize(std::span<std::byte> image) const {
  if (empty()) return {};
  if (impl_->image() == nullptr)
    return detail::unsupported(
        "image", fmt::format("expected a packed weight of the host's, which images hold, got {}",
                             detail::to_string(format())));
  if (image.size() < serialized_bytes())
    return Error(ErrorCode::buffer_too_small, "image",
                 fmt::format("image: expected at least {} bytes (serialized_bytes), got {}",
                             serialized_bytes(), image.size()),
                 static_cast<std::int64_t>(serialized_bytes()),
                 static_cast<std::int64_t>(image.size()));
  image = image.first(serialized_bytes());
  const auto begin = reinterpret_cast<std::uintptr_t>(image.data());
  if (impl_->lent.overlaps({begin, begin + image.size()}))
    return detail::invalid("image", "expected memory apart from the packed weight, got an overlap");
  if (bytes() > 0) std::memcpy(image.data() + sizeof(Header), impl_->image(), bytes());
  const WeightFormat& f = impl_->format;
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = version;
  header.dtype = static_cast<std::uint32_t>(f.code);
  header.n = impl_->n;
  header.k = impl_->k;
  header.group = f.group;
  header.layout = f.layout;
  header.scales = static_cast<std::uint8_t>(f.scales);
  header.zero_points = f.zero_points ? 1 : 0;
  header.checksum = checksum(header, sizeof header, image.subspan(sizeof(Header)));
  std::memcpy(image.data(), &header, sizeof header);
  return {};
}

Result<PackedWeight> PackedWeight::deserialize(std::span<const std::byte> image) {
  return detail::read_image(image, nullptr);
}

Result<PackedWeight> PackedWeight::deserialize_in_place(std::span<const std::byte> image,
                                                        std::shared_ptr<const void> keeper) {
  if (keeper == nullptr)
    return detail::invalid("keeper",
                           "expected what keeps the memory of the image, got nothing; deserialize "
                           "copies it");
  return detail::read_image(image, std::move(keeper));
}

Result<PackedWeight> detail::read_image(std::span<const std::byte> image,
                                        std::shared_ptr<const void> keeper) {
  Header h{};
  if (image.size() < header_1)
    return invalid("image",
                   fmt::format("expected at least {} bytes, got {}", header_1, image.size()));
  std::memcpy(&h, image.data(), std::min(sizeof h, image.size()));
  if (std::memcmp(h.magic, magic, sizeof magic) != 0)
    return invalid("image", "expected a packed weight, got something else (no OCTAVOPW in front)");
  const Result<Described> found = describe(h, image.size());
  if (!found) return found.error();
  constexpr std::uintptr_t alignment = 64;
  if (keeper != nullptr && h.version != 1 &&
      reinterpret_cast<std::uintptr_t>(image.data()) % alignment != 0)
    return Error(
        ErrorCode::misaligned_operand, "image",
        fmt::format("image: expected memory aligned to {} bytes, got one {} past that; "
                    "deserialize copies it",
                    alignment, reinterpret_cast<std::uintptr_t>(image.data()) % alignment));
  const auto rest = image.subspan(found->header_bytes);
  const std::uint64_t sum = checksum(h, found->header_bytes, rest);
  if (sum != h.checksum)
    return invalid("image", fmt::format("expected the checksum it was written with ({:016x}), got "
                                        "{:016x}: it is damaged",
                                        h.checksum, sum));
  if (h.version == 1) return detail::load_version_1(h.n, h.k, found->format, rest);
  return detail::load_weight(h.n, h.k, found->format, rest, std::move(keeper));
}

Status PackedWeight::unpack(const TensorMut& weight, const TensorMut& scales,
                            const TensorMut& zero_points) const {
  using detail::invalid;
  if (empty()) return invalid("packed", "expected a packed weight, got an empty one");
  const WeightFormat& f = impl_->format;
  if (!impl_->can_unpack())
    return detail::unsupported(
        "packed",
        fmt::format("expected a packed weight of the host's, got {}", detail::to_string(f)));
  const Result<detail::Checked> rows = detail::check_output("weight", weight, f.code);
  if (!rows) return rows.error();
  if (!(weight.shape == Shape{n(), k()}))
    return invalid("weight", fmt::format("expected shape [{}, {}], got {}", n(), k(),
                                         detail::to_string(weight.shape)));
  if (rows->extent.overlaps(impl_->lent))
    return invalid("weight", "expected memory apart from the packed weight, got an overlap");
  // By the packed weight, the weights, the scales and the zero points.
  detail::Extent taken[4] = {impl_->lent, rows->extent};
  int parts = 2;
  const auto check = [&](const char* argument, const TensorMut& t, bool held,
                         DType type) -> Status {
    const TensorRef given = t;
    if (!detail::is_given(&given)) return {};
    if (!held)
      return invalid(argument, fmt::format("expected none (it holds none: {}), got some",
                                           detail::to_string(f)));
    const auto checked =
        detail::check_array(argument, given, type, n() * detail::groups_of(k(), f.group));
    if (!checked) return checked.error();
    for (const detail::Extent& other : taken)
      if (checked->extent.overlaps(other))
        return invalid(argument, "expected memory apart from the others, got an overlap");
    taken[parts++] = checked->extent;
    return {};
  };
  if (Status s = check("scales", scales, f.group != 0, f.scales); !s) return s;
  if (Status s = check("zero_points", zero_points, f.zero_points, DType::s32); !s) return s;
  return impl_->unpack(weight, scales, zero_points);
}

std::string detail::to_string(const WeightFormat& format) {
  std::string scales;
  if (format.group != 0)
    scales = fmt::format(", groups of {}, scales of {}{}", format.group, name(format.scales),
                         format.zero_points ? ", zero points" : "");
  else if (!is_float(format.code))
    scales = ", one scale per channel";
  return fmt::format("{}{}, layout {}", name(format.code), scales, format.layout);
}

}  // namespace octavo
