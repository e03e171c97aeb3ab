#include "ops/linear/pack.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "core/target.hpp"

namespace octavo {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20U;
constexpr std::size_t cache_line = 64;

std::align_val_t alignment_of(std::int64_t bytes) {
  return std::align_val_t{static_cast<std::size_t>(bytes) >= huge_page ? huge_page : cache_line};
}

// ---- Four columns by four steps, transposed. Every CPU has vectors of 16 bytes.

using Quads = std::uint32_t __attribute__((vector_size(16)));
constexpr std::int64_t block_k = detail::padded_k;  // a cache line of each row

Quads load(const unsigned char* p) {
  Quads v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// `rows` are block_k bytes of each of 16 columns; step by step, they go to the panel. Four rows at
// a time: sixteen, where they lie a power of two apart, would not stay in the first cache.
void transpose(const unsigned char* const (&rows)[detail::panel_columns], std::uint32_t flip,
               std::int8_t* to) {
  constexpr std::int64_t step_bytes = detail::panel_columns * detail::step_k;
  for (std::int64_t c = 0; c < detail::panel_columns; c += 4)
    for (std::int64_t k = 0; k < block_k; k += 16) {
      const Quads a = load(rows[c] + k) ^ flip;
      const Quads b = load(rows[c + 1] + k) ^ flip;
      const Quads d = load(rows[c + 2] + k) ^ flip;
      const Quads e = load(rows[c + 3] + k) ^ flip;
      const Quads ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Quads ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Quads de_low = __builtin_shufflevector(d, e, 0, 4, 1, 5);
      const Quads de_high = __builtin_shufflevector(d, e, 2, 6, 3, 7);
      const Quads steps[4] = {__builtin_shufflevector(ab_low, de_low, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_low, de_low, 2, 3, 6, 7),
                              __builtin_shufflevector(ab_high, de_high, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_high, de_high, 2, 3, 6, 7)};
      for (std::int64_t step = 0; step < 4; ++step)
        std::memcpy(to + (k / detail::step_k + step) * step_bytes + c * detail::step_k,
                    &steps[step], sizeof steps[step]);
    }
}

// ---- The image: a header, the sums, the panels; all little-endian, as both kinds of CPU are.

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

}  // namespace

struct PackedWeightAccess {
  // The panels hold whatever was there; sums are 0.
  static Result<PackedWeight> make(std::int64_t n, std::int64_t k, DType dtype) try {
    PackedWeight packed;
    packed.impl_ = std::make_shared<PackedWeight::Impl>();
    PackedWeight::Impl& impl = *packed.impl_;
    impl.n = n;
    impl.k = k;
    impl.dtype = dtype;
    impl.data_bytes = detail::panels_of(n) * detail::panel_bytes_of(k);
    impl.sums.assign(static_cast<std::size_t>(detail::panels_of(n) * detail::panel_columns), 0);
    const auto alignment = static_cast<std::size_t>(alignment_of(impl.data_bytes));
    const auto bytes = static_cast<std::size_t>(detail::round_up(
        std::max<std::int64_t>(impl.data_bytes, 1), static_cast<std::int64_t>(alignment)));
    auto* data = static_cast<std::int8_t*>(std::aligned_alloc(alignment, bytes));
    if (data == nullptr) throw std::bad_alloc();
    impl.data.reset(data);
    // Weights are read from end to end: with fewer, larger pages the CPU looks fewer of them up.
    if (alignment == huge_page) (void)madvise(data, bytes, MADV_HUGEPAGE);
    return packed;
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorCode::backend, "weight",
        fmt::format("weight: expected memory for packed weights of [{}, {}], got none", n, k));
  }
  static PackedWeight::Impl& impl(PackedWeight& packed) { return *packed.impl_; }
  static bool is_shared(const PackedWeight& packed) { return packed.impl_.use_count() > 1; }
};

namespace {

// Whether padding is 0 and the sums are those of the columns. An image may be anyone's, and wrong
// sums would give other results on some targets than on others.
bool is_consistent(const PackedWeight::Impl& impl) {
  using detail::panel_columns;
  using detail::step_k;
  const std::int64_t steps = detail::round_up(impl.k, detail::padded_k) / step_k;
  const std::int8_t* at = impl.data.get();
  for (std::int64_t first = 0; first < impl.n; first += panel_columns) {
    std::int64_t sums[panel_columns] = {};
    int padding = 0;
    for (std::int64_t step = 0; step < steps; ++step, at += panel_columns * step_k)
      for (std::int64_t i = 0; i < panel_columns * step_k; ++i) {
        sums[i / step_k] += at[i];
        if (step * step_k + i % step_k >= impl.k || first + i / step_k >= impl.n) padding |= at[i];
      }
    if (padding != 0 || !std::equal(std::begin(sums), std::end(sums), impl.sums.begin() + first))
      return false;
  }
  return true;
}

}  // namespace

std::int64_t PackedWeight::n() const noexcept { return impl_ ? impl_->n : 0; }
std::int64_t PackedWeight::k() const noexcept { return impl_ ? impl_->k : 0; }
DType PackedWeight::dtype() const noexcept { return impl_ ? impl_->dtype : DType::s8; }
std::size_t PackedWeight::bytes() const noexcept {
  return impl_ ? static_cast<std::size_t>(impl_->data_bytes) + impl_->sums.size() * 8 : 0;
}

std::size_t PackedWeight::serialized_bytes() const noexcept {
  return empty() ? 0 : sizeof(Header) + bytes();
}

std::vector<std::byte> PackedWeight::serialize() const {
  std::vector<std::byte> image(serialized_bytes());
  (void)serialize(image);
  return image;
}

Status PackedWeight::serialize(std::span<std::byte> image) const {
  if (empty()) return {};
  if (image.size() < serialized_bytes())
    return Error(ErrorCode::buffer_too_small, "image",
                 fmt::format("image: expected at least {} bytes (serialized_bytes), got {}",
                             serialized_bytes(), image.size()),
                 static_cast<std::int64_t>(serialized_bytes()),
                 static_cast<std::int64_t>(image.size()));
  image = image.first(serialized_bytes());
  std::byte* to = image.data() + sizeof(Header);
  const std::size_t sum_bytes = impl_->sums.size() * 8;
  if (sum_bytes > 0) std::memcpy(to, impl_->sums.data(), sum_bytes);
  std::memcpy(to + sum_bytes, impl_->data.get(), static_cast<std::size_t>(impl_->data_bytes));
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = version;
  header.dtype = static_cast<std::uint32_t>(impl_->dtype);
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
  const auto dtype = static_cast<DType>(h.dtype);
  if (h.dtype > 0xFF || (dtype != DType::s8 && dtype != DType::u8))
    return unsupported("image", fmt::format("expected weights of s8 or u8, got type {}", h.dtype));
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
  Result<PackedWeight> packed = PackedWeightAccess::make(h.n, h.k, dtype);
  if (!packed) return packed;
  Impl& impl = *packed->impl_;
  const std::size_t sum_bytes = impl.sums.size() * 8;
  if (sum_bytes > 0) std::memcpy(impl.sums.data(), rest.data(), sum_bytes);
  if (rest.size() > sum_bytes)
    std::memcpy(impl.data.get(), rest.data() + sum_bytes, rest.size() - sum_bytes);
  if (!is_consistent(impl))
    return invalid("image",
                   "expected sums that are those of its weights, and padding of 0, got "
                   "others: it was not written by serialize");
  return packed;
}

namespace detail {

void pack_panels(const WeightRows& rows, std::int64_t first, std::int64_t last, std::int8_t* to) {
  const std::uint32_t flip = rows.is_unsigned ? 0x80808080U : 0;
  const std::int64_t padded = round_up(rows.k, padded_k);
  for (std::int64_t panel = first; panel < last; ++panel) {
    std::int8_t* out = to + (panel - first) * panel_bytes_of(rows.k);
    const std::int64_t column = panel * panel_columns;
    const std::int64_t columns = std::min(panel_columns, rows.n - column);
    const auto* data = static_cast<const unsigned char*>(rows.data);
    for (std::int64_t k = 0; k < padded; k += block_k, out += block_k * panel_columns) {
      const unsigned char* at[panel_columns];
      if (columns == panel_columns && k + block_k <= rows.k) {
        for (std::int64_t c = 0; c < panel_columns; ++c)
          at[c] = data + (column + c) * rows.stride + k;
        transpose(at, flip, out);
        continue;
      }
      // Columns that are not there, and k beyond the end, are 0 when flipped.
      unsigned char edge[panel_columns][block_k];
      const std::int64_t n = std::clamp<std::int64_t>(rows.k - k, 0, block_k);
      for (std::int64_t c = 0; c < panel_columns; ++c) {
        std::memset(edge[c], rows.is_unsigned ? 0x80 : 0, block_k);
        if (c < columns && n > 0)
          std::memcpy(edge[c], data + (column + c) * rows.stride + k, static_cast<std::size_t>(n));
        at[c] = edge[c];
      }
      transpose(at, flip, out);
    }
  }
}

void add_columns(const WeightRows& rows, std::int64_t first, std::int64_t last,
                 std::int64_t* sums) {
  if (rows.k == 0) return;  // (Of no bytes, the pointer may be null; sums start at 0.)
  for (std::int64_t n = first; n < last; ++n) {
    const auto* row = static_cast<const unsigned char*>(rows.data) + n * rows.stride;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < rows.k; ++i)
      sum += rows.is_unsigned ? row[i] - 128 : static_cast<std::int8_t>(row[i]);
    sums[n] = sum;
  }
}

Status check_weight_sizes(std::int64_t n, std::int64_t k) {
  if (n < 0) return invalid("n", fmt::format("expected 0 or more, got {}", n));
  if (k < 0) return invalid("k", fmt::format("expected 0 or more, got {}", k));
  constexpr std::int64_t most = std::int64_t{1} << 58;
  std::int64_t bytes = 0;
  // (With the sum of each column.)
  if (n > most || k > most ||
      __builtin_mul_overflow(round_up(n, panel_columns), round_up(k, padded_k) + 8, &bytes) ||
      bytes > most)
    return invalid(
        "n", fmt::format("expected sizes within the address space, got n = {}, k = {}", n, k));
  return {};
}

Status check_weight(const TensorRef& weight, DType dtype, std::int64_t n, std::int64_t k) {
  const Result<Checked> checked = check_input("weight", weight, dtype);
  if (!checked) return checked.error();
  if (!(weight.shape == Shape{n, k}))
    return invalid("weight", fmt::format("expected shape [{}, {}] (output by input channels), got "
                                         "{}",
                                         n, k, to_string(weight.shape)));
  if (n > 0 && k > 1 && weight.strides[1] != 1)
    return invalid("weight", fmt::format("expected rows of consecutive elements (last stride 1), "
                                         "got strides {}; copy it first",
                                         to_string(weight.strides)));
  return {};
}

}  // namespace detail

Result<PackWeightPlan> PackWeightPlan::select(const Stream& stream, const Descriptor& descriptor,
                                              const PlanPreference& preference) {
  if (descriptor.weight != DType::s8 && descriptor.weight != DType::u8)
    return detail::unsupported("weight",
                               fmt::format("expected s8 or u8, got {}", name(descriptor.weight)));
  if (Status s = detail::check_weight_sizes(descriptor.n, descriptor.k); !s) return s.error();
  if (const auto allowed = detail::allowed_targets(stream, preference); !allowed)
    return allowed.error();
  PackWeightPlan plan;
  plan.descriptor_ = descriptor;
  plan.sku_.category = Category::linear;
  plan.sku_.op = Op::pack_weight;
  plan.sku_.element = plan.sku_.aux_element = descriptor.weight;
  plan.sku_.guarantee.math = DType::s32;
  return plan;
}

Result<PackedWeight> PackWeightPlan::make_packed() const {
  Result<PackedWeight> packed =
      PackedWeightAccess::make(descriptor_.n, descriptor_.k, descriptor_.weight);
  if (!packed) return packed;
  PackedWeight::Impl& impl = PackedWeightAccess::impl(*packed);
  std::memset(impl.data.get(), 0, static_cast<std::size_t>(impl.data_bytes));
  return packed;
}

Status PackWeightPlan::can_implement(const Args& args) const {
  const Descriptor& d = descriptor_;
  if (Status s = detail::check_weight(args.weight, d.weight, d.n, d.k); !s) return s;
  if (args.packed == nullptr || args.packed->empty())
    return detail::invalid("packed", "expected one of make_packed, got none");
  if (args.packed->n() != d.n || args.packed->k() != d.k || args.packed->dtype() != d.weight)
    return detail::invalid("packed", fmt::format("expected [{}, {}] of {}, got [{}, {}] of {}", d.n,
                                                 d.k, name(d.weight), args.packed->n(),
                                                 args.packed->k(), name(args.packed->dtype())));
  if (PackedWeightAccess::is_shared(*args.packed))
    return detail::invalid("packed",
                           "expected one without copies (they share its memory, and may be in "
                           "use), got one that has some; make another");
  return {};
}

Status PackWeightPlan::run(const Stream& stream, Workspace /*workspace*/, const Args& args) const {
  if (Status s = can_implement(args); !s) return s;
  const Descriptor& d = descriptor_;
  PackedWeight::Impl& impl = PackedWeightAccess::impl(*args.packed);
  const detail::WeightRows rows{args.weight.data, args.weight.strides[0], d.n, d.k,
                                d.weight == DType::u8};
  const std::int64_t panels = detail::panels_of(d.n);
  const int parts = static_cast<int>(
      std::clamp<std::int64_t>(std::min(panels, impl.data_bytes >> 18), 1, stream.threads()));
  detail::parallel(stream, parts, [&](int part) {
    const std::int64_t first = panels * part / parts;
    const std::int64_t last = panels * (part + 1) / parts;
    detail::pack_panels(rows, first, last, impl.data.get() + first * detail::panel_bytes_of(d.k));
    detail::add_columns(rows, first * detail::panel_columns,
                        std::min(d.n, last * detail::panel_columns), impl.sums.data());
  });
  return {};
}

Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight) {
  if (weight.shape.rank() != 2)
    return detail::invalid(
        "weight", fmt::format("expected a shape [n, k], got {}", detail::to_string(weight.shape)));
  const auto plan = PackWeightPlan::select(
      stream, {.n = weight.shape[0], .k = weight.shape[1], .weight = weight.dtype});
  if (!plan) return plan.error();
  Result<PackedWeight> packed =
      PackedWeightAccess::make(weight.shape[0], weight.shape[1], weight.dtype);
  if (!packed) return packed;
  if (Status s = plan->run(stream, {}, {.weight = weight, .packed = &*packed}); !s)
    return s.error();
  return packed;
}

}  // namespace octavo
