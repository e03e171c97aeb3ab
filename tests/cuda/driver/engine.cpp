#include "tests/cuda/driver/engine.hpp"

#include "tests/cuda/driver/launch.hpp"

namespace standin {

#define STANDIN_ENGINE(target) \
  namespace target {           \
  void fill(Engine& engine);   \
  }
STANDIN_ENGINE(generic)
#ifdef STANDIN_X86
STANDIN_ENGINE(v3)
#endif

const Engine& engine() {
  static const Engine best = [] {
    Engine e;
#ifdef STANDIN_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) {
      v3::fill(e);
      return e;
    }
#endif
    generic::fill(e);
    return e;
  }();
  return best;
}

const Operations& operations() { return engine().operations; }

}  // namespace standin
