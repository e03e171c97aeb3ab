// Packed weights through C are those of C++: packed, read back, unpacked.
#include <array>
#include <cstdlib>
#include <cstring>

#include "c/testing.hpp"
#include "ops/linear/testing.hpp"

namespace octavo::testing {
namespace {

using Image = std::vector<std::byte>;

octavo_pack_desc c_descriptor(const LinearCase& c) {
  octavo_pack_desc d{};
  d.struct_size = sizeof d;
  d.n = c.n;
  d.k = c.k;
  d.weight = static_cast<octavo_dtype>(c.weight);
  d.group_size = c.group;
  if (c.parameter != DType::f32) d.scale = to_c(std::optional(c.parameter));
  d.zero_points = c.weight_zero_points ? 1 : 0;
  return d;
}

octavo_pack_args c_arguments(CTensors& tensors, const LinearData& data,
                             octavo_packed_weight* packed) {
  octavo_pack_args a{};
  a.struct_size = sizeof a;
  a.weight = tensors(data.weight.ref());
  a.packed = packed;
  if (data.c.group == 0) return a;
  const Shape shape{data.c.n, data.c.groups()};
  a.scales = tensors(TensorRef(data.weight_scales.bytes.data(), data.weight_scales.type, shape));
  if (data.c.weight_zero_points)
    a.zero_points = tensors(TensorRef(data.weight_zero_points.data(), shape));
  return a;
}

LinearCase group_case(DType weight, DType scale, bool zero_points) {
  LinearCase c;
  c.n = 35, c.k = 48, c.group = 8;
  c.weight = weight;
  c.parameter = scale;
  c.weight_zero_points = zero_points;
  return c;
}

Image image_of(const octavo_packed_weight* packed) {
  octavo_packed_weight_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(octavo_packed_weight_get_info(packed, &info), OCTAVO_OK);
  Image image(info.serialized_bytes);
  EXPECT_EQ(octavo_packed_weight_serialize(packed, image.data(), image.size()), OCTAVO_OK);
  return image;
}

TEST(CPackedWeight, IsThatOfCxx) {
  const auto cpu = c_stream();
  LinearCase c;
  c.n = 19, c.k = 33, c.weight = DType::u8;
  const LinearData data = make_linear(c);
  const std::vector<std::byte> want = pack(Stream::cpu(), data.weight.ref())->serialize();

  const octavo_pack_desc d = c_descriptor(c);
  const auto plan =
      made<octavo_plan>([&](auto out) { return octavo_pack_select(cpu.get(), &d, nullptr, out); });
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_make_packed(plan.get(), out); });
  CTensors tensors;
  const octavo_pack_args a = c_arguments(tensors, data, packed.get());
  EXPECT_EQ(octavo_pack_can_implement(plan.get(), &a), OCTAVO_OK);
  ASSERT_EQ(octavo_pack_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK);

  octavo_packed_weight_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(octavo_packed_weight_get_info(packed.get(), &info), OCTAVO_OK);
  EXPECT_EQ(info.n, c.n);
  EXPECT_EQ(info.k, c.k);
  EXPECT_EQ(info.dtype, OCTAVO_U8);
  ASSERT_EQ(info.serialized_bytes, want.size());

  std::vector<std::byte> image(want.size(), std::byte{0x55});
  expect_refusal(octavo_packed_weight_serialize(packed.get(), image.data(), image.size() - 1),
                 OCTAVO_BUFFER_TOO_SMALL, "image", "expected at least");
  EXPECT_EQ(octavo_last_error()->needed, static_cast<std::int64_t>(want.size()));
  EXPECT_EQ(octavo_last_error()->got, static_cast<std::int64_t>(want.size()) - 1);
  EXPECT_EQ(image, std::vector<std::byte>(want.size(), std::byte{0x55}));
  ASSERT_EQ(octavo_packed_weight_serialize(packed.get(), image.data(), image.size()), OCTAVO_OK);
  EXPECT_EQ(image, want);

  const auto read = made<octavo_packed_weight>(
      [&](auto out) { return octavo_packed_weight_deserialize(image.data(), image.size(), out); });
  std::vector<std::byte> again(want.size());
  ASSERT_EQ(octavo_packed_weight_serialize(read.get(), again.data(), again.size()), OCTAVO_OK);
  EXPECT_EQ(again, want);

  octavo_packed_weight* out = nullptr;
  image.back() ^= std::byte{1};
  expect_refusal(octavo_packed_weight_deserialize(image.data(), image.size(), &out),
                 OCTAVO_INVALID_PROBLEM, "image", "damaged");
  EXPECT_EQ(out, nullptr);
}

TEST(CPackedWeight, HoldsTheScalesOfGroups) {
  const auto cpu = c_stream();
  for (const DType weight : {DType::s4, DType::u4, DType::s8, DType::u8})
    for (const DType scale : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      const LinearCase c = group_case(weight, scale, weight != DType::s8);
      SCOPED_TRACE(c.text());
      const LinearData data = make_linear(c);
      const octavo_pack_desc d = c_descriptor(c);
      const auto plan = made<octavo_plan>(
          [&](auto out) { return octavo_pack_select(cpu.get(), &d, nullptr, out); });
      const auto packed = made<octavo_packed_weight>(
          [&](auto out) { return octavo_pack_make_packed(plan.get(), out); });
      CTensors tensors;
      const octavo_pack_args a = c_arguments(tensors, data, packed.get());
      EXPECT_EQ(octavo_pack_can_implement(plan.get(), &a), OCTAVO_OK);
      ASSERT_EQ(octavo_pack_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK)
          << octavo_last_error()->message;
      EXPECT_EQ(image_of(packed.get()), packed_weight(Stream::cpu(), data)->serialize());

      octavo_packed_weight_info info{};
      info.struct_size = sizeof info;
      ASSERT_EQ(octavo_packed_weight_get_info(packed.get(), &info), OCTAVO_OK);
      EXPECT_EQ(info.group_size, 8);
      EXPECT_EQ(info.layout, 2);
      EXPECT_EQ(info.scale, static_cast<octavo_dtype>(scale));
      EXPECT_EQ(info.zero_points, c.weight_zero_points ? 1 : 0);

      octavo_pack_args wrong = a;
      wrong.scales = nullptr;
      expect_refusal(octavo_pack_can_implement(plan.get(), &wrong), OCTAVO_INVALID_PROBLEM,
                     "scales", "expected shape [35, 6], got none");
    }
}

TEST(CPackedWeight, IsWhereItIsWanted) {
  const auto cpu = c_stream();
  const LinearData data = make_linear({.m = 1, .n = 3, .k = 5});
  CTensors tensors;
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_weight(cpu.get(), tensors(data.weight.ref()), out); });
  const auto same = made<octavo_packed_weight>(
      [&](auto out) { return octavo_packed_weight_to(packed.get(), cpu.get(), out); });
  EXPECT_EQ(image_of(same.get()), image_of(packed.get()));
}

TEST(CPackedWeight, IsUnpacked) {
  const auto cpu = c_stream();
  const LinearData data = make_linear(group_case(DType::s4, DType::f16, true));
  CTensors tensors;
  const octavo_pack_args a = c_arguments(tensors, data, nullptr);
  const auto packed = made<octavo_packed_weight>([&](auto out) {
    return octavo_pack_weight_groups(cpu.get(), a.weight, 8, a.scales, a.zero_points, out);
  });
  Matrix weight(DType::s4, 35, 48, 0);
  Matrix scales(DType::f16, 35, 6, 0);
  std::vector<std::int32_t> zero_points(std::size_t{35} * 6);
  const octavo_tensor* to_weight = tensors(weight.mut());
  const octavo_tensor* to_scales = tensors(scales.mut());
  const octavo_tensor* to_zeros = tensors(TensorMut(zero_points.data(), {35, 6}));
  ASSERT_EQ(octavo_packed_weight_unpack(packed.get(), to_weight, nullptr, nullptr), OCTAVO_OK);
  EXPECT_EQ(weight.bytes, data.weight.bytes);
  ASSERT_EQ(octavo_packed_weight_unpack(packed.get(), to_weight, to_scales, to_zeros), OCTAVO_OK)
      << octavo_last_error()->message;
  EXPECT_EQ(weight.bytes, data.weight.bytes);
  EXPECT_EQ(scales.bytes, data.weight_scales.bytes);
  EXPECT_EQ(zero_points, data.weight_zero_points);
  expect_refusal(octavo_packed_weight_unpack(packed.get(), to_scales, nullptr, nullptr),
                 OCTAVO_UNSUPPORTED, "weight", "s4");

  const auto plain = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_weight(cpu.get(), a.weight, out); });
  expect_refusal(octavo_packed_weight_unpack(plain.get(), to_weight, to_scales, nullptr),
                 OCTAVO_INVALID_PROBLEM, "scales", "it holds none");
}

TEST(CPackedWeight, TakesWeightsThatAreStoredWithAnOffset) {
  const auto cpu = c_stream();
  LinearCase c;
  c.n = 5, c.k = 7, c.weight = DType::s4;
  const LinearData data = make_linear(c);
  LinearData moved = data;  // each is 8 more, as an unsigned number
  for (std::byte& byte : moved.weight.bytes) byte ^= std::byte{0x88};
  octavo_pack_desc d = c_descriptor(c);
  d.offset = 1;
  const auto plan =
      made<octavo_plan>([&](auto out) { return octavo_pack_select(cpu.get(), &d, nullptr, out); });
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_make_packed(plan.get(), out); });
  CTensors tensors;
  const octavo_pack_args a = c_arguments(tensors, moved, packed.get());
  ASSERT_EQ(octavo_pack_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK);
  EXPECT_EQ(image_of(packed.get()), pack(Stream::cpu(), data.weight.ref())->serialize());
}

TEST(CPackedWeight, IsUsedWhereItsImageIs) {
  const auto cpu = c_stream();
  const LinearData data = make_linear(group_case(DType::u4, DType::bf16, true));
  const Image want = packed_weight(Stream::cpu(), data)->serialize();
  constexpr std::size_t alignment = 64;
  const std::size_t room = (want.size() + alignment - 1) / alignment * alignment + alignment;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(alignment, room),
                                                           &std::free);
  auto* const image = static_cast<std::byte*>(memory.get());
  std::memcpy(image, want.data(), want.size());
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_packed_weight_deserialize_in_place(image, want.size(), out); });
  EXPECT_EQ(image_of(packed.get()), want);
  // It is no copy: a change of the image shows.
  image[want.size() - 1] ^= std::byte{1};
  EXPECT_NE(image_of(packed.get()), want);

  octavo_packed_weight* none = nullptr;
  expect_refusal(octavo_packed_weight_deserialize_in_place(image, want.size(), &none),
                 OCTAVO_INVALID_PROBLEM, "image", "damaged");
  std::memcpy(image + 8, want.data(), want.size());
  expect_refusal(octavo_packed_weight_deserialize_in_place(image + 8, want.size(), &none),
                 OCTAVO_MISALIGNED_OPERAND, "image", "64 bytes, got one 8 past");
  EXPECT_EQ(none, nullptr);
}

TEST(CPackedWeight, TakesStructsFromBeforeThereWereGroups) {
  const auto cpu = c_stream();
  LinearCase c;
  c.n = 5, c.k = 8;
  const LinearData data = make_linear(c);
  octavo_pack_desc d = c_descriptor(c);
  // What lies behind is not looked at.
  d.struct_size = offsetof(octavo_pack_desc, group_size);
  d.group_size = 3;
  d.zero_points = d.offset = 1;
  const auto plan =
      made<octavo_plan>([&](auto out) { return octavo_pack_select(cpu.get(), &d, nullptr, out); });
  const auto packed = made<octavo_packed_weight>(
      [&](auto out) { return octavo_pack_make_packed(plan.get(), out); });
  CTensors tensors;
  octavo_pack_args a = c_arguments(tensors, data, packed.get());
  a.struct_size = offsetof(octavo_pack_args, scales);
  a.scales = a.zero_points = reinterpret_cast<const octavo_tensor*>(0x10);
  ASSERT_EQ(octavo_pack_run(plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK)
      << octavo_last_error()->message;
  EXPECT_EQ(image_of(packed.get()), pack(Stream::cpu(), data.weight.ref())->serialize());

  octavo_packed_weight_info info{};
  std::memset(static_cast<void*>(&info), 0x55, sizeof info);
  info.struct_size = offsetof(octavo_packed_weight_info, group_size);
  ASSERT_EQ(octavo_packed_weight_get_info(packed.get(), &info), OCTAVO_OK);
  EXPECT_EQ(info.n, 5);
  EXPECT_EQ(info.group_size, 0x5555555555555555);
  EXPECT_EQ(info.layout, 0x55555555);
}

}  // namespace
}  // namespace octavo::testing
