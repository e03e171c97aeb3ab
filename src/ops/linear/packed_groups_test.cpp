// Packed weights in groups, of four bits and of floats: made, unpacked, stored, loaded, used in
// place.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "ops/elementwise/testing_streams.hpp"
#include "ops/linear/testing_packed.hpp"

namespace octavo::testing {
namespace {

constexpr std::array codes{DType::s4, DType::u4, DType::s8, DType::u8};
constexpr std::array<std::array<std::int64_t, 3>, 10> shapes{{{1, 8, 4},
                                                              {5, 12, 4},
                                                              {31, 64, 32},
                                                              {32, 64, 16},
                                                              {33, 96, 32},
                                                              {64, 128, 64},
                                                              {65, 24, 8},
                                                              {100, 256, 128},
                                                              {37, 136, 68},
                                                              {37, 200, 100}}};

/// Weights in groups, with what goes with them.
LinearData data_of(DType code, const std::array<std::int64_t, 3>& shape, DType scales,
                   bool zero_points) {
  LinearCase c;
  c.n = shape[0];
  c.k = shape[1];
  c.group = shape[2];
  c.weight = code;
  c.parameter = scales;
  c.weight_zero_points = zero_points;
  c.seed = static_cast<std::uint64_t>(shape[0] * 1000 + shape[1]);
  return make_linear(c);
}
PackedWeight packed_of(const LinearData& d, int threads = 1) {
  auto packed = packed_weight(Stream::cpu({.threads = threads}), d);
  EXPECT_TRUE(packed) << packed.error().message();
  return packed ? *packed : PackedWeight();
}

/// That unpacking gives back what was packed.
void expect_unpacks(const PackedWeight& packed, const LinearData& d) {
  Matrix weight(d.c.weight, d.c.n, d.c.k, 0);
  Matrix scales(d.c.parameter, 1, d.c.n * d.c.groups(), 0);
  std::vector<std::int32_t> zeros(static_cast<std::size_t>(d.c.n * d.c.groups()), 99);
  const Status s = packed.unpack(
      weight.mut(), TensorMut(scales.bytes.data(), scales.type, {d.c.n, d.c.groups()}),
      d.c.weight_zero_points ? TensorMut(zeros, {d.c.n, d.c.groups()}) : TensorMut());
  ASSERT_TRUE(s) << s.error().message();
  for (std::int64_t n = 0; n < d.c.n; ++n)
    for (std::int64_t k = 0; k < d.c.k; ++k) ASSERT_EQ(weight.get(n, k), d.weight.get(n, k));
  EXPECT_EQ(scales.bytes, d.weight_scales.bytes);
  if (d.c.weight_zero_points) {
    EXPECT_EQ(zeros, d.weight_zero_points);
  }
}

template <class F>
void for_each_format(F&& f) {
  for (const DType code : codes)
    for (const DType scales : all_floats)
      for (const bool zero_points : {false, true})
        for (const auto& shape : shapes) f(data_of(code, shape, scales, zero_points));
}

TEST(PackedGroups, AreStoredLoadedAndUnpacked) {
  for_each_format([](const LinearData& d) {
    const PackedWeight packed = packed_of(d);
    const WeightFormat f = packed.format();
    EXPECT_EQ(f.code, d.c.weight);
    EXPECT_EQ(f.group, d.c.group);
    EXPECT_EQ(f.scales, d.c.parameter);
    EXPECT_EQ(f.zero_points, d.c.weight_zero_points);
    expect_unpacks(packed, d);
    const Image image = packed.serialize();
    EXPECT_EQ(image.size(), packed.bytes() + header_bytes);
    const auto loaded = PackedWeight::deserialize(image);
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(loaded->format(), f);
    EXPECT_TRUE(loaded->serialize() == image);
    expect_unpacks(*loaded, d);
    EXPECT_TRUE(packed_of(d, 3).serialize() == image);
  });
}

// Memory that is aligned, as that of a mapped file is.
std::shared_ptr<std::byte> aligned(const Image& image, std::size_t past = 0) {
  std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new (image.size() + past, std::align_val_t{64})),
      [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); });
  std::memcpy(memory.get() + past, image.data(), image.size());
  return memory;
}

TEST(PackedGroups, AreUsedInPlace) {
  for_each_format([](const LinearData& d) {
    const Image image = packed_of(d).serialize();
    auto memory = aligned(image);
    const std::weak_ptr<std::byte> watched = memory;
    const std::byte* const begin = memory.get();
    auto used = PackedWeight::deserialize_in_place(std::span(begin, image.size()),
                                                   std::shared_ptr<const void>(std::move(memory)));
    ASSERT_TRUE(used) << used.error().message();
    memory.reset();
    ASSERT_FALSE(watched.expired());  // (it keeps it)
    expect_unpacks(*used, d);
    EXPECT_TRUE(used->serialize() == image);
    used = PackedWeight();
    EXPECT_TRUE(watched.expired());
  });
}

TEST(PackedGroups, InPlaceNeedsAlignedMemory) {
  const LinearData d = data_of(DType::s4, shapes[2], DType::f16, false);
  const Image image = packed_of(d).serialize();
  for (const std::size_t past : {1, 8, 32}) {
    const auto memory = aligned(image, past);
    const auto refused = PackedWeight::deserialize_in_place(
        std::span(memory.get() + past, image.size()), std::shared_ptr<const void>(memory));
    ASSERT_FALSE(refused);
    expect_error(refused.error(), {ErrorCode::misaligned_operand, {"image"}, {"64"}});
    EXPECT_TRUE(PackedWeight::deserialize(std::span(memory.get() + past, image.size())));
  }
}

TEST(PackedGroups, InPlaceNeedsAKeeper) {
  const Image image = packed_of(data_of(DType::s4, shapes[2], DType::f16, false)).serialize();
  const auto refused = PackedWeight::deserialize_in_place(image, nullptr);
  ASSERT_FALSE(refused);
  expect_error(refused.error(), invalid("keeper", {"nothing", "deserialize"}));
}

template <class Plan>
void expect_runs(const Stream& stream, const typename Plan::Descriptor& descriptor,
                 const LinearData& d, const PackedWeight& packed) {
  const auto plan = Plan::select(stream, descriptor);
  ASSERT_TRUE(plan) << plan.error().message();
  const WorkspaceBuffer workspace(plan->workspace_size());
  Matrix out = blank_output(d.c);
  const Status s = plan->run(stream, workspace, linear_args<typename Plan::Args>(d, packed, out));
  ASSERT_TRUE(s) << s.error().message();
  EXPECT_EQ(out.bytes, expected(d).bytes);
}

// A file that is mapped to be read: whoever writes there ends the program.
TEST(PackedGroups, InPlaceOnlyReads) {
  for (const Target target : available_targets())
    for (const DType type : {DType::s8, DType::s4, DType::u8, DType::f32}) {
      LinearCase c;
      c.kind = is_float(type) ? LinearKind::floats : LinearKind::dynamic;
      c.m = 3;
      c.n = 37;
      c.k = 96;
      c.group = is_float(type) || type == DType::s8 ? 0 : 32;
      c.activation = DType::f32;
      c.weight = type;
      c.packed = true;
      const LinearData d = make_linear(c);
      const Image image = packed_of(d).serialize();
      const std::size_t bytes = (image.size() + 4095) / 4096 * 4096;
      void* const pages =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(pages, MAP_FAILED);
      std::memcpy(pages, image.data(), image.size());
      ASSERT_EQ(mprotect(pages, bytes, PROT_READ), 0);
      const std::shared_ptr<const void> keeper(
          pages, [bytes](const void* p) { munmap(const_cast<void*>(p), bytes); });
      const auto used = PackedWeight::deserialize_in_place(
          std::span(static_cast<const std::byte*>(pages), image.size()), keeper);
      ASSERT_TRUE(used) << used.error().message();
      const Stream stream = Stream::cpu({.threads = 2, .cap = target});
      if (is_float(type)) {
        expect_runs<FloatLinearPlan>(stream, float_descriptor(c), d, *used);
      } else {
        expect_runs<QuantizedLinearPlan>(stream, dynamic_descriptor(c), d, *used);
      }
      Matrix back(type, c.n, c.k, 0);
      EXPECT_TRUE(used->unpack(back.mut()));
    }
}

// It is only read, so nothing may be written there: not by a run, in its workspace or its output,
// and not by itself.
TEST(PackedGroups, NothingIsWrittenOverAnImageInPlace) {
  LinearCase c;
  c.kind = LinearKind::dynamic;
  c.m = 2;
  c.n = 64;
  c.k = 64;
  c.group = 32;
  c.activation = DType::f32;
  c.weight = DType::s4;
  c.packed = true;
  const LinearData d = make_linear(c);
  const PackedWeight own = packed_of(d);
  const Image image = own.serialize();
  const auto memory = aligned(image);
  std::byte* const body = memory.get() + header_bytes;
  const auto used = PackedWeight::deserialize_in_place(std::span(memory.get(), image.size()),
                                                       std::shared_ptr<const void>(memory));
  ASSERT_TRUE(used);
  const auto plan = QuantizedLinearPlan::select(one_thread(), dynamic_descriptor(c));
  ASSERT_TRUE(plan) << plan.error().message();
  const WorkspaceBuffer workspace(plan->workspace_size());
  Matrix out = blank_output(c);
  const auto refused = [&](std::byte* output, Workspace scratch, const Refusal& refusal) {
    auto args = linear_args<QuantizedLinearPlan::Args>(d, *used, out);
    if (output != nullptr) args.output.data = output;
    const Status s = plan->run(one_thread(), scratch, args);
    ASSERT_FALSE(s);
    expect_error(s.error(), refusal);
    EXPECT_EQ(std::memcmp(memory.get(), image.data(), image.size()), 0);
  };
  refused(body, workspace, invalid("output", {"apart from weight", "overlap"}));
  refused(body + used->bytes() - 64, workspace, invalid("output", {"apart from weight"}));
  refused(nullptr, {body, used->bytes()}, invalid("workspace", {"apart"}));
  const Status unpacked = used->unpack(TensorMut(body, DType::s4, {c.n, c.k}));
  ASSERT_FALSE(unpacked);
  expect_error(unpacked.error(), invalid("weight", {"packed weight", "overlap"}));
  Matrix rows(DType::s4, c.n, c.k, 0);
  const Status scales = used->unpack(rows.mut(), TensorMut(body, c.parameter, {c.n, c.groups()}));
  ASSERT_FALSE(scales);
  expect_error(scales.error(), invalid("scales", {"overlap"}));
  const Status written = used->serialize(std::span(memory.get(), image.size()));
  ASSERT_FALSE(written);
  expect_error(written.error(), invalid("image", {"packed weight", "overlap"}));
  EXPECT_EQ(std::memcmp(memory.get(), image.data(), image.size()), 0);
}

// Its memory is another's, and may be a file that is mapped to be read.
TEST(PackedGroups, NothingIsPackedOverAnImageInPlace) {
  const LinearData d = data_of(DType::s4, shapes[2], DType::f16, false);
  const PackedWeight packed = packed_of(d);
  const Image image = packed.serialize();
  const auto memory = aligned(image);
  auto used = PackedWeight::deserialize_in_place(std::span(memory.get(), image.size()),
                                                 std::shared_ptr<const void>(memory));
  ASSERT_TRUE(used);
  const auto plan = PackWeightPlan::select(
      one_thread(),
      {.n = d.c.n, .k = d.c.k, .weight = DType::s4, .group_size = d.c.group, .scale = DType::f16});
  ASSERT_TRUE(plan) << plan.error().message();
  const TensorRef scales(d.weight_scales.bytes.data(), DType::f16, {d.c.n, d.c.groups()});
  const PackWeightArgs args{.weight = d.weight.ref(), .scales = scales, .packed = &*used};
  for (const Status& s : {plan->can_implement(args), plan->run(one_thread(), {}, args)}) {
    ASSERT_FALSE(s);
    expect_error(s.error(), invalid("packed", {"make_packed", "image in place"}));
  }
  EXPECT_TRUE(used->serialize() == image);
  EXPECT_EQ(std::memcmp(memory.get(), image.data(), image.size()), 0);
}

// Images lie on disks: what a version is may not change.
TEST(PackedGroups, VersionTwoIsPinned) {
  Digest digest;
  for_each_format([&](const LinearData& d) { digest.add(packed_of(d).serialize()); });
  EXPECT_EQ(digest.value(), 0xa04f0c8a898391fcULL);
}

TEST(PackedGroups, ImagesRefuseEveryFlippedBit) {
  for (const DType code : codes) {
    const Image image = packed_of(data_of(code, shapes[1], DType::f16, true)).serialize();
    for (std::size_t i = 0; i < 8 * image.size(); ++i) {
      Image flipped = image;
      flipped[i / 8] ^= static_cast<std::byte>(1U << i % 8);
      ASSERT_FALSE(PackedWeight::deserialize(flipped)) << "bit " << i;
    }
  }
}

// Whoever writes a checksum that fits: padding is 0, zero points are within the type, scales are
// finite, sums those of the codes.
TEST(PackedGroups, ImagesRefuseWhatNoOneHasPacked) {
  const auto refused = [](const Image& image, std::size_t at, auto value) {
    const Image changed = with(image, at, value);
    ASSERT_NE(changed, image);
    const auto loaded = PackedWeight::deserialize(with(changed, checksum_at, checksum_of(changed)));
    ASSERT_FALSE(loaded) << at;
    expect_error(loaded.error(), invalid("image", {"serialize"}));
  };
  // [5, 12] of s4 in groups of 4: scales of 64 bytes, 64 of codes, three times; then zero points.
  const Image groups = packed_of(data_of(DType::s4, shapes[1], DType::f16, true)).serialize();
  ASSERT_EQ(groups.size(), header_bytes + 512);
  refused(groups, header_bytes + 2, std::uint16_t{0x7C00});     // an infinite scale
  refused(groups, header_bytes + 10, std::uint16_t{1});         // that of column 5
  refused(groups, header_bytes + 64 + 20, std::uint8_t{0x0F});  // a code of it
  refused(groups, header_bytes + 64 + 60, std::uint8_t{0xF0});  // of column 31
  refused(groups, header_bytes + 384 + 4, std::uint8_t{16});    // a zero point beyond 15
  refused(groups, header_bytes + 384 + 5, std::uint8_t{1});     // of column 5
  refused(groups, groups.size() - 1, std::uint8_t{1});          // behind all of them
  // [3, 6] of u4 with one scale per channel: two steps of 64 bytes, and 32 sums.
  const Image channels = testing::packed_of(random_weight(DType::u4, 3, 6, 5)).serialize();
  ASSERT_EQ(channels.size(), header_bytes + 128 + 256);
  const auto last = static_cast<std::uint8_t>(channels[header_bytes + 64 + 2]);
  refused(channels, header_bytes + 64 + 2, static_cast<std::uint8_t>(last | 1U));  // k = 6
  for (std::size_t column = 0; column < 32; ++column)
    refused(channels, header_bytes + 128 + 8 * column, std::int64_t{12345});
  // [3, 2] of floats.
  const Image floats = testing::packed_of(random_weight(DType::bf16, 3, 2, 5)).serialize();
  ASSERT_EQ(floats.size(), header_bytes + 128);
  refused(floats, header_bytes + 6, std::uint16_t{1});
  refused(floats, floats.size() - 1, std::uint8_t{1});
}

// Padding that is counted in its sum is padding still, as with bytes.
TEST(PackedGroups, ImagesRefusePaddingThatIsNotZeroEvenInItsSum) {
  for (const DType type : {DType::s4, DType::u4}) {
    constexpr std::size_t n = 20, k = 6, steps = 2;
    const Image image = testing::packed_of(random_weight(type, n, k, 1)).serialize();
    const std::size_t sums = header_bytes + steps * 64;
    ASSERT_EQ(image.size(), sums + std::size_t{32} * 8);
    for (std::size_t column = 0; column < 32; ++column)
      for (std::size_t i = 0; i < steps * 4; ++i) {
        if (column < n && i < k) continue;
        const std::size_t at = header_bytes + i / 4 * 64 + column % 16 * 4 + i % 4;
        const std::byte one{static_cast<unsigned char>(column < 16 ? 0x01 : 0x10)};
        ASSERT_EQ(image[at] & (one | one << 1 | one << 2 | one << 3), std::byte{0});
        Image changed = with(image, at, image[at] | one);
        changed =
            with(changed, sums + 8 * column, field<std::int64_t>(image, sums + 8 * column) + 1);
        const auto loaded =
            PackedWeight::deserialize(with(changed, checksum_at, checksum_of(changed)));
        ASSERT_FALSE(loaded) << column << " " << i;
        expect_error(loaded.error(), invalid("image", {"sums"}));
      }
  }
}

// Sums are found in 32 bits, piece by piece of a long column.
TEST(PackedGroups, LongColumnsAreChecked) {
  if (slow_machine()) GTEST_SKIP() << "64 MB of weights";
  constexpr std::int64_t k = (std::int64_t{1} << 22) + 70;
  for (const DType type : {DType::s8, DType::u4}) {
    Matrix w(type, 1, k, 0);
    std::fill(w.bytes.begin(), w.bytes.end(),
              static_cast<std::byte>(type == DType::s8 ? 0x80 : 0xFF));
    const Image image = testing::packed_of(w).serialize();
    EXPECT_TRUE(PackedWeight::deserialize(image));
    const std::size_t step = 64;  // bytes of four k
    for (const std::int64_t at : {std::int64_t{0}, k - 65}) {
      Image changed = image;
      changed[header_bytes + static_cast<std::size_t>(at / 4) * step] ^= std::byte{1};
      EXPECT_FALSE(PackedWeight::deserialize(with(changed, checksum_at, checksum_of(changed))));
    }
  }
}

TEST(PackedGroups, OneScalePerChannelAndFloats) {
  for (const DType type :
       {DType::s4, DType::u4, DType::s8, DType::u8, DType::f32, DType::f16, DType::bf16})
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {3, 7},
                               {33, 65},
                               {64, 64},
                               {100, 31},
                               {0, 5},
                               {5, 0}}) {
      Matrix w = random_weight(type, n, k, 7, is_packed(type) ? 4 : 3);
      const PackedWeight packed = testing::packed_of(w);
      const auto loaded = PackedWeight::deserialize(packed.serialize());
      ASSERT_TRUE(loaded) << loaded.error().message();
      EXPECT_EQ(loaded->format(), packed.format());
      EXPECT_EQ(packed.format().group, 0);
      Matrix back(type, n, k, is_packed(type) ? 2 : 5);
      const Status s = loaded->unpack(back.mut());
      ASSERT_TRUE(s) << s.error().message();
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < k; ++j) ASSERT_EQ(back.get(i, j), w.get(i, j));
    }
}

// Codes as compressed-tensors stores them: unsigned, more by 8 or 128.
TEST(PackedGroups, OffsetCodes) {
  for (const DType type : {DType::s4, DType::s8})
    for (const std::int64_t group : {0, 8}) {
      LinearCase c;
      c.n = 37;
      c.k = 40;
      c.group = group;
      c.weight = type;
      const LinearData d = make_linear(c);
      Matrix offset = d.weight;
      for (std::byte& byte : offset.bytes) byte ^= std::byte(type == DType::s4 ? 0x88 : 0x80);
      const auto plan = PackWeightPlan::select(
          one_thread(), {.n = c.n, .k = c.k, .weight = type, .group_size = group, .offset = true});
      ASSERT_TRUE(plan) << plan.error().message();
      PackedWeight packed = *plan->make_packed();
      PackWeightArgs args{.weight = offset.ref(), .packed = &packed};
      if (group != 0)
        args.scales = TensorRef(d.weight_scales.bytes.data(), DType::f32, {c.n, d.c.groups()});
      ASSERT_TRUE(plan->run(one_thread(), {}, args));
      EXPECT_TRUE(packed.serialize() == packed_of(d).serialize());
    }
}

// Rows of whole words, as compressed-tensors stores them: what fills the last one is not read.
TEST(PackedGroups, OffsetCodesInRowsOfWords) {
  for (const DType type : {DType::s4, DType::s8})
    for (const std::int64_t k : {3, 36, 37}) {
      LinearCase c;
      c.n = 5;
      c.k = k;
      c.group = k == 36 ? 4 : 0;
      c.weight = type;
      const std::int64_t word = type == DType::s4 ? 8 : 4;
      c.padding = (k + word - 1) / word * word - k;
      const LinearData d = make_linear(c);
      Matrix offset = d.weight;
      ASSERT_EQ(offset.ref().strides[0] % word, 0);
      for (std::byte& byte : offset.bytes) byte = std::byte{0xFF};
      for (std::int64_t n = 0; n < c.n; ++n)
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at = static_cast<std::size_t>(n * offset.ref().strides[0] + i);
          const int code = static_cast<int>(d.weight.get(n, i)) + (type == DType::s4 ? 8 : 128);
          if (type == DType::s8) {
            offset.bytes[at] = static_cast<std::byte>(code);
          } else {
            const std::byte keep{static_cast<unsigned char>(at % 2 == 0 ? 0xF0 : 0x0F)};
            offset.bytes[at / 2] = (offset.bytes[at / 2] & keep) |
                                   static_cast<std::byte>(at % 2 == 0 ? code : code << 4);
          }
        }
      const auto plan = PackWeightPlan::select(
          one_thread(), {.n = c.n, .k = k, .weight = type, .group_size = c.group, .offset = true});
      ASSERT_TRUE(plan) << plan.error().message();
      PackedWeight packed = *plan->make_packed();
      PackWeightArgs args{.weight = offset.ref(), .packed = &packed};
      if (c.group != 0)
        args.scales = TensorRef(d.weight_scales.bytes.data(), DType::f32, {c.n, d.c.groups()});
      const Status s = plan->run(one_thread(), {}, args);
      ASSERT_TRUE(s) << s.error().message();
      EXPECT_TRUE(packed.serialize() == packed_of(d).serialize()) << name(type) << " " << k;
    }
}

TEST(PackedGroups, GroupsOfWholeRowsHoldNoScales) {
  const Matrix w = random_weight(DType::s4, 2, 8, 1);
  const std::vector<float> scales{1, 2};
  for (const std::int64_t group : {8, 16}) {
    WeightGroups groups;
    groups.size = group;
    groups.scales = TensorRef(scales, {2, 1});
    const auto refused = octavo::pack(one_thread(), w.ref(), groups);
    ASSERT_FALSE(refused);
    expect_error(refused.error(), invalid("scales", {"none", std::to_string(group), "k = 8"}));
  }
}

TEST(PackedGroups, RunRefuses) {
  const LinearData d = data_of(DType::s4, shapes[1], DType::f16, true);
  const auto plan = PackWeightPlan::select(one_thread(), {.n = 5,
                                                          .k = 12,
                                                          .weight = DType::s4,
                                                          .group_size = 4,
                                                          .scale = DType::f16,
                                                          .zero_points = true});
  ASSERT_TRUE(plan) << plan.error().message();
  PackedWeight packed = *plan->make_packed();
  const Image before = packed.serialize();
  const TensorRef scales(d.weight_scales.bytes.data(), DType::f16, {5, 3});
  const TensorRef zeros(d.weight_zero_points.data(), {5, 3});
  const auto refused = [&](const TensorRef& s, const TensorRef& z, const Refusal& expected) {
    const PackWeightArgs args{
        .weight = d.weight.ref(), .scales = s, .zero_points = z, .packed = &packed};
    for (const Status& status : {plan->can_implement(args), plan->run(one_thread(), {}, args)}) {
      ASSERT_FALSE(status);
      expect_error(status.error(), expected);
    }
    EXPECT_TRUE(packed.serialize() == before);
  };
  refused({}, zeros, invalid("scales", {"[5, 3]", "none"}));
  refused(scales, {}, invalid("zero_points", {"[5, 3]", "none"}));
  refused({scales.data, DType::f32, {5, 3}}, zeros, unsupported("scales", {"f16", "f32"}));
  refused({scales.data, DType::f16, {5, 2}}, zeros, invalid("scales", {"15", "10"}));
  refused(scales, {zeros.data, DType::s32, {14}}, invalid("zero_points", {"15", "14"}));
  Bytes infinite = d.weight_scales.bytes;
  store_bits(infinite.data(), 2, 7, 0x7C00);
  refused({infinite.data(), DType::f16, {5, 3}}, zeros, invalid("scales", {"finite", "index 7"}));
  std::vector<std::int32_t> beyond = d.weight_zero_points;
  beyond[11] = 8;
  refused(scales, TensorRef(beyond.data(), {5, 3}),
          invalid("zero_points", {"-8 to 7", "index 11"}));
}

TEST(PackedGroups, UnpackRefuses) {
  const LinearData d = data_of(DType::s4, shapes[1], DType::f16, false);
  const PackedWeight packed = packed_of(d);
  Bytes memory(1024, std::byte{0x5A});
  const Bytes before = memory;
  const auto refused = [&](const TensorMut& w, const TensorMut& s, const TensorMut& z,
                           const Refusal& expected) {
    const Status status = packed.unpack(w, s, z);
    ASSERT_FALSE(status);
    expect_error(status.error(), expected);
    EXPECT_EQ(memory, before);
  };
  std::byte* at = memory.data();
  const TensorMut good(at, DType::s4, {5, 12});
  refused({at, DType::u4, {5, 12}}, {}, {}, unsupported("weight", {"s4", "u4"}));
  refused({at, DType::s4, {5, 10}}, {}, {}, invalid("weight", {"[5, 12]", "[5, 10]"}));
  refused(good, {at + 512, DType::f32, {5, 3}}, {}, unsupported("scales", {"f16", "f32"}));
  refused(good, {at + 512, DType::f16, {5, 2}}, {}, invalid("scales", {"15", "10"}));
  refused(good, {at + 16, DType::f16, {5, 3}}, {}, invalid("scales", {"apart"}));
  refused(good, {}, {at + 512, DType::s32, {5, 3}}, invalid("zero_points", {"none"}));
  EXPECT_FALSE(PackedWeight().unpack(good));
}

}  // namespace
}  // namespace octavo::testing
