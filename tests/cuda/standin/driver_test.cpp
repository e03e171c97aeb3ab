// The driver's own functions: laziness, order of streams, events, injected errors, what is left,
// counters.
#include <thread>

#include "tests/cuda/standin/testing.hpp"

namespace standin_test {
namespace {

// y[i] += x[i] * scale, of 4-byte integers; one thread for each.
const std::string add_kernel = std::string(ptx_head) + R"(
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 scale)
{
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.s32 %r1, %r2, %r3, %r1;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.u32 %r4, [scale];
mad.wide.u32 %rd1, %r1, 4, %rd1;
mad.wide.u32 %rd2, %r1, 4, %rd2;
ld.global.u32 %r5, [%rd1];
ld.global.u32 %r6, [%rd2];
mad.lo.s32 %r6, %r5, %r4, %r6;
st.global.u32 [%rd2], %r6;
ret;
}
)";

class DriverTest : public Standin {
 protected:
  int add(void* f, u64 x, u64 y, u32 scale, void* stream, u32 blocks = 1) {
    void* params[] = {&x, &y, &scale};
    return cu("cuLaunchKernel", f, blocks, 1u, 1u, 32u, 1u, 1u, 0u, stream,
              static_cast<void**>(params), static_cast<void**>(nullptr));
  }
  void* stream() {
    void* s = nullptr;
    EXPECT_EQ(cu("cuStreamCreate", &s, 1u), 0);
    return s;
  }
};

TEST_F(DriverTest, NothingIsDoneBeforeSomebodyWaits) {
  void* f = function(add_kernel, "add");
  const u64 x = upload(std::vector<u32>(32, 5));
  const u64 y = upload(std::vector<u32>(32, 1));
  u32* pinned = nullptr;
  MUST("cuMemHostAlloc", reinterpret_cast<void**>(&pinned), std::size_t{128}, 0u);
  void* s = stream();
  ASSERT_EQ(add(f, x, y, 2, s), 0);
  MUST("cuMemcpyDtoHAsync_v2", static_cast<void*>(pinned), y, std::size_t{128}, s);
  EXPECT_EQ(control().pending(), 2u);
  EXPECT_EQ(pinned[0], 0xcbcbcbcbu);
  EXPECT_EQ(cu("cuStreamQuery", s), not_ready);  // (the first of two)
  MUST("cuStreamSynchronize", s);
  EXPECT_EQ(pinned[31], 11u);
  EXPECT_EQ(control().pending(), 0u);
  MUST("cuStreamDestroy_v2", s);
  MUST("cuMemFreeHost", static_cast<void*>(pinned));
  MUST("cuMemFree_v2", x);
  MUST("cuMemFree_v2", y);
}

TEST_F(DriverTest, AnEventThatIsWaitedForOrdersStreams) {
  void* f = function(add_kernel, "add");
  const u64 x = upload(std::vector<u32>(32, 5));
  const u64 y = allocate(128);
  void* a = stream();
  void* b = stream();
  void* event = nullptr;
  MUST("cuEventCreate", &event, 2u);
  int wrong = 0;
  for (const bool waits : {true, false}) {
    for (u64 seed = 0; seed < 20; ++seed) {
      control().set_seed(seed);
      MUST("cuMemsetD32_v2", y, 1u, std::size_t{32});
      MUST("cuCtxSynchronize");
      ASSERT_EQ(add(f, x, y, 1, a), 0);
      MUST("cuEventRecord", event, a);
      if (waits) {
        MUST("cuStreamWaitEvent", b, event, 0u);
      }
      std::vector<u32> got(32);
      MUST("cuMemcpyDtoHAsync_v2", static_cast<void*>(got.data()), y, std::size_t{128}, b);
      if (waits) {
        EXPECT_EQ(got[0], 6u);
      } else {
        wrong += got[0] != 6 ? 1 : 0;
      }
      MUST("cuCtxSynchronize");
      MUST("cuEventQuery", event);
    }
  }
  EXPECT_GT(wrong, 0) << "no seed shows that a wait is missing";
  MUST("cuEventDestroy_v2", event);
  for (void* s : {a, b}) MUST("cuStreamDestroy_v2", s);
  for (const u64 p : {x, y}) MUST("cuMemFree_v2", p);
}

TEST_F(DriverTest, ErrorsComeWhenTheyAreAskedFor) {
  u64 address = 0;
  control().inject("cuMemAlloc", 2, out_of_memory);
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, std::size_t{64}), 0);
  u64 second = 0;
  EXPECT_EQ(cu("cuMemAlloc_v2", &second, std::size_t{64}), out_of_memory);
  EXPECT_EQ(cu("cuMemAlloc_v2", &second, std::size_t{64}), 0);
  EXPECT_EQ(control().calls("cuMemAlloc"), 3u);
  // A lost context stays lost.
  control().inject("cuCtxSynchronize", 1, launch_failed);
  EXPECT_EQ(cu("cuCtxSynchronize"), launch_failed);
  EXPECT_EQ(cu("cuCtxSynchronize"), launch_failed);
  EXPECT_EQ(cu("cuMemAlloc_v2", &second, std::size_t{64}), launch_failed);
  control().reset();
  EXPECT_EQ(control().live().allocations, 2u);
  for (const u64 p : {address, second}) MUST("cuMemFree_v2", p);
  EXPECT_EQ(control().live().allocations, 0u);
  // Out of memory for real.
  control().set_memory(1000);
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, std::size_t{1001}), out_of_memory);
  control().set_memory(u64{24} << 30);
}

TEST_F(DriverTest, DevicesAndTheirCapability) {
  EXPECT_FALSE(control().set_devices(2, 90));  // (a context is retained)
  MUST("cuCtxPopCurrent_v2", static_cast<void**>(nullptr));
  MUST("cuDevicePrimaryCtxRelease_v2", 0);
  ASSERT_TRUE(control().set_devices(0, 80));
  EXPECT_EQ(cu("cuInit", 0u), 100);
  ASSERT_TRUE(control().set_devices(2, 75));
  MUST("cuInit", 0u);
  int value = 0;
  MUST("cuDeviceGetCount", &value);
  EXPECT_EQ(value, 2);
  MUST("cuDeviceGetAttribute", &value, 75, 1);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(cu("cuDeviceGetAttribute", &value, 75, 2), 101);
  void* contexts[2] = {};
  for (int d : {0, 1}) MUST("cuDevicePrimaryCtxRetain", &contexts[d], d);
  MUST("cuCtxPushCurrent_v2", contexts[1]);
  void* module = nullptr;
  EXPECT_EQ(cu("cuModuleLoadData", &module, static_cast<const void*>(add_kernel.c_str())), 209);
  const u64 other = allocate(128);
  MUST("cuCtxSetCurrent", contexts[0]);
  const int which[] = {2, 9};
  unsigned type = 0;
  int device = 0;
  void* values[] = {&type, &device};
  MUST("cuPointerGetAttributes", 2u, which, static_cast<void**>(values), other);
  EXPECT_EQ(type, 2u);
  EXPECT_EQ(device, 1);
  MUST("cuPointerGetAttributes", 2u, which, static_cast<void**>(values),
       reinterpret_cast<u64>(&type));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(cu("cuPointerGetAttribute", static_cast<void*>(&type), 2, reinterpret_cast<u64>(&type)),
            invalid_value);
  // Memory of another device.
  for (int d : {1, 0}) MUST("cuDevicePrimaryCtxRelease_v2", d);
  MUST("cuCtxPopCurrent_v2", static_cast<void**>(nullptr));
  ASSERT_TRUE(control().set_devices(2, 80));
  MUST("cuInit", 0u);
  for (int d : {0, 1}) MUST("cuDevicePrimaryCtxRetain", &contexts[d], d);
  MUST("cuCtxPushCurrent_v2", contexts[1]);
  const u64 there = upload(std::vector<u32>(32, 1));
  MUST("cuCtxSetCurrent", contexts[0]);
  const u64 here = upload(std::vector<u32>(32, 1));
  void* f = function(add_kernel, "add");
  ASSERT_EQ(add(f, there, here, 1, nullptr), 0);
  EXPECT_EQ(cu("cuCtxSynchronize"), illegal_address);
  EXPECT_THAT(control().message(), ::testing::HasSubstr("of the device 1"));
  control().reset();
  MUST("cuDevicePrimaryCtxRelease_v2", 1);
}

TEST_F(DriverTest, Counters) {
  void* f = function(add_kernel, "add");
  const u64 x = upload(std::vector<u32>(256, 5));
  const u64 y = upload(std::vector<u32>(256, 1));
  control().set_counting(true);
  ASSERT_EQ(add(f, x, y, 2, nullptr, 4), 0);
  ASSERT_EQ(add(f, x + 16, y, 2, nullptr, 4), 0);  // not on a boundary of 32 bytes
  MUST("cuCtxSynchronize");
  control().set_counting(false);
  standin::KernelCounters c{};
  ASSERT_EQ(control().counter_count(), 1u);
  ASSERT_TRUE(control().counters(0, &c));
  EXPECT_STREQ(c.name, "add");
  EXPECT_EQ(c.launches, 2u);
  EXPECT_EQ(c.blocks, 8u);
  EXPECT_EQ(c.warp_instructions, 8u * 14);
  EXPECT_EQ(c.thread_instructions, 8u * 14 * 32);
  EXPECT_EQ(c.global_requests, 8u * 3);
  EXPECT_EQ(c.global_bytes_read, 8u * 256);
  EXPECT_EQ(c.global_bytes_written, 8u * 128);
  EXPECT_EQ(c.ideal_sectors, 8u * 12);
  EXPECT_EQ(c.sectors, 8u * 12 + 4);
  EXPECT_EQ(c.touched_bytes_read, 512u + 512 + 512 + 544);
  EXPECT_EQ(c.touched_bytes_written, 1024u);
  EXPECT_EQ(c.double_instructions, 0u);
  for (const u64 p : {x, y}) MUST("cuMemFree_v2", p);
}

TEST_F(DriverTest, VariablesOfModules) {
  void* module =
      load(std::string(ptx_head) +
           ".global .align 4 .b32 table[4] = {1, 2, 3, 4};\n.const .align 8 .b64 wide = 77;\n"
           ".visible .entry k()\n{\n.reg .b64 %a<4>; .reg .b32 %r<4>;\nld.const.u64 %a1, "
           "[wide];\ncvt.u32.u64 %r1, %a1;\n"
           "ld.global.u32 %r2, [table+8];\nadd.s32 %r1, %r1, %r2;\nst.global.u32 [table], "
           "%r1;\nret;\n}\n");
  u64 address = 0;
  std::size_t bytes = 0;
  MUST("cuModuleGetGlobal_v2", &address, &bytes, module, "table");
  EXPECT_EQ(bytes, 16u);
  EXPECT_EQ(run(function(module, "k"), 1, 1, int{}), 0) << control().message();
  EXPECT_EQ(download<u32>(address, 4), (std::vector<u32>{80, 2, 3, 4}));
  EXPECT_EQ(cu("cuModuleGetGlobal_v2", &address, &bytes, module, "chair"), 500);
}

TEST_F(DriverTest, FunctionsOfTheHostAndOtherThreads) {
  void* s = stream();
  int called = 0;
  void (*f)(void*) = [](void* p) { ++*static_cast<int*>(p); };
  MUST("cuLaunchHostFunc", s, f, static_cast<void*>(&called));
  EXPECT_EQ(called, 0);
  MUST("cuStreamSynchronize", s);
  EXPECT_EQ(called, 1);
  MUST("cuStreamDestroy_v2", s);
  int result = 0;
  std::thread([&] { result = cu("cuCtxSynchronize"); }).join();
  EXPECT_EQ(result, 201);  // (a thread has no context before it sets one)
  void* pointer = nullptr;
  EXPECT_EQ(cu("cuGetProcAddress", "cuMemAlloc", &pointer, 12000, u64{0}), 0);
  EXPECT_EQ(pointer, dlsym(library(), "cuMemAlloc_v2"));
}

}  // namespace
}  // namespace standin_test
