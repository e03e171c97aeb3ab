// The little of CUDA's language that the samples need: the tests of the stand-in driver depend on
// no header of the library.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

using u8 = unsigned char;
using s8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using s32 = int;
using u64 = unsigned long long;
using s64 = long long;

#define thread_x static_cast<s32>(__nvvm_read_ptx_sreg_tid_x())
#define block_x static_cast<s32>(__nvvm_read_ptx_sreg_ctaid_x())
#define threads_x static_cast<s32>(__nvvm_read_ptx_sreg_ntid_x())
#define blocks_x static_cast<s32>(__nvvm_read_ptx_sreg_nctaid_x())
#define barrier() __syncthreads()
