// What kernels ask of a GPU, counted by the stand-in driver: no clock is read, for there is nothing
// to time. A case runs one plan once and says which bytes it must move at least.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/octavo.hpp"
#include "testing/cuda.hpp"

namespace octavo::counts {

/// What a case is expected to reach, beside no f64 where no operand is f64.
struct Aims {
  bool memory = false;   ///< of the case: at most 1.05 of the least
  bool asked = false;    ///< the same, of all that is asked for
  bool sectors = false;  ///< of each kernel: no more than its bytes fill
};

struct Case {
  std::string name;
  std::string shape;
  std::int64_t elements = 0;  ///< 0: a product of matrices
  std::int64_t least = 0;     ///< bytes: every operand once
  Aims aims;
  std::function<Status()> run;
  /// Of products: the same of twice the k. What grows is the main loop's.
  std::function<Status()> deeper = nullptr;
};

/// Tensors on the device, random but for what is written, and what lends plans their workspace.
class Data {
 public:
  explicit Data(Stream stream) : stream_(std::move(stream)), memory_(stream_) {}
  [[nodiscard]] const Stream& stream() const { return stream_; }
  /// Floats in +-7, any integers.
  [[nodiscard]] TensorMut random(DType type, const Shape& shape);
  /// 0, 1, 2 and so on, s32.
  [[nodiscard]] TensorMut counted(std::int64_t count);
  /// Each 2^exponent.
  [[nodiscard]] TensorMut powers(DType type, std::int64_t count, int exponent);
  [[nodiscard]] Workspace workspace(std::size_t bytes);
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  // of tensors since `begin`
  void begin() { bytes_ = 0; }

 private:
  TensorMut upload(DType type, const Shape& shape, const std::vector<std::byte>& bytes);
  Stream stream_;
  testing::CudaMemory memory_;
  std::vector<WorkspaceBuffer> lent_;
  std::int64_t bytes_ = 0;
  std::uint32_t seed_ = 1;
};

using Cases = std::vector<std::function<Result<Case>(Data&)>>;

/// A case is made when it is its turn, by a function that finds the plan and its tensors.
void add_elementwise(Cases& cases);
void add_rows(Cases& cases);
void add_linear(Cases& cases);

}  // namespace octavo::counts
