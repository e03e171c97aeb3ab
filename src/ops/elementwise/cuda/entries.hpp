// The names of the elementwise kernels of one element type, for its .cu file: OCTAVO_ELEMENT is
// f32, f64, f16 or bf16. implementation.cpp makes the same names.
#pragma once

#include "ops/elementwise/cuda/elementwise_kernels.hpp"

#define OCTAVO_JOIN_NAMES(a, b, c, d, e) a##_##b##c##_##d##_##e
#define OCTAVO_NAME(a, b, c, d, e) OCTAVO_JOIN_NAMES(a, b, c, d, e)

#define OCTAVO_ENTRY(op, Op, suffix, In, Out, vectors, is_vectors, lane, is_lane)             \
  extern "C" __global__ void __launch_bounds__(elementwise_threads, elementwise_blocks)       \
      OCTAVO_NAME(op, OCTAVO_ELEMENT, suffix, vectors, lane)(                                 \
          const ElementwiseKernelArgs<numerics::Type<DType::OCTAVO_ELEMENT>::Compute> args) { \
    Elementwise<Op, DType::OCTAVO_ELEMENT, In, Out, is_vectors, is_lane>::run(args);          \
  }
#define OCTAVO_ENTRIES(op, Op, suffix, In, Out)                         \
  OCTAVO_ENTRY(op, Op, suffix, In, Out, vectors, true, uniform, false)  \
  OCTAVO_ENTRY(op, Op, suffix, In, Out, vectors, true, lane, true)      \
  OCTAVO_ENTRY(op, Op, suffix, In, Out, singles, false, uniform, false) \
  OCTAVO_ENTRY(op, Op, suffix, In, Out, singles, false, lane, true)

namespace octavo::cuda {

using Float = FloatLanes<DType::OCTAVO_ELEMENT>;

OCTAVO_ENTRIES(quantize, Quantize, _4, Float, IntegerLanes<4>)
OCTAVO_ENTRIES(quantize, Quantize, _8, Float, IntegerLanes<8>)
OCTAVO_ENTRIES(quantize, Quantize, _16, Float, IntegerLanes<16>)
OCTAVO_ENTRIES(dequantize, Dequantize, _4, IntegerLanes<4>, Float)
OCTAVO_ENTRIES(dequantize, Dequantize, _8, IntegerLanes<8>, Float)
OCTAVO_ENTRIES(dequantize, Dequantize, _16, IntegerLanes<16>, Float)
OCTAVO_ENTRIES(quantize_backward, QuantizeBackward, , Float, Float)
OCTAVO_ENTRIES(dequantize_backward, DequantizeBackward, , Float, Float)
OCTAVO_ENTRIES(fake_quantize, FakeQuantize, , Float, Float)
OCTAVO_ENTRIES(fake_quantize_backward, FakeQuantizeBackward, , Float, Float)

}  // namespace octavo::cuda
