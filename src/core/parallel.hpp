// The one way work is spread over threads.
#pragma once

#include <memory>
#include <type_traits>

#include "octavo/stream.hpp"

namespace octavo::detail {

// A callable that is borrowed, not owned: nothing is allocated.
class PartFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, PartFunction>) PartFunction(const F& f)
      : object_(std::addressof(f)),
        call_([](const void* object, int part) { (*static_cast<const F*>(object))(part); }) {}
  void operator()(int part) const { call_(object_, part); }

 private:
  const void* object_;
  void (*call_)(const void*, int);
};

// Calls fn(0) .. fn(parts - 1), each in our floating-point environment, and returns when all are
// done. Which thread runs which part is left open, so nothing may depend on it.
void parallel(const Stream& stream, int parts, PartFunction fn);

}  // namespace octavo::detail
