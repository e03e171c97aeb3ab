// A kernel that is right, and what the driver says of each of its mutations and of programs that
// misuse it. The kernel: a block of 128 turns a tile round through shared memory, sums neighbours
// by shuffles, and adds what cp.async brought.
#include <functional>

#include "tests/cuda/standin/testing.hpp"

namespace standin_test {
namespace {

const char* const right = R"(
.visible .entry tile(.param .align 8 .b8 tile_param_0[32])
{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<20>;
.shared .align 16 .b8 turned[512];
.shared .align 16 .b8 brought[512];
.local .align 16 .b8 depot[16];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.s32 %r4, %r2, %r3, %r1;
ld.param.u64 %rd1, [tile_param_0];
ld.param.u64 %rd2, [tile_param_0+8];
ld.param.u64 %rd3, [tile_param_0+16];
ld.param.u32 %r5, [tile_param_0+24];
mul.wide.u32 %rd4, %r4, 4;
add.s64 %rd5, %rd1, %rd4;
add.s64 %rd6, %rd2, %rd4;
and.b32 %r30, %r1, 31;
// copies of the first warp, 16 bytes a lane
setp.ge.u32 %p1, %r1, 32;
mov.u64 %rd8, brought;
cvt.u32.u64 %r6, %rd8;
shl.b32 %r7, %r1, 4;
add.s32 %r7, %r6, %r7;
mul.wide.u32 %rd9, %r2, 512;
mul.wide.u32 %rd10, %r1, 16;
add.s64 %rd9, %rd9, %rd10;
add.s64 %rd9, %rd3, %rd9;
@%p1 bra COPIED;
cp.async.cg.shared.global [%r7], [%rd9], 16;
COPIED:
cp.async.commit_group;
// the tile
ld.global.u32 %r8, [%rd5];
mov.u64 %rd11, turned;
mul.wide.u32 %rd12, %r1, 4;
add.s64 %rd13, %rd11, %rd12;
st.shared.u32 [%rd13], %r8;
cp.async.wait_group 0;
bar.sync 0;
mov.u32 %r9, 127;
sub.s32 %r9, %r9, %r1;
mul.wide.u32 %rd14, %r9, 4;
add.s64 %rd14, %rd11, %rd14;
ld.shared.u32 %r10, [%rd14];
shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;
add.s32 %r12, %r10, %r11;
mul.wide.u32 %rd15, %r1, 4;
add.s64 %rd15, %rd8, %rd15;
ld.shared.u32 %r13, [%rd15];
add.s32 %r12, %r12, %r13;
mov.u64 %rd16, depot;
st.local.u32 [%rd16+4], %r12;
ld.local.u32 %r12, [%rd16+4];
// one more turn of the tile
bar.sync 0;
st.shared.u32 [%rd13], %r12;
bar.sync 0;
ld.shared.u32 %r14, [%rd14];
setp.lt.u32 %p2, %r4, %r5;
@%p2 st.global.u32 [%rd6], %r14;
ret;
}
)";

struct Mutation {
  const char* name;
  const char* from;
  const char* to;
  int result;
  const char* says;
};

const Mutation mutations[] = {
    {"NoBarrier", "bar.sync 0;\nmov.u32 %r9", "mov.u32 %r9", launch_failed,
     "this was written by|read before it is written"},
    {"NoBarrierBeforeWritingAgain", "bar.sync 0;\nst.shared", "st.shared", launch_failed,
     "a race: this was (read|written) by"},
    {"NoBarrierAfterWritingAgain", "bar.sync 0;\nld.shared.u32 %r14", "ld.shared.u32 %r14",
     launch_failed, "a race"},
    {"NoWait", "cp.async.wait_group 0;\n", "", launch_failed,
     "before the cp.async into it was waited for"},
    {"WaitForTooFew", "cp.async.wait_group 0;", "cp.async.wait_group 1;", launch_failed,
     "before the cp.async into it was waited for"},
    {"NoCommit", "cp.async.commit_group;\n", "", launch_failed,
     "before the cp.async into it was waited for"},
    {"WaitBehindTheBarrier", "cp.async.wait_group 0;\nbar.sync 0;",
     "bar.sync 0;\ncp.async.wait_group 0;", launch_failed,
     "cp.async into it was waited for|a race"},
    {"CommitInDivergentCode", "@%p1 bra COPIED;",
     "setp.ge.u32 %p1, %r1, 16;\n@%p1 bra COPIED;\ncp.async.commit_group;", launch_failed,
     "groups of cp.async in divergent code"},
    {"CopyFromMisaligned", "[%rd9], 16;", "[%rd9+4], 16;", misaligned_address, "misaligned"},
    {"CopyBeyondTheEnd", "[%rd9], 16;", "[%rd9+16], 16;", illegal_address,
     "0 bytes behind one of 1024 bytes"},
    {"CopyIntoWhatIsRead", "ld.shared.u32 %r14",
     "cp.async.ca.shared.global [%rd14], [%rd5], 4;\nld.shared.u32 %r14", launch_failed,
     "the cp.async into it|a race"},
    {"NothingIsStored", "st.shared.u32 [%rd13], %r8;\n", "", launch_failed,
     "read before it is written"},
    {"LoadOneBeyond", "ld.global.u32 %r8, [%rd5];", "ld.global.u32 %r8, [%rd5+4];", illegal_address,
     "0 bytes behind one of 1024 bytes"},
    {"LoadOneBefore", "ld.global.u32 %r8, [%rd5];", "ld.global.u32 %r8, [%rd5+-4];",
     illegal_address, "outside of every allocation|no memory of the device"},
    {"WideLoadBeyond", "ld.global.u32 %r8, [%rd5];", "ld.global.v2.u32 {%r8, %r15}, [%rd5];",
     misaligned_address, "misaligned"},
    {"StoreWithoutItsPredicate", "@%p2 st.global", "st.global", illegal_address,
     "outside of every allocation"},
    {"StoreMisaligned", "st.global.u32 [%rd6]", "st.global.u32 [%rd6+2]", misaligned_address,
     "misaligned"},
    {"NullPointer", "add.s64 %rd5, %rd1, %rd4;", "mov.u64 %rd5, 16;", illegal_address,
     "a null pointer"},
    {"SharedBeyond", "add.s64 %rd15, %rd8, %rd15;",
     "add.s64 %rd15, %rd8, %rd15;\nadd.s64 %rd15, %rd15, 4;", illegal_address,
     "between two arrays"},
    {"SharedMisaligned", "ld.shared.u32 %r10, [%rd14];", "ld.shared.u32 %r10, [%rd14+1];",
     misaligned_address, "misaligned"},
    {"SharedByAnIndexBelowZero", "mov.u32 %r9, 127;", "mov.u32 %r9, 126;", illegal_address,
     "of shared memory"},
    {"RegisterNeverWritten", "mov.u32 %r9, 127;\n", "", launch_failed,
     "a register is read before it is written"},
    {"RegisterWrittenOnOnePath", "mov.u32 %r9, 127;", "@%p1 mov.u32 %r9, 127;", launch_failed,
     "a register is read before it is written"},
    {"LocalNeverWritten", "ld.local.u32 %r12, [%rd16+4];", "ld.local.u32 %r12, [%rd16+8];",
     launch_failed, "local memory at offset 8"},
    {"LocalBeyond", "st.local.u32 [%rd16+4]", "st.local.u32 [%rd16+16]", illegal_address,
     "of local memory"},
    {"BarrierInDivergentCode", "bar.sync 0;\nmov.u32 %r9",
     "setp.eq.u32 %p3, %r30, 0;\n@%p3 bra OVER;\nbar.sync 0;\nOVER:\nmov.u32 %r9", launch_failed,
     "a barrier in divergent code"},
    {"BarrierThatAWarpLeavesOut", "bar.sync 0;\nmov.u32 %r9",
     "setp.ge.u32 %p3, %r1, 96;\n@%p3 bra OVER;\nbar.sync 0;\nOVER:\nmov.u32 %r9", launch_failed,
     "a"},
    {"BarrierAfterAWarpHasLeft", "bar.sync 0;\nmov.u32 %r9",
     "setp.ge.u32 %p3, %r1, 96;\n@%p3 ret;\nbar.sync 0;\nmov.u32 %r9", launch_failed,
     "the warps 3 have ended"},
    {"BarrierOfTooManyThreads", "bar.sync 0;\nmov.u32 %r9", "bar.sync 0, 160;\nmov.u32 %r9",
     launch_failed, "a barrier of 160 threads"},
    {"BarrierOfHalfTheBlock", "bar.sync 0;\nmov.u32 %r9",
     "shr.u32 %r31, %r1, 6;\nadd.s32 %r31, %r31, 1;\nbar.sync %r31, 64;\nmov.u32 %r9",
     launch_failed, "a race|read before it is written"},
    {"ShuffleOfLanesThatAreElsewhere", "shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;",
     "mov.u32 %r11, 0;\nsetp.eq.u32 %p3, %r30, 0;\n@%p3 bra OVER;\nshfl.sync.bfly.b32 %r11, %r10, "
     "1, 31, -1;\nOVER:",
     launch_failed,
     "shfl.sync with the mask 0xffffffff, executed by the lanes 0xfffffffe|a barrier in divergent "
     "code"},
    {"ShuffleWithTooSmallAMask", "1, 31, -1;", "1, 31, 65535;", launch_failed,
     "shfl.sync with the mask 0x0000ffff"},
    {"EndlessLoop", "mov.u32 %r9, 127;", "AGAIN:\nmov.u32 %r9, 127;\nbra AGAIN;", launch_failed,
     "a loop does not end"},
    {"Trap", "mov.u32 %r9, 127;", "mov.u32 %r9, 127;\nsetp.eq.u32 %p3, %r4, 77;\n@%p3 trap;", 715,
     "block .0, 0, 0., thread .77, 0, 0.: trap"},
    {"AtomicOnWhatIsNotWritten", "mov.u32 %r9, 127;",
     "mov.u32 %r9, 127;\ncvta.shared.u64 %rd17, %rd8;\nred.add.u32 [%rd17+512], 1;",
     illegal_address, "of shared memory"},
    {"WriteOfAParameter", "mov.u32 %r9, 127;",
     "mov.u32 %r9, 127;\nmov.b64 %rd17, tile_param_0;\nst.param.u32 [%rd17], %r9;", illegal_address,
     "a write into parameter memory"},
    {"ParameterBeyond", "ld.param.u32 %r5, [tile_param_0+24];",
     "ld.param.u64 %rd18, [tile_param_0+32];\ncvt.u32.u64 %r5, %rd18;", illegal_address,
     "of parameter memory"},
};

struct Args {
  u64 x, y, z;
  u32 n;
  u32 padding = 0;
};

class Misuse : public Standin {
 protected:
  static std::string mutated(const Mutation* m) {
    std::string text = std::string(ptx_head) + right;
    if (m == nullptr) return text;
    const std::size_t at = text.find(m->from);
    if (at == std::string::npos)
      throw std::runtime_error(std::string("nothing to mutate for ") + m->name);
    return text.replace(at, std::strlen(m->from), m->to);
  }

  // Two blocks; the last 3 elements are not to be written.
  int run_tile(const std::string& text, std::vector<u32>* y = nullptr) {
    std::vector<u32> x(256);
    std::vector<u32> z(256);
    for (u32 i = 0; i < 256; ++i) x[i] = i * i, z[i] = 1000 * i;
    args_ = {upload(x), allocate(u64{253} * 4), upload(z), 253};
    void* f = function(text, "tile");
    if (f == nullptr) return -1;
    const int result = run(f, 2, 128, args_);
    if (result == 0 && y != nullptr) *y = download<u32>(args_.y, 253);
    return result;
  }
  void free_all() {
    control().reset();
    for (const u64 a : {args_.x, args_.y, args_.z}) EXPECT_EQ(cu("cuMemFree_v2", a), 0);
  }
  Args args_{};
};

TEST_F(Misuse, TheKernelItselfIsRight) {
  for (const u64 seed : {0, 1, 2, 3, 4, 5}) {
    control().set_seed(seed);
    std::vector<u32> y;
    ASSERT_EQ(run_tile(mutated(nullptr), &y), 0) << control().message();
    for (u32 i = 0; i < 253; ++i) {
      const u32 base = i / 128 * 128;
      const u32 t = 127 - i % 128;  // the thread whose sum is stored here
      const auto turned = [&](u32 k) { return (base + 127 - k) * (base + 127 - k); };
      EXPECT_EQ(y[i], turned(t) + turned(t ^ 1) + 1000 * (base + t));
    }
    free_all();
  }
}

class Mutations : public Misuse, public ::testing::WithParamInterface<Mutation> {};

TEST_P(Mutations, AreCaught) {
  const Mutation& m = GetParam();
  const bool is_slow = std::string(m.name) == "EndlessLoop";
  for (const u64 seed : is_slow ? std::vector<u64>{1} : std::vector<u64>{0, 1, 2, 3}) {
    control().set_seed(seed);
    EXPECT_EQ(run_tile(mutated(&m)), m.result);
    EXPECT_THAT(control().message(), ::testing::ContainsRegex(m.says));
    EXPECT_THAT(control().message(), ::testing::HasSubstr("kernel tile, line "));
    // The error stays with the context.
    u64 address = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &address, std::size_t{4}), m.result);
    EXPECT_EQ(cu("cuCtxSynchronize"), m.result);
    free_all();
  }
}

INSTANTIATE_TEST_SUITE_P(, Mutations, ::testing::ValuesIn(mutations),
                         [](const auto& m) { return m.param.name; });

TEST_F(Misuse, MemoryFreedBeforeTheKernelRan) {
  void* f = function(mutated(nullptr), "tile");
  args_ = {upload(std::vector<u32>(256)), allocate(1024), upload(std::vector<u32>(256)), 253};
  ASSERT_EQ(launch(f, 2, 128, args_), 0);
  MUST("cuMemFree_v2", args_.y);
  EXPECT_EQ(cu("cuCtxSynchronize"), illegal_address);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("which has been freed"));
  control().reset();
  MUST("cuMemFree_v2", args_.x);
  MUST("cuMemFree_v2", args_.z);
}

TEST_F(Misuse, PointersOfTheHost) {
  void* f = function(mutated(nullptr), "tile");
  std::vector<u32> host(256);
  args_ = {reinterpret_cast<u64>(host.data()), allocate(1024), upload(std::vector<u32>(256)), 253};
  EXPECT_EQ(run(f, 2, 128, args_), illegal_address);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("which is no memory of the device"));
  control().reset();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device
  EXPECT_EQ(cu("cuMemcpyHtoD_v2", args_.y, reinterpret_cast<const void*>(args_.z), std::size_t{4}),
            invalid_value);
  EXPECT_EQ(cu("cuMemcpyHtoD_v2", reinterpret_cast<u64>(host.data()),
               static_cast<const void*>(host.data()), std::size_t{4}),
            invalid_value);
  MUST("cuMemFree_v2", args_.y);
  MUST("cuMemFree_v2", args_.z);
}

TEST_F(Misuse, TheHostTouchesDeviceMemory) {
  const u64 address = allocate(64);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what a host must not do
  auto* const at = reinterpret_cast<volatile int*>(address);
  EXPECT_DEATH(*at = 1, "");
  EXPECT_DEATH((void)*at, "");
  MUST("cuMemFree_v2", address);
}

TEST_F(Misuse, CopiesAndFrees) {
  const u64 address = allocate(100);
  std::vector<u8> host(200);
  EXPECT_EQ(cu("cuMemcpyHtoD_v2", address, static_cast<const void*>(host.data()), std::size_t{101}),
            invalid_value);
  EXPECT_THAT(control().message(),
              ::testing::HasSubstr("beyond the end of an allocation of 100 bytes"));
  EXPECT_EQ(cu("cuMemcpyDtoH_v2", static_cast<void*>(host.data()), address + 1, std::size_t{100}),
            invalid_value);
  EXPECT_EQ(cu("cuMemsetD8_v2", address + 100, static_cast<unsigned char>(0), std::size_t{1}),
            invalid_value);
  EXPECT_EQ(cu("cuMemFree_v2", address + 4), invalid_value);
  MUST("cuMemFree_v2", address);
  EXPECT_EQ(cu("cuMemFree_v2", address), invalid_value);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("which has been freed"));
}

TEST_F(Misuse, Launches) {
  void* module = load(mutated(nullptr));
  void* f = function(module, "tile");
  args_ = {upload(std::vector<u32>(256)), allocate(1024), upload(std::vector<u32>(256)), 256};
  void* params[] = {&args_};
  const auto launch_as = [&](u32 blocks, u32 threads, u32 shared, void** p) {
    return cu("cuLaunchKernel", f, blocks, 1u, 1u, threads, 1u, 1u, shared,
              static_cast<void*>(nullptr), p, static_cast<void**>(nullptr));
  };
  EXPECT_EQ(launch_as(0, 128, 0, params), invalid_value);
  EXPECT_EQ(launch_as(2, 0, 0, params), invalid_value);
  EXPECT_EQ(launch_as(2, 1025, 0, params), invalid_value);
  EXPECT_EQ(launch_as(2, 128, 49152, params), invalid_value);
  EXPECT_EQ(launch_as(2, 128, 0, nullptr), invalid_value);
  EXPECT_EQ(cu("cuLaunchKernel", f, 1u, 65536u, 1u, 128u, 1u, 1u, 0u, static_cast<void*>(nullptr),
               static_cast<void**>(params), static_cast<void**>(nullptr)),
            invalid_value);
  EXPECT_EQ(cu("cuFuncSetAttribute", f, 8, 200000), invalid_value);
  MUST("cuFuncSetAttribute", f, 8, 100000);
  EXPECT_EQ(launch_as(2, 128, 90000, params), 0);
  MUST("cuCtxSynchronize");
  // A block of 64 has no second half to write the tile.
  EXPECT_EQ(launch_as(2, 64, 0, params), 0);
  EXPECT_EQ(cu("cuCtxSynchronize"), launch_failed);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("read before it is written"));
  control().reset();
  MUST("cuModuleUnload", module);
  EXPECT_EQ(launch_as(2, 128, 0, params), 400);
  free_all();
}

TEST_F(Misuse, TensorInstructionsInDivergentCode) {
  const std::string text = std::string(ptx_head) + R"(
.visible .entry k()
{
.reg .pred %p;
.reg .b32 %r<9>;
.shared .align 16 .b8 tile[512];
mov.u32 %r0, %tid.x;
mov.u32 %r1, 0;
setp.lt.u32 %p, %r0, 16;
@%p bra OTHER;
WHAT
bra END;
OTHER:
bar.warp.sync -1;
END:
ret;
}
)";
  const std::pair<const char*, const char*> whats[] = {
      {"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r2, %r3, %r4, %r5}, {%r1, %r1}, {%r1}, "
       "{%r1, %r1, %r1, %r1};",
       "mma.sync by the lanes 0xffff0000 only"},
      {"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
       "ldmatrix by the lanes 0xffff0000 only"},
      {"vote.sync.ballot.b32 %r2, %p, -1;", "executed by the lanes"},
      {"redux.sync.add.s32 %r2, %r1, -1;", "executed by the lanes"},
      {"match.any.sync.b32 %r2, %r1, 65535;", "match.any.sync with the mask 0x0000ffff"},
      {"bar.warp.sync -1;", "executed by the lanes"},
      {"cp.async.wait_all;", "groups of cp.async in divergent code"}};
  for (const auto& [what, says] : whats) {
    std::string mutant = text;
    mutant.replace(mutant.find("WHAT"), 4, what);
    void* f = function(mutant, "k");
    ASSERT_NE(f, nullptr);
    EXPECT_EQ(run(f, 1, 32, int{}), launch_failed) << what;
    EXPECT_THAT(control().message(), ::testing::HasSubstr(says));
    control().reset();
  }
  // Rows of a matrix are of 16 bytes.
  std::string mutant = text;
  mutant.replace(mutant.find("@%p bra OTHER;\nWHAT"), 19,
                 "st.shared.v4.u32 [tile], {%r1, %r1, %r1, %r1};\nmov.u32 %r6, "
                 "8;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r6];");
  EXPECT_EQ(run(function(mutant, "k"), 1, 32, int{}), misaligned_address);
}

}  // namespace
}  // namespace standin_test
