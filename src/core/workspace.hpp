// Memory for a workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "octavo/stream.hpp"

namespace octavo::detail {

/// Null for 0 bytes; throws std::bad_alloc. Freed by operator delete with the same alignment.
inline void* allocate_workspace(std::size_t bytes) {
  // The standard library rounds up to the alignment: what is near SIZE_MAX would become 0.
  if (bytes > std::size_t{PTRDIFF_MAX}) throw std::bad_alloc();
  return bytes == 0 ? nullptr : ::operator new (bytes, std::align_val_t{workspace_alignment});
}

}  // namespace octavo::detail
