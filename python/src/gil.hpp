// The GIL: given up for work that needs no Python, and lost for good at the end of the interpreter.
//
// A daemon thread that asks for the GIL when the interpreter has ended is ended by Python with
// pthread_exit, which unwinds its stack; no destructor and no function of nanobind lets that
// through, and the process aborts. So it is caught where Python was called, and the thread waits
// for the end of the process, as threads of Python itself do since 3.14.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace octavo::python {

/// What a function of Python's C interface returns that may run code of Python. (Only that: what
/// `call` holds would be destroyed on the way here, without the GIL.)
template <class Call>
auto into_python(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();  // (it may not be swallowed)
  }
}

/// Lets other threads run Python as long as it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    into_python([&] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace octavo::python
