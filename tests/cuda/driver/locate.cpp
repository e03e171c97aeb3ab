#include "tests/cuda/driver/locate.hpp"

#include <string>

namespace standin::STANDIN_TARGET {
namespace {

std::string hex(u64 v) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(v));
  return text;
}

const char* name_of(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic operation";
}

void addresses(Warp& w, const Inst& i, Ref operand, u32 which, u64* address) {
  const u64 offset = static_cast<u64>(which == 0 ? i.imm : i.imm2);
  if ((i.narrow >> which & 1) != 0) {
    const u32* a = row<const u32>(w, operand);
    for (u32 l = 0; l < lane_count; ++l)
      address[l] = static_cast<u32>(a[l] + static_cast<u32>(offset));
  } else {
    const u64* a = row<const u64>(w, operand);
    for (u32 l = 0; l < lane_count; ++l) address[l] = a[l] + offset;
  }
}

[[noreturn, gnu::noinline]] void misaligned(u64 address, u32 bytes, const char* what, u32 lane) {
  fault(misaligned_address,
        std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex(address) +
            ", which is misaligned",
        static_cast<int>(lane));
}

void check_alignment(Warp& w, const u64* address, u32 bytes, const char* what) {
  u64 low = 0;
  for (u32 l = 0; l < lane_count; ++l) low |= w.lanes[l] != 0 ? address[l] : 0;
  if ((low & (bytes - 1)) == 0) [[likely]]
    return;
  for_lanes(w.mask, [&](u32 l) {
    if ((address[l] & (bytes - 1)) != 0) misaligned(address[l], bytes, what, l);
  });
}

// Offsets within a space of `size` bytes.
void check_bounds(Warp& w, const u64* offset, u64 size, u32 bytes, Access access,
                  const char* space) {
  check_alignment(w, offset, bytes, space);
  if (size >= bytes) {
    u64 outside = 0;
    for (u32 l = 0; l < lane_count; ++l) {
      outside |= ((offset[l] > size - bytes) & (w.lanes[l] != 0)) ? 1 : 0;
    }
    if (outside == 0) [[likely]]
      return;
  }
  for_lanes(w.mask, [&](u32 l) {
    if (offset[l] > size || size - offset[l] < bytes) {
      fault(illegal_address,
            std::string(name_of(access)) + " of " + std::to_string(bytes) + " bytes at offset " +
                std::to_string(static_cast<s64>(offset[l])) + " of " + space +
                " memory, which has " + std::to_string(size) + " bytes",
            static_cast<int>(l));
    }
  });
}

void global(Warp& w, const u64* address, u32 bytes, Access access, Located& at) {
  Block& block = *w.block;
  check_alignment(w, address, bytes, "access of global memory");
  Range& last = (*block.ranges)[w.pc - 1];
  const u64 span = last.end - last.begin - bytes;  // (wraps if there is none)
  u64 outside = last.end - last.begin < bytes ? 1 : 0;
  for (u32 l = 0; l < lane_count; ++l) {
    outside |= ((address[l] - last.begin > span) & (w.lanes[l] != 0)) ? 1 : 0;
  }
  if (outside == 0) [[likely]] {
    const u64 delta = reinterpret_cast<u64>(last.bytes) - last.begin;
    for (u32 l = 0; l < lane_count; ++l) at.host[l] = address[l] + delta;
  } else {
    for_lanes(w.mask, [&](u32 l) {
      if (address[l] < last.begin || address[l] > last.end || last.end - address[l] < bytes) {
        last = range_of(block, address[l], bytes, static_cast<int>(l));
      }
      at.host[l] = address[l] - last.begin + reinterpret_cast<u64>(last.bytes);
    });
  }
  if (block.counting) {
    count_global(block, address, w.mask, bytes, access != Access::read);
    if (access == Access::atomic) count_global(block, address, w.mask, bytes, false);
  }
}

void shared(Warp& w, const u64* offset, u32 bytes, Access access, Located& at) {
  Block& block = *w.block;
  check_bounds(w, offset, block.shared_bytes, bytes, access, "shared");
  for_lanes(w.mask, [&](u32 l) {
    const auto o = static_cast<u32>(offset[l]);
    if (access == Access::read)
      shared_read(w, o, bytes, static_cast<int>(l));
    else
      shared_write(w, o, bytes, static_cast<int>(l), access == Access::atomic);
  });
  for (u32 l = 0; l < lane_count; ++l) at.host[l] = offset[l] + reinterpret_cast<u64>(block.shared);
  if (block.counting) count_shared(block, offset, w.mask, bytes);
}

void local(Warp& w, const u64* offset, u32 bytes, Access access, Located& at) {
  check_bounds(w, offset, w.local_bytes, bytes, access, "local");
  for_lanes(w.mask, [&](u32 l) {
    const u64 o = u64{l} * w.local_bytes + offset[l];
    at.host[l] = o + reinterpret_cast<u64>(w.local);
    u8* written = w.written + o;
    if (access != Access::read) {
      std::memset(written, 1, bytes);
    } else if (std::memchr(written, 0, bytes) != nullptr) {
      fault(launch_failed,
            "local memory at offset " + std::to_string(offset[l]) + " is read before it is written",
            static_cast<int>(l));
    }
  });
}

void constant(Warp& w, const u64* offset, u64 size, const u8* bytes_at, u32 bytes, Access access,
              const char* name, Located& at) {
  if (access != Access::read)
    fault(illegal_address, std::string("a write into ") + name + " memory");
  check_bounds(w, offset, size, bytes, access, name);
  for (u32 l = 0; l < lane_count; ++l) at.host[l] = offset[l] + reinterpret_cast<u64>(bytes_at);
}

// A parameter at a place that the text names: the same for all lanes.
void parameter(Warp& w, const Inst& i, Ref operand, u32 bytes, Access access, Located& at) {
  u64 offset[lane_count];
  offset[0] = *row<const u64>(w, operand) + static_cast<u64>(i.imm);
  if (access != Access::read || offset[0] % bytes != 0 ||
      offset[0] + bytes > w.kernel->param_bytes) {
    for (u64& o : offset) o = offset[0];
    constant(w, offset, w.kernel->param_bytes, w.block->params, bytes, access, "parameter", at);
  }
  const u64 host = offset[0] + reinterpret_cast<u64>(w.block->params);
  for (u32 l = 0; l < lane_count; ++l) at.host[l] = host;
  at.uniform = w.mask == all_lanes;
}

void space_of(Warp& w, Space space, const u64* address, u32 bytes, Access access, Located& at) {
  switch (space) {
    case Space::global:
      global(w, address, bytes, access, at);
      break;
    case Space::shared:
      shared(w, address, bytes, access, at);
      break;
    case Space::local:
      local(w, address, bytes, access, at);
      break;
    case Space::param:
      constant(w, address, w.kernel->param_bytes, w.block->params, bytes, access, "parameter", at);
      break;
    default:
      constant(w, address, w.kernel->const_bytes, w.kernel->const_bank, bytes, access, "constant",
               at);
  }
}

// Generic addresses: the lanes of each space in turn.
void generic(Warp& w, u64* address, u32 bytes, Access access, Located& at) {
  const u32 mask = w.mask;
  u32 left = mask;
  const std::pair<Space, u64> spaces[] = {{Space::shared, windows.shared},
                                          {Space::local, windows.local},
                                          {Space::constant, windows.constant}};
  for (const auto& window : spaces) {
    const u64 begin = window.second;
    u32 here = 0;
    for_lanes(left, [&](u32 l) { here |= address[l] - begin < window_bytes ? 1u << l : 0u; });
    if (here == 0) continue;
    for_lanes(here, [&](u32 l) { address[l] -= begin; });
    Located part;
    set_mask(w, here);
    space_of(w, window.first, address, bytes, access, part);
    set_mask(w, mask);
    for_lanes(here, [&](u32 l) { at.host[l] = part.host[l]; });
    left &= ~here;
  }
  if (left == mask) {
    global(w, address, bytes, access, at);
  } else if (left != 0) {
    Located part;
    set_mask(w, left);
    global(w, address, bytes, access, part);
    set_mask(w, mask);
    for_lanes(left, [&](u32 l) { at.host[l] = part.host[l]; });
  }
}

}  // namespace

void locate(Warp& w, const Inst& i, Ref operand, u32 which, u32 bytes, Access access, Located& at) {
  if (i.space == Space::param && (operand & in_constants) != 0) {
    parameter(w, i, operand, bytes, access, at);
    return;
  }
  u64* address = w.address;
  addresses(w, i, operand, which, address);
  if (i.space == Space::generic)
    generic(w, address, bytes, access, at);
  else
    space_of(w, i.space, address, bytes, access, at);
  if (w.mask != all_lanes) return;
  u64 apart = 0;
  u64 differ = 0;
  for (u32 l = 1; l < lane_count; ++l) {
    apart |= (at.host[l] - at.host[0]) ^ (u64{l} * bytes);
    differ |= at.host[l] ^ at.host[0];
  }
  at.contiguous = apart == 0;
  at.uniform = differ == 0;
}

void locate_shared(Warp& w, const Inst& i, Ref operand, u32 which, u32 bytes, u64* offsets) {
  addresses(w, i, operand, which, offsets);
  if (i.space == Space::generic) {
    for_lanes(w.mask, [&](u32 l) { offsets[l] -= windows.shared; });
  }
  check_bounds(w, offsets, w.block->shared_bytes, bytes, Access::read, "shared");
}

}  // namespace standin::STANDIN_TARGET
