#include "cli/float_gemm.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace octavo::cli {
namespace {

// Never closed: its threads would outlive it.
void* symbol(const char* library, const char* name) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : ::dlsym(handle, name);
}

}  // namespace

FloatGemm::FloatGemm(int threads) {
  if (threads > 0)
    for (const char* variable : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
      ::setenv(variable, std::to_string(threads).c_str(), 1);
  for (const char* library : {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}) {
    dnnl_ = reinterpret_cast<Dnnl>(symbol(library, "dnnl_sgemm"));
    if (dnnl_ == nullptr) continue;
    name_ = "oneDNN";
    return;
  }
  for (const char* library :
       {"libmkl_rt.so", "libopenblas.so.0", "libblis.so.4", "libcblas.so.3"}) {
    cblas_ = reinterpret_cast<Cblas>(symbol(library, "cblas_sgemm"));
    if (cblas_ == nullptr) continue;
    name_ = library;
    return;
  }
}

void FloatGemm::run(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
                    float* y) const {
  if (dnnl_ != nullptr) {
    dnnl_('N', 'T', m, n, k, 1.0F, x, k, w, k, 0.0F, y, n);
    return;
  }
  constexpr int row_major = 101, plain = 111, transposed = 112;
  cblas_(row_major, plain, transposed, static_cast<int>(m), static_cast<int>(n),
         static_cast<int>(k), 1.0F, x, static_cast<int>(k), w, static_cast<int>(k), 0.0F, y,
         static_cast<int>(n));
}

}  // namespace octavo::cli
