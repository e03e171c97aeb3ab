// What the files of the oneDNN plugin share.
#pragma once

#include <functional>

#include "peers/plugin.hpp"

namespace octavo::bench {

// oneDNN takes its threads from OpenMP. The library it was linked with is asked, for another one
// may be loaded too; and what we do around oneDNN runs on the same threads, for a second pool that
// waits actively would take its cores.
class Gomp {
 public:
  static const Gomp& instance();

  void set_threads(int threads) const;
  // Calls part(0) .. part(threads - 1).
  void run(int threads, const std::function<void(int)>& part) const;

 private:
  Gomp();
  void (*set_num_threads_)(int) = nullptr;
  int (*thread_num_)() = nullptr;
  void (*parallel_)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
};

Task dnnl_linear(const Linear& l);
Task dnnl_floats(const Floats& f);

}  // namespace octavo::bench
