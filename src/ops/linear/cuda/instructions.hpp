// The instructions of products, on the device. Only .cu files include it, after
// cuda/device/device.hpp.
#pragma once

namespace octavo::cuda {

/// Four products of signed bytes, added to c.
OCTAVO_DEVICE std::int32_t dp4a(std::int32_t a, std::int32_t b, std::int32_t c) {
  std::int32_t d;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// c += a * b of 16 rows, 8 columns and 32 k, s8. Lane 4 * g + t holds of a the rows g (a[0], a[2])
/// and g + 8, of b the column g, of each 4 k at 4 * t and 4 at 16 + 4 * t; of c rows g (c[0], c[1])
/// and g + 8, columns 2 * t and 2 * t + 1.
OCTAVO_DEVICE void mma(std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                       std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads and stores of several words as text: of C++ that reads them one by one the compiler makes
// as many loads. Of global memory, what no one writes while the kernel runs.
struct Vector8 {
  std::uint32_t words[2];
};
OCTAVO_DEVICE Vector16 load_global16(const void* from) {
  Vector16 v;
  asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
      : "l"(from));
  return v;
}
OCTAVO_DEVICE Vector8 load_global8(const void* from) {
  Vector8 v;
  asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.words[0]), "=r"(v.words[1]) : "l"(from));
  return v;
}
OCTAVO_DEVICE void store_global8(void* to, const Vector8& v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};"
               :
               : "l"(to), "r"(v.words[0]), "r"(v.words[1])
               : "memory");
}
/// Of shared memory, by its address there.
OCTAVO_DEVICE Vector16 load_shared16(unsigned from) {
  Vector16 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
               : "r"(from));
  return v;
}

/// What a lane multiplies of a block of 32 k and 32 columns, by 8 columns each: of nibbles the 16
/// bytes that `load` gives, of bytes those and the 16 of `load` 512 bytes further.
template <bool nibbles, class Load>
OCTAVO_DEVICE void load_operands(const Load& load, std::uint32_t (&b)[4][2]) {
  const Vector16 first = load(0);
  if constexpr (nibbles) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      b[j][0] = first.words[j] & 0x0F0F0F0FU;
      b[j][1] = first.words[j] >> 4U & 0x0F0F0F0FU;
    }
  } else {
    const Vector16 second = load(512);
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        b[j][i] = first.words[2 * j + i];
        b[2 + j][i] = second.words[2 * j + i];
      }
  }
}
OCTAVO_DEVICE Vector8 load_shared8(unsigned from) {
  Vector8 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.words[0]), "=r"(v.words[1]) : "r"(from));
  return v;
}
OCTAVO_DEVICE void store_shared8(unsigned to, const Vector8& v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};"
               :
               : "r"(to), "r"(v.words[0]), "r"(v.words[1])
               : "memory");
}

/// The address of shared memory as copies want it.
OCTAVO_DEVICE unsigned shared_address(const void* at) {
  unsigned address;
  asm("{\n\t.reg .u64 wide;\n\tcvta.to.shared.u64 wide, %1;\n\tcvt.u32.u64 %0, wide;\n\t}"
      : "=r"(address)
      : "l"(at));
  return address;
}
/// Starts a copy of 16 bytes to shared memory; zeros instead where it is not `wanted`, and then
/// nothing is read.
OCTAVO_DEVICE void copy16(unsigned to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
}
/// Copies that were started since the last time are a batch.
OCTAVO_DEVICE void end_batch() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/// Waits until at most so many batches of this thread are on their way.
template <int count>
OCTAVO_DEVICE void wait_batches() {
  asm volatile("cp.async.wait_group %0;" : : "n"(count) : "memory");
}

/// The value of another lane.
OCTAVO_DEVICE std::int32_t from_lane(std::int32_t value, unsigned lane) {
  return __nvvm_shfl_sync_idx_i32(0xFFFFFFFFU, value, static_cast<int>(lane), 31);
}

}  // namespace octavo::cuda
