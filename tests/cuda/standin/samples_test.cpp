// Kernels that clang made of the samples, against the same in C++.
#include <cmath>
#include <random>

#include "tests/cuda/standin/testing.hpp"

namespace standin_test {
namespace {

class Samples : public Standin {
 protected:
  void SetUp() override {
    Standin::SetUp();
    if (sample("basic").empty()) GTEST_SKIP() << "no clang that makes PTX";
  }
  std::mt19937 random_{1};
};

constexpr u64 seeds[] = {0, 1, 2, 77};

TEST_F(Samples, Quantize) {
  void* f = function(sample("basic"), "quantize");
  for (const s64 count : {0, 1, 31, 32, 1000, 70001}) {
    std::vector<float> x(static_cast<std::size_t>(count) + 1);
    for (float& v : x) v = std::normal_distribution<float>(0, 50)(random_);
    const u64 in = upload(x);
    const u64 out = allocate(x.size());
    MUST("cuMemsetD8_v2", out, static_cast<unsigned char>(0x55), x.size());
    struct {
      u64 x, q;
      float scale;
      s32 zero_point;
      s64 count;
    } args{in, out, 0.73f, -5, count};
    ASSERT_EQ(run(f, 7, 64, args), 0) << control().message();
    const auto q = download<s8>(out, x.size());
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const float v = std::nearbyint(x[i] / 0.73f) - 5;
      ASSERT_EQ(q[i], static_cast<s8>(v < -128 ? -128 : v > 127 ? 127 : v)) << i;
    }
    EXPECT_EQ(q.back(), 0x55);
    MUST("cuMemFree_v2", in);
    MUST("cuMemFree_v2", out);
  }
}

TEST_F(Samples, SumByShufflesAndAtomics) {
  void* f = function(sample("basic"), "sum");
  for (const u64 seed : seeds) {
    control().set_seed(seed);
    std::vector<s32> x(12345);
    s32 total = 0;
    for (s32& v : x) total += v = static_cast<s32>(random_() % 2001) - 1000;
    const u64 sums = allocate(u64{5} * 4);
    const u64 results = upload(std::vector<s32>{0, -2000000000});
    struct {
      u64 x, sums, total, largest;
      s32 count;
    } args{upload(x), sums, results, results + 4, static_cast<s32>(x.size())};
    ASSERT_EQ(run(f, 5, 256, args), 0) << control().message();
    const auto s = download<s32>(sums, 5);
    EXPECT_EQ(s[0] + s[1] + s[2] + s[3] + s[4], total);
    EXPECT_EQ(download<s32>(results, 2),
              (std::vector<s32>{total, *std::max_element(s.begin(), s.end())}));
    for (const u64 a : {args.x, sums, results}) MUST("cuMemFree_v2", a);
  }
}

TEST_F(Samples, LoopsOfAnotherLengthInEachLane) {
  void* f = function(sample("basic"), "collatz");
  std::vector<u32> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<u32>(i);
  struct {
    u64 x, steps;
    s32 count;
  } args{upload(x), allocate(4000), 1000};
  ASSERT_EQ(run(f, 8, 128, args), 0) << control().message();
  const auto steps = download<u32>(args.steps, 1000);
  for (u32 i = 0; i < 1000; ++i) {
    u32 expected = 0;
    for (u32 n = i; n > 1; n = n % 2 != 0 ? 3 * n + 1 : n / 2) ++expected;
    EXPECT_EQ(steps[i], expected) << i;
  }
  MUST("cuMemFree_v2", args.x);
  MUST("cuMemFree_v2", args.steps);
}

TEST_F(Samples, CallsAndLocalMemory) {
  void* f = function(sample("basic"), "polynomial");
  std::vector<float> x(100);
  for (float& v : x) v = std::normal_distribution<float>(0, 2)(random_);
  struct {
    u64 x, y;
    s32 count;
    float c[5];
  } args{upload(x), allocate(400), 100, {1, -2, 0.5f, 3, 0.25f}};
  ASSERT_EQ(run(f, 1, 128, args), 0) << control().message();
  const auto y = download<float>(args.y, 100);
  for (std::size_t i = 0; i < 100; ++i) {
    float r = 0;
    for (int k = 0; k < 5; ++k) r = r * x[i] + args.c[k];
    float s = 0;
    for (int k = 0; k < 2; ++k) s = s * x[i] + args.c[k];
    EXPECT_EQ(y[i], r + s) << i;
  }
  MUST("cuMemFree_v2", args.x);
  MUST("cuMemFree_v2", args.y);
}

TEST_F(Samples, AllWidths) {
  void* f = function(sample("basic"), "mixed");
  constexpr std::size_t n = 500;
  std::vector<double> d(n);
  std::vector<float> x(n);
  std::vector<s64> l(n);
  std::vector<u16> h(n);
  for (std::size_t i = 0; i < n; ++i) {
    d[i] = std::normal_distribution<double>(0, 1e3)(random_);
    x[i] = std::normal_distribution<float>(0, 1e3)(random_);
    l[i] =
        static_cast<s64>((u64{random_()} << 32 | random_()) >> 12) * (random_() % 2 != 0 ? 1 : -1);
    h[i] = static_cast<u16>(random_());
  }
  struct {
    u64 d, f, l, h, d_out, f_out, l_out, h_out;
    s32 count;
  } args{upload(d),       upload(x),       upload(l),       upload(h), allocate(8 * n),
         allocate(4 * n), allocate(8 * n), allocate(2 * n), n};
  ASSERT_EQ(run(f, 2, 256, args), 0) << control().message();
  const auto d_out = download<double>(args.d_out, n);
  const auto f_out = download<float>(args.f_out, n);
  const auto l_out = download<s64>(args.l_out, n);
  const auto h_out = download<u16>(args.h_out, n);
  const s32 table[4] = {10, 20, -30, 40};
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(d_out[i], std::sqrt(std::fabs(d[i])) * d[i] / 3.0 + static_cast<double>(l[i]));
    EXPECT_EQ(f_out[i], std::fmaf(x[i], x[i], static_cast<float>(d[i])) +
                            static_cast<float>(table[l[i] & 3]));
    EXPECT_EQ(l_out[i], static_cast<s64>(static_cast<u64>(l[i] / 7 + l[i] % 13) +
                                         (static_cast<u64>(l[i]) >> 3) *
                                             static_cast<u64>(static_cast<s64>(x[i]))));
    EXPECT_EQ(h_out[i], static_cast<u16>(h[i] * 3 + 1));
  }
  for (const u64 a :
       {args.d, args.f, args.l, args.h, args.d_out, args.f_out, args.l_out, args.h_out})
    MUST("cuMemFree_v2", a);
}

TEST_F(Samples, DynamicSharedMemory) {
  void* f = function(sample("basic"), "reverse");
  std::vector<s32> x(256);
  for (s32 i = 0; i < 256; ++i) x[static_cast<std::size_t>(i)] = i;
  struct {
    u64 x;
    s32 count;
  } args{upload(x), 256};
  for (const u64 seed : seeds) {
    control().set_seed(seed);
    ASSERT_EQ(run(f, 2, 128, args, 128 * 4), 0) << control().message();
  }
  EXPECT_EQ(download<s32>(args.x, 256), x);
  ASSERT_EQ(run(f, 2, 128, args, 128 * 4), 0);
  EXPECT_EQ(download<s32>(args.x, 2), (std::vector<s32>{127, 126}));
  EXPECT_EQ(run(f, 2, 128, args, 128 * 4 - 4), illegal_address);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("of shared memory, which has 508 bytes"));
  control().reset();
  MUST("cuMemFree_v2", args.x);
}

TEST_F(Samples, GemmByTensorInstructions) {
  void* f = function(sample("gemm"), "gemm");
  control().set_counting(true);
  constexpr std::size_t sizes[][3] = {{64, 64, 32}, {64, 64, 96}, {100, 70, 64}, {1, 130, 160}};
  for (const auto& [m, n, k] : sizes) {
    std::vector<s8> a(m * k);
    std::vector<s8> b(n * k);
    for (s8& v : a) v = static_cast<s8>(random_());
    for (s8& v : b) v = static_cast<s8>(random_());
    struct {
      u64 a, b, c;
      s32 m, n, k;
    } args{upload(a),           upload(b),           allocate(m * n * 4),
           static_cast<s32>(m), static_cast<s32>(n), static_cast<s32>(k)};
    for (const u64 seed : seeds) {
      control().set_seed(seed);
      ASSERT_EQ(run(f, static_cast<u32>(m + 63) / 64, 128, args, 0, static_cast<u32>(n + 63) / 64),
                0)
          << control().message();
      const auto c = download<s32>(args.c, m * n);
      for (std::size_t r = 0; r < m; ++r) {
        for (std::size_t q = 0; q < n; ++q) {
          s32 sum = 0;
          for (std::size_t i = 0; i < k; ++i) sum += a[r * k + i] * b[q * k + i];
          ASSERT_EQ(c[r * n + q], sum) << r << " " << q;
        }
      }
    }
    for (const u64 p : {args.a, args.b, args.c}) MUST("cuMemFree_v2", p);
  }
  control().set_counting(false);
  standin::KernelCounters counters{};
  ASSERT_EQ(control().counter_count(), 1u);
  ASSERT_TRUE(control().counters(0, &counters));
  EXPECT_STREQ(counters.name, "gemm");
  EXPECT_GT(counters.mma, 0u);
  EXPECT_EQ(counters.shared_conflicts, 0u);
}

}  // namespace
}  // namespace standin_test
