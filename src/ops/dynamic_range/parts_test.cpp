// Where threads part: no two of them write a byte.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "ops/dynamic_range/testing.hpp"
#include "ops/elementwise/testing_data.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {
namespace {

/// A page that holds up the thread which first touches it until a byte has changed, or a second has
/// passed: what comes by luck otherwise, that another thread is ahead, is certain.
class HeldPage {
 public:
  HeldPage(void* page, const unsigned char* watched) {
    state() = {page, watched, *watched};
    struct sigaction action = {};
    action.sa_handler = [](int) {
      const auto* byte = static_cast<const volatile unsigned char*>(state().watched);
      for (int i = 0; i < 1000 && *byte == state().before; ++i) ::usleep(1000);
      release();
    };
    sigaction(SIGSEGV, &action, &before_);
    if (mprotect(page, page_bytes(), PROT_NONE) != 0) std::abort();
  }
  HeldPage(const HeldPage&) = delete;
  HeldPage& operator=(const HeldPage&) = delete;
  ~HeldPage() {
    release();
    sigaction(SIGSEGV, &before_, nullptr);
  }
  static std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

 private:
  struct State {
    void* page;
    const unsigned char* watched;
    unsigned char before;
  };
  static State& state() {
    static State held{};
    return held;
  }
  static void release() {
    if (mprotect(state().page, page_bytes(), PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  struct sigaction before_ = {};
};

// Of slices of one element each, two lie in a byte. Equal parts would begin at an odd element,
// which the part before clears when it ends: so it is held up before its end.
TEST(DynamicRangeParts, PackedSlicesOfOneElement) {
  [[maybe_unused]] const ManyThreads many;
  constexpr std::int64_t part = 70001, elements = 3 * part;
  const Kind kind{Op::quantize, Layout::per_channel, DType::f32, DType::s4, Profile::torch};
  const DynamicCall c = make_dynamic(problem_of(kind, {elements}, 0), RangeMode::asymmetric, 9);
  const Stream stream = Stream::cpu({.threads = 3});
  const auto plan = DynamicRangeQuantizePlan::select(stream, descriptor_of(c));
  ASSERT_TRUE(plan);
  // The last element of the first part is the last of a page.
  const std::size_t page = HeldPage::page_bytes();
  const GuardedMemory memory(c.input.size() + page);
  std::byte* const input = memory.front((page - part * sizeof(float) % page) % page);
  std::memcpy(input, c.input.data(), c.input.size());
  std::vector<unsigned char> output(static_cast<std::size_t>(elements + 1) / 2, 0xCD);
  std::vector<float> scales(static_cast<std::size_t>(elements));
  std::vector<std::int32_t> zero_points(scales.size());
  ASSERT_EQ(on_threads_at_once(stream, 3, [] {}), 3U);
  {
    const HeldPage held(input + part * sizeof(float) - page, &output[part / 2 + 100]);
    ASSERT_TRUE(plan->run(stream, WorkspaceBuffer(plan->workspace_size()),
                          {.input = {input, DType::f32, {elements}},
                           .output = {output.data(), DType::s4, {elements}},
                           .scales = scales,
                           .zero_points = zero_points}));
  }
  const DynamicResult want = expected(c);
  EXPECT_EQ(std::memcmp(output.data(), want.output.data(), output.size()), 0);
  EXPECT_EQ(zero_points, want.zero_points);
}

}  // namespace
}  // namespace octavo::testing
