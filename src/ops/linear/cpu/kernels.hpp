// The vector work of a linear plan: all that is not a dot product.
#pragma once

#include "core/choose.hpp"
#include "ops/linear/cpu/epilogue.hpp"
#include "ops/linear/cpu/float_kernels.hpp"
#include "ops/linear/cpu/row_kernels.hpp"
#include "ops/linear/problem.hpp"
#include "ops/runs/cpu/call.hpp"
#include "ops/runs/cpu/convert.hpp"

namespace octavo::detail {

/// The kernels of one target for a problem's types. Those that it does not need are null.
struct LinearKernels {
  ScanFunction scan = nullptr;
  RowKernels rows;
  EpilogueFunction<float> sums = nullptr;  // to s32
  FloatFunction floats = nullptr;          // of layers of floats
  // Of floats of one type to another: there are some of each kind.
  ConvertFunction (*conversion)(DType from, DType to) = nullptr;
  // Of the problem's compute type; to its output, or where none is `direct`, to values of C.
  EpilogueFunction<float> epilogue_f32 = nullptr;
  EpilogueFunction<double> epilogue_f64 = nullptr;
  bool direct = false;
  EpilogueFunction<float> terms_f32 = nullptr;  // of groups, likewise
  EpilogueFunction<double> terms_f64 = nullptr;
  // From values of C to an output that is quantized; the reference is for zero points that vectors
  // cannot do exactly.
  KernelFunction quantize = nullptr;
  KernelFunction quantize_reference = nullptr;
  // Of activations that are quantized here: all at once, or step by step.
  KernelFunction fused = nullptr;
  KernelFunction range = nullptr;
  KernelFunction quantize_rows = nullptr;

  explicit operator bool() const { return scan != nullptr; }
  template <class C>
  [[nodiscard]] EpilogueFunction<C> epilogue() const {
    if constexpr (sizeof(C) == 8) {
      return epilogue_f64;
    } else {
      return epilogue_f32;
    }
  }
  template <class C>
  [[nodiscard]] EpilogueFunction<C> terms() const {
    if constexpr (sizeof(C) == 8) {
      return terms_f64;
    } else {
      return terms_f32;
    }
  }
};

/// Those of the best target that is allowed and has all that the problem needs; or what each of
/// them lacks.
Found<LinearKernels> choose_kernels(const LinearProblem& problem, const Allowed& allowed);

}  // namespace octavo::detail
