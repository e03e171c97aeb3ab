// Which targets Highway compiles for. Include before any Highway header, in every file that uses
// it.
//
// The older x86 targets are left out (the scalar reference runs there: their f16 conversion
// truncates and their MulAdd is not fused), and so are those that would give the same code again:
// AVX3_DL, and the SVE variants of fixed width.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// Not used, and not every CPU with the rest has them.
#define HWY_DISABLE_PCLMUL_AES

// Highway always compiles its baseline too; on x86-64 that is an emulation, which is skipped.
#define OCTAVO_SIMD_PASS (HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR)
