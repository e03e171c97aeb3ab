// More than 2^31 elements. All but the ends of a tensor is one small piece of memory, mapped again
// and again, so that little of it is real; the ends are memory of their own, and are compared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ops/elementwise/testing_placed.hpp"

namespace octavo::testing {
namespace {

constexpr std::int64_t cols = 4096;
constexpr std::int64_t rows = (std::int64_t{1} << 31) / cols + 5;  // beyond 2^31 by 5 rows
constexpr std::int64_t ends = 4;                                   // rows compared on either side
constexpr std::int64_t needed_memory = std::int64_t{1} << 30;

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// A range of addresses as above. `data` is null if the system refuses.
class Sparse {
 public:
  explicit Sparse(std::int64_t bytes)
      : size_(std::max(2 * end, round_up(static_cast<std::size_t>(bytes)))) {
    const int file = memfd_create("octavo", 0);
    if (file < 0) return;
    const bool sized = ftruncate(file, static_cast<off_t>(piece)) == 0;
    void* range =
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      data = static_cast<std::byte*>(range);
      bool fine = sized;
      for (std::size_t at = 0; at < size_; at += piece)
        fine &= map(at, std::min(piece, size_ - at), MAP_SHARED, file);
      fine &= map(0, end, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      fine &= map(size_ - end, end, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      if (!fine) {
        munmap(data, size_);
        data = nullptr;
      }
    }
    close(file);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() {
    if (data != nullptr) munmap(data, size_);
  }

  std::byte* data = nullptr;

 private:
  static constexpr std::size_t piece = std::size_t{32} << 20;
  static constexpr std::size_t end = std::size_t{1} << 20;

  static std::size_t round_up(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  bool map(std::size_t at, std::size_t bytes, int flags, int file) const {
    return mmap(data + at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, file,
                0) != MAP_FAILED;
  }

  std::size_t size_;
};

class Large : public ::testing::TestWithParam<Kind> {};

TEST_P(Large, EndsAreRight) {
  if (slow_machine()) GTEST_SKIP() << "too slow here";
  if (available_memory() < needed_memory)
    GTEST_SKIP() << "needs 1 GiB of memory, has " << (available_memory() >> 20) << " MiB";
  const Kind kind = GetParam();
  const Shape shape{rows, cols};
  const Problem p = kind.layout == Layout::per_group ? problem_of(kind, shape, 0, 512)
                                                     : problem_on(kind, shape, 1);
  const auto row_bytes = [](DType t) { return bytes_for(t, cols); };
  const Sparse input(has_input(p.op) ? rows * row_bytes(input_type(p)) : 0);
  const Sparse grad(has_grad(p.op) ? rows * row_bytes(p.element) : 0);
  const Sparse output(rows * row_bytes(output_type(p)));
  if (input.data == nullptr || grad.data == nullptr || output.data == nullptr)
    GTEST_SKIP() << "the system refuses to map " << (rows * row_bytes(p.element) >> 20) << " MiB";

  // Small problems of a few rows, whose operands become the first and the last rows.
  const std::int64_t slices = slice_count(p);
  std::vector<float> scales(static_cast<std::size_t>(slices), 0.25F);
  std::vector<std::int32_t> zero_points(static_cast<std::size_t>(slices), 1);
  std::vector<std::pair<std::int64_t, Operands>> parts;
  for (const std::int64_t first : {std::int64_t{0}, rows - ends}) {
    const Shape few{ends, cols};
    const Problem small =
        kind.layout == Layout::per_group ? problem_of(kind, few, 0, 512) : problem_on(kind, few, 1);
    const Operands o = make_operands(small, ordinary, static_cast<std::uint64_t>(first) + 1);
    const std::int64_t own = slice_count(small);
    const std::int64_t at = slices == own || first == 0 ? 0 : slices - own;
    for (std::int64_t i = 0; i < own; ++i) {
      const auto from = static_cast<std::size_t>(i);
      const auto to = static_cast<std::size_t>(at + i);
      scales[to] = static_cast<float>(o.scales[from]);
      zero_points[to] = o.zero_points[from];
    }
    const auto put = [&](const Sparse& to, const Bytes& bytes, DType type) {
      if (!bytes.empty())
        std::memcpy(to.data + first * row_bytes(type), bytes.data(), bytes.size());
    };
    put(input, o.input, input_type(p));
    put(grad, o.grad, p.element);
    parts.emplace_back(first, o);
  }

  Call call;
  call.input = {input.data, input_type(p), shape};
  call.grad = {grad.data, p.element, shape};
  call.scales = TensorRef(scales);
  call.zero_points = TensorRef(zero_points);
  call.scale = static_cast<double>(scales[0]);
  call.zero_point = zero_points[0];
  call.output = {output.data, output_type(p), shape};
  // One thread has runs of more than 2^31 elements; three begin in the middle.
  const bool whole = kind.layout == Layout::per_tensor || kind.layout == Layout::per_channel;
  const Status status = run_call(Stream::cpu({.threads = whole ? 1 : 3}), p, call);
  ASSERT_TRUE(status) << status.error().message();
  for (const auto& [first, o] : parts) {
    const Bytes want = expected(o);
    EXPECT_EQ(
        std::memcmp(output.data + first * row_bytes(output_type(p)), want.data(), want.size()), 0)
        << "rows from " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Large,
    ::testing::Values(Kind{Op::quantize, Layout::per_tensor, DType::bf16, DType::s4},
                      Kind{Op::quantize, Layout::per_group, DType::f32, DType::u8},
                      Kind{Op::dequantize, Layout::per_channel, DType::f16, DType::u8},
                      Kind{Op::fake_quantize_backward, Layout::per_token, DType::bf16, DType::s8}),
    [](const auto& info) {
      return std::string(name(info.param.op)) + "_" + std::string(name(info.param.layout));
    });

}  // namespace
}  // namespace octavo::testing
