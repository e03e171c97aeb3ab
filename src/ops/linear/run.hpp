// A checked call, carried out.
#pragma once

#include "octavo/linear.hpp"
#include "ops/linear/dot.hpp"

namespace octavo::detail {

/// How a plan uses its workspace, in bytes from its start.
struct LinearLayout {
  const DotKernel* dot = nullptr;
  bool copies_rows = false;  // activations are not read where they are
  bool adds_rows = false;    // sums of rows are needed
  std::int64_t row_stride = 0;
  std::int64_t scales = 0;       // of activations that are quantized here
  std::int64_t zero_points = 0;  // likewise
  std::int64_t row_sums = 0;
  std::int64_t ones = 0;   // a row of them, to add up columns with
  std::int64_t packs = 0;  // for each thread: panels, and the sums of their columns
  std::int64_t pack_bytes = 0;
  std::int64_t total = 0;

  LinearLayout(const LinearProblem& problem, Target target, int threads);
};

/// C, as numerics/linear.hpp has it.
inline DType compute_type(const LinearProblem& p) {
  return p.activation == DType::f64 || p.output == DType::f64 ? DType::f64 : DType::f32;
}

/// Whether sums need more than 32 bits.
bool is_wide(const LinearProblem& problem);

void run_linear(const Stream& stream, const LinearProblem& problem, const LinearOperands& operands,
                Target dot_target, Target vector_target, int threads, void* workspace);

/// Whether an argument that may be left out is there.
inline bool is_given(const TensorRef* t) {
  return t != nullptr && (t->data != nullptr || t->shape.rank() > 0);
}

/// n floats of any type from `first` on, rounded to C; a single one is repeated.
template <class C>
void load_floats(const TensorRef& from, bool single, std::int64_t first, std::int64_t n, C* to);
extern template void load_floats(const TensorRef&, bool, std::int64_t, std::int64_t, float*);
extern template void load_floats(const TensorRef&, bool, std::int64_t, std::int64_t, double*);

}  // namespace octavo::detail
