// What a kernel asks of the machine: its place in the grid, the lanes of a warp, barriers.
#pragma once

namespace octavo::cuda {

OCTAVO_DEVICE unsigned thread_x() { return __nvvm_read_ptx_sreg_tid_x(); }
OCTAVO_DEVICE unsigned thread_y() { return __nvvm_read_ptx_sreg_tid_y(); }
OCTAVO_DEVICE unsigned block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
OCTAVO_DEVICE unsigned block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
OCTAVO_DEVICE unsigned block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
OCTAVO_DEVICE unsigned blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
OCTAVO_DEVICE unsigned blocks_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
OCTAVO_DEVICE unsigned threads_x() { return __nvvm_read_ptx_sreg_ntid_x(); }
OCTAVO_DEVICE unsigned threads_y() { return __nvvm_read_ptx_sreg_ntid_y(); }

// (Instructions as text: of the builtins LLVM takes it that they write no variable of shared memory
// whose address goes nowhere, and moves loads of it in front of them.)
/// All threads of the block; orders their accesses to shared and global memory.
OCTAVO_DEVICE void barrier() { asm volatile("bar.sync 0;" : : : "memory"); }
/// All lanes of the warp.
OCTAVO_DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" : : : "memory"); }
/// What this thread wrote is seen by the device before what it writes next.
OCTAVO_DEVICE void device_fence() { asm volatile("membar.gl;" : : : "memory"); }

inline constexpr unsigned warp_size = 32;

/// The value of the lane whose number differs in the bits of `mask`; all 32 lanes take part.
OCTAVO_DEVICE std::uint32_t shuffle_xor(std::uint32_t value, unsigned mask) {
  return static_cast<std::uint32_t>(
      __nvvm_shfl_sync_bfly_i32(0xFFFFFFFFU, static_cast<int>(value), static_cast<int>(mask), 31));
}
OCTAVO_DEVICE std::int32_t shuffle_xor(std::int32_t value, unsigned mask) {
  return __nvvm_shfl_sync_bfly_i32(0xFFFFFFFFU, value, static_cast<int>(mask), 31);
}
OCTAVO_DEVICE float shuffle_xor(float value, unsigned mask) {
  return std::bit_cast<float>(shuffle_xor(std::bit_cast<std::uint32_t>(value), mask));
}
OCTAVO_DEVICE std::uint64_t shuffle_xor(std::uint64_t value, unsigned mask) {
  const auto low = shuffle_xor(static_cast<std::uint32_t>(value), mask);
  const auto high = shuffle_xor(static_cast<std::uint32_t>(value >> 32U), mask);
  return std::uint64_t{high} << 32U | low;
}
OCTAVO_DEVICE double shuffle_xor(double value, unsigned mask) {
  return std::bit_cast<double>(shuffle_xor(std::bit_cast<std::uint64_t>(value), mask));
}
/// The value of one lane, in all.
OCTAVO_DEVICE std::int32_t broadcast(std::int32_t value, unsigned lane) {
  return __nvvm_shfl_sync_idx_i32(0xFFFFFFFFU, value, static_cast<int>(lane), 31);
}
OCTAVO_DEVICE bool any_lane(bool flag) { return __nvvm_vote_any_sync(0xFFFFFFFFU, flag); }

/// Returns what was there.
OCTAVO_DEVICE std::uint64_t atomic_min(std::uint64_t* at, std::uint64_t value) {
  return __nvvm_atom_min_gen_ull(reinterpret_cast<unsigned long long*>(at), value);
}
OCTAVO_DEVICE unsigned atomic_add(unsigned* at, unsigned value) {
  return static_cast<unsigned>(
      __nvvm_atom_add_gen_i(reinterpret_cast<int*>(at), static_cast<int>(value)));
}

/// The value, about which the compiler knows nothing from here on. A member of a kernel's argument
/// that is one of two choices goes through it: the choice would become one of addresses, for which
/// all of the argument is copied to local memory.
OCTAVO_DEVICE std::int32_t opaque(std::int32_t value) {
  asm("" : "+r"(value));
  return value;
}
OCTAVO_DEVICE float opaque(float value) {
  asm("" : "+f"(value));
  return value;
}
OCTAVO_DEVICE double opaque(double value) {
  asm("" : "+d"(value));
  return value;
}

/// Rounded to nearest even; NaN becomes 0, and what 32 bits do not hold their end.
OCTAVO_DEVICE std::int32_t round_to_int(float x) { return __nvvm_f2i_rn(x); }

/// numerics::widen and numerics::narrow_f16 by the instructions for them. (Of a NaN some NaN: no
/// result's bits come from it.)
OCTAVO_DEVICE float widen_f16(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
OCTAVO_DEVICE std::uint16_t narrow_f16(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return value == value ? bits : std::uint16_t{0x7E00};
}

/// The largest value of all 32 lanes.
OCTAVO_DEVICE std::uint32_t most_of_warp(std::uint32_t value) {
  std::uint32_t most;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(value));
  return most;
}
/// Four of the eight bytes of b and a, by the digits of `which`, the lowest first.
OCTAVO_DEVICE std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t which) {
  return static_cast<std::uint32_t>(
      __nvvm_prmt(static_cast<int>(a), static_cast<int>(b), static_cast<int>(which)));
}

/// 16 bytes at a time, to and from an address that is a multiple of 16.
struct Vector16 {
  std::uint32_t words[4];
};
using NativeVector16 = std::uint32_t __attribute__((ext_vector_type(4)));
OCTAVO_DEVICE Vector16 load16(const void* from) {
  const auto v = *static_cast<const NativeVector16*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
OCTAVO_DEVICE void store16(void* to, const Vector16& v) {
  *static_cast<NativeVector16*>(to) = {v.words[0], v.words[1], v.words[2], v.words[3]};
}

}  // namespace octavo::cuda
