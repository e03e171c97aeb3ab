#include "c/reader.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace octavo::c {
namespace {

using detail::invalid;

// No struct will ever be longer; a size beyond is one that was never set.
constexpr std::size_t longest = 4096;

Result<std::size_t> size_of(const char* argument, const void* given) {
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= sizeof size && size <= longest) return size;
  return invalid("struct_size", fmt::format("expected sizeof the struct that {} points to, got {}",
                                            argument, size));
}

}  // namespace

Status read_struct(const char* argument, const void* given, void* known, std::size_t size) {
  const Result<std::size_t> bytes = size_of(argument, given);
  if (!bytes) return bytes.error();
  const auto* from = static_cast<const unsigned char*>(given);
  if (std::any_of(from + std::min(*bytes, size), from + *bytes,
                  [](unsigned char byte) { return byte != 0; }))
    return detail::unsupported(
        "struct_size", fmt::format("expected at most {} bytes of {}, got {} with fields that are "
                                   "not 0 and that this version of the library does not know",
                                   size, argument, *bytes));
  std::memcpy(known, given, std::min(*bytes, size));
  return {};
}

Status write_struct(const char* argument, const void* known, std::size_t size, void* to) {
  const Result<std::size_t> bytes = size_of(argument, to);
  if (!bytes) return bytes.error();
  constexpr std::size_t first = sizeof *bytes;  // the size is the caller's
  auto* out = static_cast<unsigned char*>(to);
  std::memset(out + first, 0, *bytes - first);
  std::memcpy(out + first, static_cast<const unsigned char*>(known) + first,
              std::min(*bytes, size) - first);
  return {};
}

Shape Reader::sizes(const char* argument, std::int32_t rank, const std::int64_t* sizes) {
  if (rank < 0)
    refuse(invalid(argument, fmt::format("expected a rank of 0 to {}, got {}", max_rank, rank)));
  if (rank > 0 && sizes == nullptr)
    refuse(invalid(argument, fmt::format("expected {} sizes, got NULL", rank)));
  if (!ok()) return {};
  return std::span(sizes, static_cast<std::size_t>(rank));
}

TensorMut Reader::tensor(const char* argument, const octavo_tensor* given) {
  const octavo_tensor t = need(argument, given);
  const DType type = dtype(argument, t.dtype);
  const Shape shape = sizes(argument, t.rank, t.shape);
  const Shape strides =
      t.strides == nullptr ? contiguous_strides(shape, type) : sizes(argument, t.rank, t.strides);
  return {t.data, type, shape, strides, t.buffer_bytes == 0 ? -1 : t.buffer_bytes};
}

void Reader::absent(const char* argument, const void* given, const char* why) {
  if (given != nullptr) refuse(invalid(argument, fmt::format("expected NULL: {}", why)));
}

PlanPreference Reader::preference(const octavo_preference* given) {
  const octavo_preference p = maybe("preference", given);
  PlanPreference preference;
  preference.target = target("target", p.target);
  if (p.limit_workspace != 0) preference.max_workspace_bytes = p.max_workspace_bytes;
  return preference;
}

}  // namespace octavo::c
