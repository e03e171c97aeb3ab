// Memory for what is read from end to end.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace octavo::detail {

inline constexpr std::size_t large_page = std::size_t{2} << 20U;

/// At least `bytes`, of whole cache lines. From the size of one on, in large pages where the system
/// has them: the CPU looks fewer of them up. Null if there is no memory; freed by std::free.
inline void* allocate_in_large_pages(std::size_t bytes) {
  constexpr std::size_t cache_line = 64;
  const std::size_t unit = bytes >= large_page ? large_page : cache_line;
  if (bytes > std::size_t{PTRDIFF_MAX} - unit) return nullptr;
  const std::size_t whole = bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
  void* data = std::aligned_alloc(unit, whole);
  if (data != nullptr && unit == large_page) (void)madvise(data, whole, MADV_HUGEPAGE);
  return data;
}

struct FreeLargePages {
  void operator()(void* p) const noexcept { std::free(p); }
};

}  // namespace octavo::detail
