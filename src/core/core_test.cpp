// Results, shapes, tensor views, streams, workspaces, kernel names and the ladder of targets.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "octavo/octavo.hpp"

namespace octavo {
namespace {

TEST(ErrorCodes, ArePinnedAndNamed) {
  const std::pair<ErrorCode, int> pinned[] = {
      {ErrorCode::unsupported, 1},        {ErrorCode::invalid_problem, 2},
      {ErrorCode::misaligned_operand, 3}, {ErrorCode::workspace_too_small, 4},
      {ErrorCode::buffer_too_small, 5},   {ErrorCode::backend, 6},
  };
  std::set<std::string_view> names;
  for (const auto& [code, value] : pinned) {
    EXPECT_EQ(static_cast<int>(code), value);
    names.insert(name(code));
  }
  EXPECT_EQ(names,
            (std::set<std::string_view>{"unsupported", "invalid_problem", "misaligned_operand",
                                        "workspace_too_small", "buffer_too_small", "backend"}));
}

TEST(Errors, KeepWhatTheyAreGiven) {
  const Error plain(ErrorCode::invalid_problem, "scale", "scale is 0");
  EXPECT_EQ(plain.code(), ErrorCode::invalid_problem);
  EXPECT_EQ(plain.argument(), "scale");
  EXPECT_EQ(plain.message(), "scale is 0");
  EXPECT_EQ(plain.needed(), 0);
  EXPECT_EQ(plain.got(), 0);

  const Error sized(ErrorCode::buffer_too_small, "output", "too short", 64, 63);
  EXPECT_EQ(sized.code(), ErrorCode::buffer_too_small);
  EXPECT_EQ(sized.argument(), "output");
  EXPECT_EQ(sized.needed(), 64);
  EXPECT_EQ(sized.got(), 63);
}

TEST(Results, HoldAValue) {
  Result<std::string> result = std::string("text");
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.has_value());
  EXPECT_EQ(*result, "text");
  EXPECT_EQ(result->size(), 4u);
  EXPECT_EQ(std::as_const(result).value(), "text");
  EXPECT_EQ(result.value_or("other"), "text");
  result.value() += "ual";
  EXPECT_EQ(*std::move(result), "textual");
}

TEST(Results, HoldAnError) {
  const Result<int> result = Error(ErrorCode::unsupported, "input", "no such type");
  EXPECT_FALSE(result);
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(result.error().argument(), "input");
  EXPECT_EQ(result.value_or(7), 7);
}

TEST(Results, MoveWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 3);
}

TEST(Results, OfNothing) {
  const Status fine;
  EXPECT_TRUE(fine);
  EXPECT_TRUE(fine.has_value());
  const Status bad = Error(ErrorCode::backend, "stream", "lost");
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::backend);
}

TEST(Shapes, CountMoreThanTheyKeep) {
  EXPECT_EQ(Shape{}.rank(), 0);
  const Shape eight{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(eight.rank(), max_rank);
  EXPECT_EQ(eight[7], 8);
  const Shape ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(ten.rank(), 10);
  EXPECT_NE(ten, eight);
  EXPECT_EQ(ten, (Shape{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  const std::vector<std::int64_t> sizes{4, 5};
  EXPECT_EQ(Shape(std::span(sizes)), (Shape{4, 5}));
  EXPECT_NE((Shape{4, 5}), (Shape{4, 6}));
  EXPECT_NE((Shape{4}), (Shape{4, 0}));
}

TEST(Shapes, ContiguousStrides) {
  const struct {
    Shape shape, plain, packed;
  } rows[] = {
      {{}, {}, {}},
      {{5}, {1}, {1}},
      {{2, 3}, {3, 1}, {4, 1}},
      {{2, 4}, {4, 1}, {4, 1}},
      {{2, 3, 5}, {15, 5, 1}, {18, 6, 1}},
      {{4, 1}, {1, 1}, {2, 1}},
      {{2, 1, 1}, {1, 1, 1}, {2, 2, 1}},
      {{3, 0, 2}, {2, 2, 1}, {2, 2, 1}},
      {{2, 2, 2, 2, 2, 2, 2, 3}, {192, 96, 48, 24, 12, 6, 3, 1}, {256, 128, 64, 32, 16, 8, 4, 1}},
  };
  for (const auto& row : rows) {
    for (const DType t : {DType::f32, DType::s8, DType::s32})
      EXPECT_EQ(contiguous_strides(row.shape, t), row.plain);
    for (const DType t : {DType::s4, DType::u4})
      EXPECT_EQ(contiguous_strides(row.shape, t), row.packed);
  }
  // Sizes that cannot be are saturated here and refused by the plan; they must not overflow.
  const std::int64_t huge = INT64_MAX / 2 + 1;
  EXPECT_EQ(contiguous_strides({huge, huge, 2}, DType::f32), (Shape{INT64_MAX, 2, 1}));
  EXPECT_EQ(contiguous_strides({2, INT64_MAX}, DType::f32), (Shape{INT64_MAX, 1}));
  EXPECT_EQ(contiguous_strides({2, INT64_MAX}, DType::s4)[1], 1);
  EXPECT_EQ(contiguous_strides({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, DType::s4).rank(), 10);
}

template <class View>
void expect_view(const View& view, const void* data, DType dtype, const Shape& shape,
                 const Shape& strides, std::int64_t buffer_bytes) {
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.dtype, dtype);
  EXPECT_EQ(view.shape, shape);
  EXPECT_EQ(view.strides, strides);
  EXPECT_EQ(view.buffer_bytes, buffer_bytes);
}

template <class View>
class Views : public testing::Test {};
using BothViews = testing::Types<TensorRef, TensorMut>;
TYPED_TEST_SUITE(Views, BothViews);

TYPED_TEST(Views, OfNothing) { expect_view(TypeParam(), nullptr, DType::f32, {}, {}, -1); }

TYPED_TEST(Views, OfContainersKnowTheirBytes) {
  std::vector<float> floats(6);
  expect_view(TypeParam(floats), floats.data(), DType::f32, {6}, {1}, 24);
  expect_view(TypeParam(floats, {2, 3}), floats.data(), DType::f32, {2, 3}, {3, 1}, 24);
  expect_view(TypeParam(floats, {2, 4}), floats.data(), DType::f32, {2, 4}, {4, 1}, 24);

  std::array<double, 4> doubles{};
  expect_view(TypeParam(doubles), doubles.data(), DType::f64, {4}, {1}, 32);
  std::int8_t plain[5] = {};
  expect_view(TypeParam(plain), plain, DType::s8, {5}, {1}, 5);
  expect_view(TypeParam(plain, {5, 1}), plain, DType::s8, {5, 1}, {1, 1}, 5);

  std::vector<bf16> halves(3);
  std::span<bf16> span(halves);
  expect_view(TypeParam(span), halves.data(), DType::bf16, {3}, {1}, 6);
  expect_view(TypeParam(span.subspan(1)), halves.data() + 1, DType::bf16, {2}, {1}, 4);

  std::vector<u4x2> packed(4);
  expect_view(TypeParam(packed), packed.data(), DType::u4, {8}, {1}, 4);
  expect_view(TypeParam(packed, {2, 3}), packed.data(), DType::u4, {2, 3}, {4, 1}, 4);
}

TYPED_TEST(Views, OfPointersDoNotKnowTheirBytes) {
  std::array<f16, 12> data{};
  expect_view(TypeParam(data.data(), {3, 4}), data.data(), DType::f16, {3, 4}, {4, 1}, -1);
  expect_view(TypeParam(data.data(), {4, 3}, {1, 4}), data.data(), DType::f16, {4, 3}, {1, 4}, -1);
  void* raw = data.data();
  expect_view(TypeParam(raw, DType::s4, {3, 5}), raw, DType::s4, {3, 5}, {6, 1}, -1);
  expect_view(TypeParam(raw, DType::s4, {3, 5}, {8, 1}, 11), raw, DType::s4, {3, 5}, {8, 1}, 11);
}

// Types come from outside, too: one that does not exist is kept, for the plan to refuse by name.
TYPED_TEST(Views, OfATypeThatDoesNotExist) {
  std::array<std::byte, 8> data{};
  void* raw = data.data();
  const TypeParam view(raw, static_cast<DType>(200), {2, 3});
  expect_view(view, raw, static_cast<DType>(200), {2, 3}, {3, 1}, -1);
}

TEST(TensorViews, AWrittenOneCanBeRead) {
  std::vector<std::uint8_t> data(8);
  TensorMut written(data.data(), DType::u8, {2, 3}, {4, 1}, 8);
  expect_view(TensorRef(written), data.data(), DType::u8, {2, 3}, {4, 1}, 8);
}

TEST(TensorViews, ConstDataIsNeverWritten) {
  static_assert(std::is_constructible_v<TensorRef, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<TensorMut, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<TensorMut, std::span<const float>>);
  static_assert(!std::is_constructible_v<TensorMut, const float*, Shape>);
  static_assert(!std::is_convertible_v<TensorRef, TensorMut>);
  const std::vector<float> data(2);
  expect_view(TensorRef(data), data.data(), DType::f32, {2}, {1}, 8);
  expect_view(TensorRef(std::span(data)), data.data(), DType::f32, {2}, {1}, 8);
}

TEST(Streams, HaveThreads) {
  for (const int threads : {1, 2, 3, 7, 16}) {
    const Stream stream = Stream::cpu({.threads = threads});
    EXPECT_EQ(stream.threads(), threads);
    EXPECT_EQ(stream.options().threads, threads);
    EXPECT_EQ(stream.backend(), Backend::cpu);
  }
  EXPECT_GE(Stream::cpu().threads(), 1);
  EXPECT_LE(Stream::cpu().threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(Streams, CopiesShareTheirThreads) {
  std::atomic<std::uint32_t> trace{0};
  const Stream stream = Stream::cpu({.threads = 2, .cap = Target::scalar, .trace = &trace});
  const Stream copy = stream;  // NOLINT(performance-unnecessary-copy-initialization): the point
  EXPECT_EQ(&copy.impl(), &stream.impl());
  EXPECT_EQ(copy.options().cap, Target::scalar);
  EXPECT_EQ(copy.options().trace, &trace);
  EXPECT_NE(&Stream::cpu({.threads = 2}).impl(), &stream.impl());
}

TEST(Workspaces, AreAlignedAndWritable) {
  for (const std::size_t bytes : {1, 63, 64, 65, 100000}) {
    const WorkspaceBuffer buffer(bytes);
    const Workspace workspace = buffer;
    EXPECT_EQ(workspace.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data) % workspace_alignment, 0u);
    auto* data = static_cast<unsigned char*>(workspace.data);
    data[0] = data[bytes - 1] = 1;
  }
  EXPECT_THROW(WorkspaceBuffer(SIZE_MAX - 1), std::bad_alloc);
  const WorkspaceBuffer none(0);
  EXPECT_EQ(static_cast<Workspace>(none).bytes, 0u);
}

// Every field that makes a kernel another kernel, in every value it can have.
std::vector<KernelSku> all_skus() {
  std::vector<KernelSku> skus(1);
  const auto extend = [&skus](auto field, const auto& values) {
    std::vector<KernelSku> next;
    for (const KernelSku& sku : skus)
      for (const auto value : values) {
        next.push_back(sku);
        next.back().*field = value;
      }
    skus = std::move(next);
  };
  extend(&KernelSku::op,
         std::array{Op::quantize, Op::quantize_backward, Op::dequantize, Op::dequantize_backward,
                    Op::fake_quantize, Op::fake_quantize_backward, Op::dynamic_range_quantize,
                    Op::dynamic_range_quantize_asymmetric, Op::observe_min_max,
                    Op::observe_histogram, Op::pack_weight, Op::smoothquant_linear});
  extend(&KernelSku::category, std::array{Category::elementwise, Category::dynamic_range,
                                          Category::observer, Category::linear});
  extend(&KernelSku::epilogue,
         std::array{Epilogue::none, Epilogue::bias, Epilogue::bias | Epilogue::relu});
  extend(&KernelSku::output,
         std::array<std::optional<DType>, 3>{std::nullopt, DType::f32, DType::s8});
  extend(&KernelSku::element, std::array{DType::f32, DType::f64});
  extend(&KernelSku::aux_element, std::array{DType::f32, DType::s8, DType::u8});
  extend(&KernelSku::layout,
         std::array{Layout::per_tensor, Layout::per_channel, Layout::per_token, Layout::per_group});
  extend(&KernelSku::profile, std::array{Profile::torch, Profile::onnx});
  extend(&KernelSku::target, std::array{Target::scalar, Target::avx2, Target::avx512, Target::sve});
  extend(&KernelSku::backend, std::array{Backend::cpu, Backend::cuda});
  return skus;
}

TEST(Skus, PrintAsDocumented) {
  KernelSku sku;
  sku.target = Target::avx512;
  EXPECT_EQ(to_string(sku), "elementwise.quantize.per_tensor.f32.s8.none.torch.cpu.avx512");
  sku.op = Op::fake_quantize_backward;
  sku.element = sku.aux_element = DType::bf16;
  sku.layout = Layout::per_group;
  sku.profile = Profile::onnx;
  sku.target = Target::neon;
  EXPECT_EQ(to_string(sku),
            "elementwise.fake_quantize_backward.per_group.bf16.bf16.none.onnx.cpu.neon");
  sku.category = Category::linear;
  sku.op = Op::quantized_linear;
  sku.aux_element = DType::s8;
  sku.output = DType::f16;
  sku.epilogue = Epilogue::bias | Epilogue::relu;
  EXPECT_EQ(to_string(sku),
            "linear.quantized_linear.per_group.bf16.s8.f16.rows.bias_relu.onnx.cpu.neon");
  sku.quantized = DType::u8;
  sku.packed_weight = true;
  EXPECT_EQ(to_string(sku),
            "linear.quantized_linear.per_group.bf16-u8.s8.f16.packed.bias_relu.onnx.cpu.neon");
}

TEST(Skus, AreDistinctInEveryField) {
  std::vector<KernelSku> skus = all_skus();
  for (const bool packed : {false, true}) {
    skus.push_back(skus.back());
    skus.back().packed_weight = packed;
    skus.back().quantized = DType::f32;  // (0, as a number)
  }
  std::unordered_set<std::size_t> hashes;
  std::unordered_set<std::string> names;
  std::unordered_set<KernelSku> set;
  for (const KernelSku& sku : skus) {
    hashes.insert(std::hash<KernelSku>()(sku));
    names.insert(to_string(sku));
    set.insert(sku);
  }
  EXPECT_EQ(hashes.size(), skus.size());
  EXPECT_EQ(names.size(), skus.size());
  EXPECT_EQ(set.size(), skus.size());
}

TEST(Skus, DependOnTheGuarantee) {
  const KernelSku base;
  const PrecisionGuarantee variants[] = {
      {.math = DType::f64},
      {.accumulator = DType::s32},
      {.deterministic = false},
      {.bit_stable_same_hardware = false},
      {.bit_stable_everywhere = false},
  };
  for (const PrecisionGuarantee& guarantee : variants) {
    KernelSku other;
    other.guarantee = guarantee;
    EXPECT_NE(other, base);
    EXPECT_NE(std::hash<KernelSku>()(other), std::hash<KernelSku>()(base));
  }
  EXPECT_EQ(KernelSku(), base);
  EXPECT_EQ(std::hash<KernelSku>()(KernelSku()), std::hash<KernelSku>()(base));
}

TEST(Names, OfTheSmallEnumerations) {
  EXPECT_EQ(name(Category::elementwise), "elementwise");
  EXPECT_EQ(name(Epilogue::none), "none");
  EXPECT_EQ(name(Backend::cpu), "cpu");
  EXPECT_EQ(name(Backend::cuda), "cuda");
  EXPECT_EQ(name(Profile::torch), "torch");
  EXPECT_EQ(name(Profile::onnx), "onnx");
  EXPECT_EQ(name(Op::dequantize_backward), "dequantize_backward");
  EXPECT_EQ(name(Layout::per_token), "per_token");
  // The first numbers that name nothing.
  EXPECT_EQ(name(static_cast<ErrorCode>(7)), "unknown");
  EXPECT_EQ(name(static_cast<Profile>(2)), "unknown");
  EXPECT_EQ(name(static_cast<Category>(5)), "unknown");
  EXPECT_EQ(name(static_cast<Op>(17)), "unknown");
  EXPECT_EQ(name(static_cast<Layout>(4)), "unknown");
  EXPECT_EQ(name(static_cast<Epilogue>(8)), "unknown");
  EXPECT_EQ(name(static_cast<Target>(target_count)), "unknown");
}

constexpr std::string_view target_names[] = {"scalar",     "avx2", "avxvnni", "avx512",
                                             "avx512vnni", "amx",  "neon",    "dotprod",
                                             "i8mm",       "sve",  "sm80"};

TEST(Targets, NamesRoundTrip) {
  ASSERT_EQ(std::size(target_names), std::size_t{target_count});
  for (int i = 0; i < target_count; ++i) {
    const auto target = static_cast<Target>(i);
    EXPECT_EQ(name(target), target_names[i]);
    EXPECT_EQ(parse_target(target_names[i]), target);
  }
  for (const std::string_view bad : {"", "AVX2", "avx", "avx5", "avx2 ", "native", "unknown"})
    EXPECT_EQ(parse_target(bad), std::nullopt) << bad;
}

TEST(Targets, FormTheLadder) {
  // Row i holds what is at or below target i, in the order of the enumeration.
  constexpr std::string_view below[] = {
      "10000000000",  // scalar
      "11000000000",  // avx2
      "11100000000",  // avxvnni: a branch
      "11010000000",  // avx512
      "11011000000",  // avx512vnni
      "11011100000",  // amx
      "10000010000",  // neon
      "10000011000",  // dotprod
      "10000011100",  // i8mm
      "10000011110",  // sve
      "00000000001",  // sm80: of CUDA devices
  };
  for (int a = 0; a < target_count; ++a)
    for (int b = 0; b < target_count; ++b)
      EXPECT_EQ(at_or_below(static_cast<Target>(a), static_cast<Target>(b)), below[b][a] == '1')
          << target_names[a] << " <= " << target_names[b];
}

TEST(Targets, OfThisCpu) {
  const std::vector<Target> available = available_targets();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), Target::scalar);
  const std::set<Target> set(available.begin(), available.end());
  EXPECT_EQ(set.size(), available.size());
  for (int i = 0; i < target_count; ++i) {
    const auto target = static_cast<Target>(i);
    EXPECT_EQ(is_available(target), set.contains(target)) << target_names[i];
  }
#if defined(__x86_64__)
  EXPECT_FALSE(is_available(Target::neon));
  EXPECT_EQ(is_available(Target::avx2),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#elif defined(__aarch64__)
  EXPECT_TRUE(is_available(Target::neon));
  EXPECT_FALSE(is_available(Target::avx2));
#endif
}

}  // namespace
}  // namespace octavo
