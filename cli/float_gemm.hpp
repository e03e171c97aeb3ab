// A float matrix product from whatever library this machine has, to compare with.
#pragma once

#include <cstdint>
#include <string>

namespace octavo::cli {

/// y[m, n] = x[m, k] * w[n, k]^T by oneDNN's sgemm or a CBLAS, looked for when the program runs.
class FloatGemm {
 public:
  /// `threads` is what the library is asked to use; 0: as many as it likes.
  explicit FloatGemm(int threads);
  /// The library that was found, or empty.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void run(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
           float* y) const;

 private:
  using Dnnl = int (*)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                       std::int64_t, const float*, std::int64_t, float, float*, std::int64_t);
  using Cblas = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  std::string name_;
  Dnnl dnnl_ = nullptr;
  Cblas cblas_ = nullptr;
};

}  // namespace octavo::cli
