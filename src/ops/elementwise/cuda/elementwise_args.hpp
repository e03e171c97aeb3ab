// The argument of the elementwise kernels on a CUDA device.
#pragma once

#include <cstdint>

#include "cuda/refusal.hpp"
#include "octavo/dtype.hpp"
#include "octavo/profile.hpp"
#include "octavo/tensor.hpp"

namespace octavo::cuda {

inline constexpr unsigned elementwise_threads = 256;
/// Of a multiprocessor at least. (Left to itself, the driver's compiler spills registers for the
/// sake of more.)
inline constexpr unsigned elementwise_blocks = 3;
/// How many units a thread does at most, one after another.
inline constexpr unsigned elementwise_units = 4;

/// Rows of `length` elements, cut into units: 16 bytes of floats where a kernel is one of vectors;
/// one element where not, or one byte of a packed type. Threads stand in a block as [rows][units],
/// and blocks follow each other as [blocks of rows][chunks of a row].
template <class C>
struct ElementwiseKernelArgs {
  const void* input = nullptr;
  const void* grad = nullptr;
  void* output = nullptr;
  const void* scales = nullptr;               // in the compute type; null: the one below
  const std::int32_t* zero_points = nullptr;  // null: the one below
  const Refusal* refusal = nullptr;           // null: the values were checked by the host
  C scale = 1;
  std::int32_t zero_point = 0;
  IntRange range;
  Profile profile = Profile::torch;
  std::int32_t sign = 0;  // of integers that are read: the value of the sign bit, or 0
  std::int64_t rows = 1;
  std::int64_t length = 0;
  std::uint32_t chunks = 1;         // of a row
  std::uint32_t units = 1;          // of a thread
  bool aligned_parameters = false;  // those of a unit of vectors lie where vectors may
  std::int64_t input_step = 1;      // between elements of a row, in elements (vectors: 1)
  std::int64_t grad_step = 1;
  // Of groups of odd size in a packed tensor, which may begin within a byte: the parameters of a
  // row's element are those of its group. 0: one for all of the row, or one for each.
  std::int64_t group_size = 0;
  std::int64_t groups = 0;  // in a row

  // Where a row starts, outermost dimension first: strides of input, gradient, output, parameters.
  struct Dim {
    std::int64_t size = 1;
    std::int64_t stride[4] = {};
  };
  int outer = 0;
  Dim dims[max_rank + 1];
};

}  // namespace octavo::cuda
