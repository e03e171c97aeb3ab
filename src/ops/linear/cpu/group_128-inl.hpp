// Vectors of Arm's 128 bits, for the kernels on weights in groups (group-inl.hpp).
#pragma once

namespace octavo::detail {
namespace {

struct Vectors128 {
  using Activation = int8x16_t;
  using Weights = uint8x16_t;
  using Sums = int32x4_t;
  using Floats = float32x4_t;
  static constexpr std::int64_t columns = 4;
  static constexpr int together(int /*chains*/) { return 1; }
  static constexpr bool one_by_one = false;
  static constexpr int steps_at_once = 1;
  static constexpr std::int64_t ahead(int /*chains*/) { return 2048; }
  static constexpr bool whole_bytes = false;  // products are of signed values

  static Activation activation(const std::int8_t* p) {
    std::int32_t four = 0;
    std::memcpy(&four, p, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
  static Weights load(const unsigned char* p) { return vld1q_u8(p); }
  static Weights low(Weights w) { return vandq_u8(w, vdupq_n_u8(0x0F)); }
  static Weights high(Weights w) { return vshrq_n_u8(w, 4); }

  static Sums zero() { return vdupq_n_s32(0); }
  static Sums repeated(std::int32_t v) { return vdupq_n_s32(v); }
  static Sums integers(const std::int32_t* p) { return vld1q_s32(p); }
  static Sums bytes(const unsigned char* p) {
    std::uint32_t four = 0;
    std::memcpy(&four, p, sizeof four);
    const uint8x8_t eight = vreinterpret_u8_u32(vdup_n_u32(four));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(eight))));
  }
  static Sums plus(Sums a, Sums b) { return vaddq_s32(a, b); }
  static Sums minus(Sums a, Sums b) { return vsubq_s32(a, b); }
  static Sums times(Sums a, Sums b) { return vmulq_s32(a, b); }
  static Sums times256(Sums a) { return vshlq_n_s32(a, 8); }
  static void store(Sums s, std::int32_t* p) { vst1q_s32(p, s); }

  static Floats no_value() { return vdupq_n_f32(0); }
  static Floats value(Sums s) { return vcvtq_f32_s32(s); }
  static Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static Floats sum(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats scales(const unsigned char* p, DType type, std::int64_t column) {
    if (type == DType::f32) return vld1q_f32(reinterpret_cast<const float*>(p + column * 4));
    if (type == DType::f64) {
      const auto* wide = reinterpret_cast<const double*>(p + column * 8);
      return vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(wide)), vld1q_f64(wide + 2));
    }
    const uint16x4_t half = vld1_u16(reinterpret_cast<const std::uint16_t*>(p + column * 2));
    if (type == DType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
  static void store(Floats v, float* p) { vst1q_f32(p, v); }
};

}  // namespace
}  // namespace octavo::detail
