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

// An image: a header, the sums, the panels; all little-endian, as both kinds of CPU are.

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t dtype;
  std::int64_t n;
  std::int64_t k;
  std::uint64_t checksum;  // of all else, this being 0
};
static_assert(sizeof(Header) == 40);
constexpr char magic[8] = {'O', 'C', 'T', 'A', 'V', 'O', 'P', 'W'};
constexpr std::uint32_t version = 1;

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
std::uint64_t checksum(Header header, std::span<const std::byte> rest) {
  header.checksum = 0;
  return checksum(rest, checksum(std::as_bytes(std::span(&header, 1)), 0));
}

bool has_image(const WeightFormat& format) { return format == detail::panels_format(format.code); }

}  // namespace

std::int64_t PackedWeight::n() const noexcept { return impl_ ? impl_->n : 0; }
std::int64_t PackedWeight::k() const noexcept { return impl_ ? impl_->k : 0; }
DType PackedWeight::dtype() const noexcept { return format().code; }
WeightFormat PackedWeight::format() const noexcept {
  return impl_ ? impl_->format : WeightFormat();
}
std::size_t PackedWeight::bytes() const noexcept { return impl_ ? impl_->bytes : 0; }

std::size_t PackedWeight::serialized_bytes() const noexcept {
  return empty() || !has_image(format()) ? 0 : sizeof(Header) + bytes();
}

std::vector<std::byte> PackedWeight::serialize() const {
  std::vector<std::byte> image(serialized_bytes());
  (void)serialize(image);
  return image;
}

Status PackedWeight::serialize(std::span<std::byte> image) const {
  if (empty()) return {};
  if (!has_image(format()))
    return detail::unsupported(
        "image", fmt::format("expected a packed weight of layout {}, which images hold, got {}",
                             detail::panels_layout, detail::to_string(format())));
  if (image.size() < serialized_bytes())
    return Error(ErrorCode::buffer_too_small, "image",
                 fmt::format("image: expected at least {} bytes (serialized_bytes), got {}",
                             serialized_bytes(), image.size()),
                 static_cast<std::int64_t>(serialized_bytes()),
                 static_cast<std::int64_t>(image.size()));
  image = image.first(serialized_bytes());
  impl_->write_to(image.data() + sizeof(Header));
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = version;
  header.dtype = static_cast<std::uint32_t>(impl_->format.code);
  header.n = impl_->n;
  header.k = impl_->k;
  header.checksum = checksum(header, image.subspan(sizeof(Header)));
  std::memcpy(image.data(), &header, sizeof header);
  return {};
}

Result<PackedWeight> PackedWeight::deserialize(std::span<const std::byte> image) {
  using detail::invalid;
  using detail::unsupported;
  Header h{};
  if (image.size() < sizeof h)
    return invalid("image",
                   fmt::format("expected at least {} bytes, got {}", sizeof h, image.size()));
  std::memcpy(&h, image.data(), sizeof h);
  if (std::memcmp(h.magic, magic, sizeof magic) != 0)
    return invalid("image", "expected a packed weight, got something else (no OCTAVOPW in front)");
  if (h.version != version)
    return unsupported("image", fmt::format("expected version {}, got {}", version, h.version));
  // Of version 1 all images are of layout 1, without groups.
  const auto code = static_cast<DType>(h.dtype);
  if (h.dtype > 0xFF || !detail::LinearBytes::has(code))
    return unsupported("image", fmt::format("expected weights of {}, got type {}",
                                            detail::LinearBytes::words(), h.dtype));
  if (Status s = detail::check_weight_sizes(h.n, h.k); !s) return s.error();
  const std::size_t expected =
      static_cast<std::size_t>(detail::panels_of(h.n)) *
          (static_cast<std::size_t>(detail::panel_bytes_of(h.k)) + detail::panel_columns * 8) +
      sizeof h;
  if (image.size() < expected)
    return Error(ErrorCode::buffer_too_small, "image",
                 fmt::format("image: expected {} bytes for [{}, {}], got {}", expected, h.n, h.k,
                             image.size()),
                 static_cast<std::int64_t>(expected), static_cast<std::int64_t>(image.size()));
  if (image.size() > expected)
    return invalid("image", fmt::format("expected {} bytes for [{}, {}], got {}", expected, h.n,
                                        h.k, image.size()));
  const auto rest = image.subspan(sizeof h);
  if (checksum(h, rest) != h.checksum)
    return invalid("image", fmt::format("expected the checksum it was written with ({:016x}), got "
                                        "{:016x}: it is damaged",
                                        h.checksum, checksum(h, rest)));
  return detail::load_panels(h.n, h.k, code, rest);
}

std::string detail::to_string(const WeightFormat& format) {
  return fmt::format(
      "{}, {}, layout {}", name(format.code),
      format.group == 0 ? "one scale per channel" : fmt::format("groups of {}", format.group),
      format.layout);
}

}  // namespace octavo
