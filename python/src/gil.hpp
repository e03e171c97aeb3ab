// The GIL, while work that needs no Python is done.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace octavo::python {

/// Lets other threads run Python as long as it lives.
///
/// (nanobind's own aborts the process when a daemon thread comes back after the interpreter has
/// ended: Python then ends the thread by unwinding its stack, which no destructor lets through.
/// Such a thread is left to wait for the end of the process, as Python itself does since 3.14.)
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();  // (the exception may not be swallowed)
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace octavo::python
