// Packed weights: made, made again, stored and loaded.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/linear/testing_packed.hpp"

namespace octavo::testing {
namespace {

/// The raw sums of [3, k] activations, a few of them at the ends of their range.
std::vector<std::int32_t> sums(const PackedWeight& w) {
  const auto plan = QuantizedMatmulPlan::select(one_thread(), {.m = 3,
                                                               .n = w.n(),
                                                               .k = w.k(),
                                                               .activation = DType::u8,
                                                               .weight = w.dtype(),
                                                               .output = DType::s32,
                                                               .packed_weight = true});
  EXPECT_TRUE(plan) << plan.error().message();
  const Matrix x = random_weight(DType::u8, 3, w.k(), 99);
  std::vector<std::int32_t> y(static_cast<std::size_t>(3 * w.n()));
  const WorkspaceBuffer workspace(plan->workspace_size());
  const Status ran = plan->run(one_thread(), workspace,
                               {.input = x.ref(), .weight = w, .output = TensorMut(y, {3, w.n()})});
  EXPECT_TRUE(ran) << ran.error().message();
  return y;
}
std::vector<std::int32_t> sums(const Matrix& w) {
  const Matrix x = random_weight(DType::u8, 3, w.columns, 99);
  std::vector<std::int32_t> y;
  for (std::int64_t m = 0; m < 3; ++m)
    for (std::int64_t n = 0; n < w.rows; ++n) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < w.columns; ++k) {
        const auto value = static_cast<std::int32_t>(w.get(n, k));
        const std::int32_t weight = w.type == DType::s8 && value > 127 ? value - 256 : value;
        sum += static_cast<std::int32_t>(x.get(m, k)) * weight;
      }
      y.push_back(sum);
    }
  return y;
}

constexpr std::array<std::array<std::int64_t, 2>, 16> shapes{{{1, 1},
                                                              {1, 64},
                                                              {16, 64},
                                                              {17, 65},
                                                              {5, 3},
                                                              {15, 63},
                                                              {16, 1},
                                                              {1, 65},
                                                              {33, 31},
                                                              {64, 64},
                                                              {65, 129},
                                                              {7, 200},
                                                              {100, 100},
                                                              {129, 17},
                                                              {31, 333},
                                                              {48, 4}}};

/// Writes an image to memory of its size, and not to less.
void expect_fits(const PackedWeight& packed, const Image& image) {
  Image room(image.size() + 1, std::byte{0xA5});
  for (const std::size_t bytes : {image.size() - 1, std::size_t{0}}) {
    const Status status = packed.serialize(std::span(room).first(bytes));
    ASSERT_FALSE(status);
    expect_error(status.error(),
                 too_small("image", std::ssize(image), static_cast<std::int64_t>(bytes)));
    EXPECT_EQ(room, Image(room.size(), std::byte{0xA5}));
  }
  EXPECT_TRUE(packed.serialize(room));  // (of more, the first bytes)
  EXPECT_TRUE(std::equal(image.begin(), image.end(), room.begin()));
  EXPECT_EQ(room.back(), std::byte{0xA5});
}

// ---- the image ---------------------------------------------------------------------------------

TEST(PackedWeights, AreStoredAndLoaded) {
  for (const DType type : {DType::s8, DType::u8})
    for (const auto& [n, k] : shapes) {
      const Matrix w = random_weight(type, n, k, static_cast<std::uint64_t>(n * 1000 + k));
      const PackedWeight packed = packed_of(w);
      const Image image = packed.serialize();
      const auto loaded = PackedWeight::deserialize(image);
      ASSERT_TRUE(loaded) << loaded.error().message();
      EXPECT_EQ(loaded->n(), n);
      EXPECT_EQ(loaded->k(), k);
      EXPECT_EQ(loaded->dtype(), type);
      EXPECT_EQ(loaded->bytes(), packed.bytes());
      EXPECT_FALSE(loaded->empty());
      EXPECT_TRUE(loaded->serialize() == image);
      expect_fits(packed, image);
      EXPECT_NE(loaded->impl(), packed.impl());
      EXPECT_EQ(sums(packed), sums(w));
      EXPECT_EQ(sums(*loaded), sums(w));
      // From any address.
      Image moved(1);
      moved.insert(moved.end(), image.begin(), image.end());
      const auto again = PackedWeight::deserialize(std::span(moved).subspan(1));
      ASSERT_TRUE(again);
      EXPECT_EQ(sums(*again), sums(w));
    }
}

TEST(PackedWeights, OfNothing) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                             {0, 7},
                             {7, 0},
                             {0, std::int64_t{1} << 40},
                             {33, 0}}) {
    const auto packed = octavo::pack(one_thread(), TensorRef(nullptr, DType::u8, {n, k}));
    ASSERT_TRUE(packed) << packed.error().message();
    const auto loaded = PackedWeight::deserialize(packed->serialize());
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(loaded->n(), n);
    EXPECT_EQ(loaded->k(), k);
    EXPECT_FALSE(loaded->empty());
  }
  const PackedWeight empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty.n(), 0);
  EXPECT_EQ(empty.k(), 0);
  EXPECT_EQ(empty.bytes(), 0U);
  EXPECT_TRUE(empty.serialize().empty());
  EXPECT_EQ(empty.serialized_bytes(), 0U);
  EXPECT_TRUE(empty.serialize(std::span<std::byte>{}));
}

// Images lie on disks: what a version is may not change.
TEST(PackedWeights, VersionsArePinned) {
  Digest digest;
  Digest digest_1;
  for (const DType type : {DType::s8, DType::u8})
    for (const auto& [n, k] : shapes) {
      const PackedWeight packed =
          packed_of(random_weight(type, n, k, static_cast<std::uint64_t>(n + k)));
      const Image image = packed.serialize();
      const Image old = as_version_1(image);
      digest.add(image);
      digest_1.add(old);
      const auto loaded = PackedWeight::deserialize(old);
      ASSERT_TRUE(loaded) << loaded.error().message();
      EXPECT_EQ(loaded->serialize(), image);
      // (It cannot be used where it is, and is copied.)
      const auto kept = PackedWeight::deserialize_in_place(old, std::make_shared<int>());
      ASSERT_TRUE(kept) << kept.error().message();
      EXPECT_EQ(kept->serialize(), image);
    }
  EXPECT_EQ(digest_1.value(), 0x8FD8A2CF406528C3ULL);
  EXPECT_EQ(digest.value(), 0x141dd5d2288edc2bULL);
}

// ---- the plan ----------------------------------------------------------------------------------

TEST(PackedWeights, CopiesShareTheirMemory) {
  const Matrix first = random_weight(DType::s8, 33, 70, 1);
  const Matrix second = random_weight(DType::s8, 33, 70, 2);
  const auto plan = PackWeightPlan::select(one_thread(), {.n = 33, .k = 70});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace_size(), 0U);
  PackedWeight packed = *plan->make_packed();
  EXPECT_EQ(sums(packed), std::vector<std::int32_t>(std::size_t{3} * 33));  // all zero
  for (const Matrix* w : {&first, &second}) {
    ASSERT_TRUE(plan->run(one_thread(), {}, {.weight = w->ref(), .packed = &packed}));
    EXPECT_EQ(sums(packed), sums(*w));
    // Nothing is left of what was there before.
    EXPECT_TRUE(packed.serialize() == packed_of(*w).serialize());
  }
  // A copy may be in use: what both share is not written.
  const PackedWeight copy = packed;
  EXPECT_EQ(copy.impl(), packed.impl());
  const Status again = plan->run(one_thread(), {}, {.weight = first.ref(), .packed = &packed});
  ASSERT_FALSE(again);
  expect_error(again.error(), invalid("packed", {"copies"}));
  EXPECT_EQ(sums(copy), sums(second));
}

TEST(PackedWeights, AnyNumberOfThreads) {
  [[maybe_unused]] const ManyThreads many;
  for (const DType type : {DType::s8, DType::u8}) {
    const Matrix w = random_weight(type, 1001, 2100, 3, 5);  // rows that lie apart
    Matrix dense(type, w.rows, w.columns, 0);
    for (std::int64_t r = 0; r < w.rows; ++r)
      std::memcpy(dense.bytes.data() + r * dense.stride, w.bytes.data() + r * w.stride,
                  static_cast<std::size_t>(w.columns));
    const Image image = packed_of(dense).serialize();
    for (const int threads : all_thread_counts) {
      const auto packed = octavo::pack(Stream::cpu({.threads = threads}), w.ref());
      ASSERT_TRUE(packed);
      EXPECT_TRUE(packed->serialize() == image) << threads;
    }
  }
}

TEST(PackedWeights, SelectRefuses) {
  const auto refused = [](const PackWeightDescriptor& d, const Refusal& expected,
                          const CpuOptions& options = {}, const PlanPreference& preference = {}) {
    const auto plan = PackWeightPlan::select(Stream::cpu(options), d, preference);
    ASSERT_FALSE(plan);
    expect_error(plan.error(), expected);
  };
  for (const DType wrong : {DType::f64, DType::s16, DType::s32, static_cast<DType>(99)})
    refused({4, 4, wrong}, unsupported("weight", {"s8", "u8", std::string(name(wrong))}));
  for (const std::int64_t group : {-4, 2, 6, 9})
    refused({4, 12, DType::s4, group}, invalid("group_size", {std::to_string(group)}));
  refused({4, 12, DType::s4, 8}, invalid("group_size", {"12", "8"}));
  refused({4, 12, DType::f32, 4}, invalid("group_size", {"f32", "4"}));
  for (const DType wrong : {DType::s8, static_cast<DType>(99)})
    refused({4, 12, DType::s4, 4, wrong}, unsupported("scale", {"f32", std::string(name(wrong))}));
  refused({.n = 4, .k = 12, .zero_points = true}, invalid("zero_points", {"groups"}));
  for (const DType type : {DType::u8, DType::u4, DType::f16})
    refused({.n = 4, .k = 12, .weight = type, .offset = true},
            invalid("offset", {std::string(name(type))}));
  refused({-1, 4}, invalid("n", {"-1"}));
  refused({4, -1}, invalid("k", {"-1"}));
  refused({INT64_MAX, 1}, invalid("n", {std::to_string(INT64_MAX)}));
  refused({1, INT64_MAX}, invalid("k", {std::to_string(INT64_MAX)}));
  refused({std::int64_t{1} << 32, std::int64_t{1} << 32}, invalid("n", {"address space"}));
  refused({std::int64_t{1} << 58, 0}, invalid("n", {"address space"}));  // each has a sum
  refused({4, 4}, invalid("threads", {"-3"}), {.threads = -3});
  refused({4, 4}, unsupported("cap"), {.cap = static_cast<Target>(77)});
  refused({4, 4}, unsupported("backend", {"cpu", "cuda"}), {}, {.backend = Backend::cuda});
  refused({4, 4}, unsupported("target"), {}, {.target = static_cast<Target>(77)});
  EXPECT_TRUE(PackWeightPlan::select(one_thread(), {4, 4}, {.max_workspace_bytes = 0}));
}

TEST(PackedWeights, RunRefuses) {
  const auto plan = PackWeightPlan::select(one_thread(), {.n = 6, .k = 8});
  ASSERT_TRUE(plan);
  const Matrix w = random_weight(DType::s8, 8, 8, 1);
  const auto* rows = w.bytes.data();
  PackedWeight packed = packed_of(random_weight(DType::s8, 6, 8, 5));
  const Image before = packed.serialize();
  const auto refused = [&](const TensorRef& weight, PackedWeight* to, const Refusal& expected) {
    for (const Status& status : {plan->can_implement({.weight = weight, .packed = to}),
                                 plan->run(one_thread(), {}, {.weight = weight, .packed = to})}) {
      ASSERT_FALSE(status);
      expect_error(status.error(), expected);
    }
    EXPECT_TRUE(packed.serialize() == before);
  };
  const TensorRef good(rows, DType::s8, {6, 8});
  refused({rows, DType::u8, {6, 8}}, &packed, unsupported("weight", {"s8", "u8"}));
  refused({rows, DType::f32, {6, 8}}, &packed, unsupported("weight", {"s8", "f32"}));
  refused({nullptr, DType::s8, {6, 8}}, &packed, invalid("weight", {"null"}));
  for (const Shape& shape : {Shape{8, 6}, Shape{6, 7}, Shape{5, 8}, Shape{48}, Shape{6, 8, 1}})
    refused({rows, DType::s8, shape}, &packed, invalid("weight", {"[6, 8]"}));
  refused({rows, DType::s8, {6, 8}, {1, 6}}, &packed, invalid("weight", {"stride 1", "[1, 6]"}));
  refused({rows, DType::s8, {6, 8}, {8, 1}, 47}, &packed, too_small("weight", 48, 47));
  refused(good, nullptr, invalid("packed", {"make_packed", "none"}));
  PackedWeight empty;
  refused(good, &empty, invalid("packed", {"make_packed", "none"}));
  for (const auto& [type, n, k] :
       {std::tuple{DType::s8, 7, 8}, {DType::s8, 6, 9}, {DType::u8, 6, 8}}) {
    PackedWeight wrong = packed_of(random_weight(type, n, k, 1));
    refused(good, &wrong, invalid("packed", {"[6, 8] of s8", std::string(name(type))}));
  }
}

TEST(PackedWeights, PackRefuses) {
  const std::vector<std::int8_t> rows(48);
  for (const Shape& shape : {Shape{48}, Shape{1, 6, 8}, Shape()}) {
    const auto packed = octavo::pack(one_thread(), TensorRef(rows.data(), shape));
    ASSERT_FALSE(packed);
    expect_error(packed.error(), invalid("weight", {"[n, k]"}));
  }
  const std::vector<double> doubles(48);
  EXPECT_FALSE(octavo::pack(one_thread(), TensorRef(doubles, {6, 8})));
  EXPECT_FALSE(octavo::pack(one_thread(), TensorRef(rows, {6, 9})));
  // More than there is memory for, though one row of it serves as all.
  if (sanitized) GTEST_SKIP() << "a sanitizer ends the process where an allocation fails";
  const auto plan = PackWeightPlan::select(one_thread(), {.n = std::int64_t{1} << 50, .k = 48});
  ASSERT_TRUE(plan);
  const auto made = plan->make_packed();
  ASSERT_FALSE(made);
  expect_error(made.error(), {ErrorCode::backend, {"weight"}, {"memory", "1125899906842624"}});
  const TensorRef vast(rows.data(), DType::s8, {std::int64_t{1} << 50, 48}, {0, 1});
  const auto packed = octavo::pack(one_thread(), vast);
  ASSERT_FALSE(packed);
  expect_error(packed.error(), {ErrorCode::backend, {"weight"}, {"memory", "1125899906842624"}});
}

}  // namespace
}  // namespace octavo::testing
