// Each kernel keeps as many independent sums as its instruction's latency asks for. In assembly,
// for g++ 12 moves and stores sums in a loop of intrinsics and halves what it is to measure; the
// assembler's .irp repeats a line for each number of a register.
#include "measuring/peak.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "measuring/team.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace octavo::measuring {
namespace {

struct Kernel {
  Target target;
  std::int64_t operations;  // of a round
  void (*run)(std::int64_t rounds);
};

#if defined(__x86_64__)

// Random bytes from 1 on, for eight tiles or registers.
constexpr auto operands = [] {
  std::array<std::uint8_t, 8192> bytes{};
  std::uint32_t state = 1;
  for (auto& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(1 + (state >> 24) % 255);
  }
  return bytes;
}();

// Floats from 0.5 on, of either sign.
constexpr auto float_operands = [] {
  std::array<float, 64> floats{};
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const float size = 0.5F + static_cast<float>(operands[i]) / 256.0F;
    floats[i] = operands[i] % 2 == 0 ? size : -size;
  }
  return floats;
}();

// %0 counts the rounds down, %1 is where the operands are, %2 where floats are.
#define OCTAVO_LOOP(loads, body, ...)                             \
  asm volatile(loads ".p2align 5\n1:\n" body "dec %0\njnz 1b"     \
               : "+r"(rounds)                                     \
               : "r"(operands.data()), "r"(float_operands.data()) \
               : "memory", "cc", __VA_ARGS__)

#define OCTAVO_VECTORS                                                                     \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

__attribute__((target("avx512f,avx512bw,avx512vnni"))) void avx512vnni(std::int64_t rounds) {
  OCTAVO_LOOP(
      "vmovdqu64 (%1), %%zmm16\n vmovdqu64 64(%1), %%zmm17\n"
      "vmovdqu64 128(%1), %%zmm18\n vmovdqu64 192(%1), %%zmm19\n",
      ".irp r,0,1,2,3,4,5,6,7\n"
      "vpdpbusd %%zmm17, %%zmm16, %%zmm\\r\n .endr\n"
      ".irp r,8,9,10,11,12,13,14,15\n"
      "vpdpbusd %%zmm19, %%zmm18, %%zmm\\r\n .endr\n",
      OCTAVO_VECTORS, "xmm16", "xmm17", "xmm18", "xmm19");
}

// Without VNNI products of 16 bits are added in pairs (to registers 10 to 15), and then to the sums
// (0 to 5). Six of each in turn: the best of many orders on Zen 4.
#define OCTAVO_MADD(reg)                    \
  ".irp r,0,1,2,3,4,5\n"                    \
  "vpmaddwd %%" reg "7, %%" reg "6, %%" reg \
  "1\\r\n .endr\n"                          \
  ".irp r,0,1,2,3,4,5\n"                    \
  "vpaddd %%" reg "1\\r, %%" reg "\\r, %%" reg "\\r\n .endr\n"

__attribute__((target("avx512f,avx512bw"))) void avx512(std::int64_t rounds) {
  OCTAVO_LOOP("vmovdqu64 (%1), %%zmm6\n vmovdqu64 64(%1), %%zmm7\n", OCTAVO_MADD("zmm"),
              OCTAVO_VECTORS);
}

__attribute__((target("avx2"))) void avx2(std::int64_t rounds) {
  OCTAVO_LOOP("vmovdqu (%1), %%ymm6\n vmovdqu 64(%1), %%ymm7\n", OCTAVO_MADD("ymm"),
              OCTAVO_VECTORS);
}

__attribute__((target("avx2,avxvnni"))) void avxvnni(std::int64_t rounds) {
  OCTAVO_LOOP("vmovdqu (%1), %%ymm12\n vmovdqu 64(%1), %%ymm13\n",
              ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
              "%{vex%} vpdpbusd %%ymm13, %%ymm12, %%ymm\\r\n .endr\n",
              OCTAVO_VECTORS);
}

// Sums start at zero: what a register held before may be a number that takes longer.
__attribute__((target("avx512f"))) void avx512_float(std::int64_t rounds) {
  OCTAVO_LOOP(
      "vmovups (%2), %%zmm16\n vmovups 64(%2), %%zmm17\n"
      "vmovups 128(%2), %%zmm18\n vmovups 192(%2), %%zmm19\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
      "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n .endr\n",
      ".irp r,0,1,2,3,4,5,6,7\n"
      "vfmadd231ps %%zmm17, %%zmm16, %%zmm\\r\n .endr\n"
      ".irp r,8,9,10,11,12,13,14,15\n"
      "vfmadd231ps %%zmm19, %%zmm18, %%zmm\\r\n .endr\n",
      OCTAVO_VECTORS, "xmm16", "xmm17", "xmm18", "xmm19");
}

__attribute__((target("avx2,fma"))) void avx2_float(std::int64_t rounds) {
  OCTAVO_LOOP(
      "vmovups (%2), %%ymm12\n vmovups 64(%2), %%ymm13\n"
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vpxor %%ymm\\r, %%ymm\\r, %%ymm\\r\n .endr\n",
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vfmadd231ps %%ymm13, %%ymm12, %%ymm\\r\n .endr\n",
      OCTAVO_VECTORS);
}

// Two by two tiles: every tile that is read is read twice.
__attribute__((target("amx-tile,amx-int8"))) void amx(std::int64_t rounds) {
  struct alignas(64) Config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Config config;
  // The intrinsic of g++ 12 says that it reads 8 of these 64 bytes.
  asm volatile("ldtilecfg %0" : : "m"(config));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operands.data(), 64);
  _tile_loadd(5, operands.data() + 1024, 64);
  _tile_loadd(6, operands.data() + 2048, 64);
  _tile_loadd(7, operands.data() + 3072, 64);
  for (; rounds > 0; --rounds) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

// The kernel gives tiles to programs that ask for them.
bool tiles_allowed() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

constexpr Kernel kernels[] = {
    {Target::amx, 4LL * 2 * 16 * 16 * 64, amx}, {Target::avx512vnni, 16LL * 2 * 64, avx512vnni},
    {Target::avx512, 6LL * 2 * 32, avx512},     {Target::avxvnni, 12LL * 2 * 32, avxvnni},
    {Target::avx2, 6LL * 2 * 16, avx2},
};

constexpr std::int64_t wide = 16LL * 2 * 16, narrow = 12LL * 2 * 8;
constexpr Kernel float_kernels[] = {
    {Target::amx, wide, avx512_float},    {Target::avx512vnni, wide, avx512_float},
    {Target::avx512, wide, avx512_float}, {Target::avxvnni, narrow, avx2_float},
    {Target::avx2, narrow, avx2_float},
};

#else
bool tiles_allowed() { return false; }
constexpr std::array<Kernel, 0> kernels, float_kernels;
#endif

const Kernel* find(std::span<const Kernel> all, Target target) {
  if (!is_available(target)) return nullptr;
  for (const auto& kernel : all)
    if (kernel.target == target) return &kernel;
  return nullptr;
}

const Kernel* find_kernel(Target target) {
  return target == Target::amx && !tiles_allowed() ? nullptr : find(kernels, target);
}

std::optional<Competitor> peak_of(const Kernel* kernel, std::int64_t operations, int threads) {
  if (!kernel) return std::nullopt;
  const std::int64_t share = kernel->operations * threads;
  const std::int64_t rounds = std::max<std::int64_t>(1, (operations + share / 2) / share);
  std::function<void(int)> work = [run = kernel->run, rounds](int) { run(rounds); };
  return Competitor{.name = "peak",
                    .kind = Kind::limit,
                    .run = [work = std::move(work), &team = Team::of(threads)] { team.run(work); }};
}

}  // namespace

std::optional<Competitor> peak(Target target, std::int64_t operations, int threads) {
  return peak_of(find_kernel(target), operations, threads);
}

std::optional<Competitor> float_peak(Target target, std::int64_t operations, int threads) {
  return peak_of(find(float_kernels, target), operations, threads);
}

std::optional<Target> fastest_target() {
  for (const auto& kernel : kernels)
    if (find_kernel(kernel.target)) return kernel.target;
  return std::nullopt;
}

}  // namespace octavo::measuring
