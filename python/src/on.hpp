// Where a call runs: on the CPU, or on a stream of the device that its arrays lie on.
//
// On a device the first array decides: its framework's current stream, or our own of the device,
// unless there is a `stream=`. What the other arrays' streams have queued comes before the call,
// and what they queue later comes after it. Whoever can't know of the stream finds the work done.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "array.hpp"
#include "error.hpp"
#include "gil.hpp"
#include "queue.hpp"

namespace octavo::python {

/// The class Stream of the module.
struct PyStream {
  Stream stream;
  QueuePtr queue = nullptr;  // of a device
};
/// The CPU's default stream for None.
[[nodiscard]] const PyStream& parse_stream(nb::handle value);

/// Memory of this thread, kept from call to call.
[[nodiscard]] Workspace thread_workspace(std::size_t bytes);

/// "the CPU", "CUDA device 1"
[[nodiscard]] std::string place_name(int device);

/// Waits for a stream, without the GIL; the first refusal of what ran there.
[[nodiscard]] Status synchronized(Queue& queue);
/// Throws one that a stream brought, which may be of any call's: with the names of Python.
[[noreturn]] void refuse_queued(const Error& error);

class On {
 public:
  /// Of a `stream=`, which may be None.
  explicit On(nb::handle stream = Py_None);
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  ~On();

  /// For an array of a device: the stream that it is ordered with if it does not say. Refuses,
  /// by the argument, where there is none.
  [[nodiscard]] QueuePtr queue_for(int device, const char* argument) const;
  /// One more array of the call. Refused unless it lies where the others do.
  void join(const Array& array);
  /// The same of what is no array, but lies on a device (or, -1, does not).
  void join(int device, const char* argument);

  [[nodiscard]] bool on_device() const { return queue_ != nullptr; }
  [[nodiscard]] const QueuePtr& queue() const { return queue_; }
  [[nodiscard]] const Stream& stream() const { return queue_ ? queue_->stream() : *cpu_; }
  /// What torch.empty takes as its device; invalid where no tensor of a device was seen.
  [[nodiscard]] nb::handle torch_device() const { return torch_device_; }

  [[nodiscard]] Workspace workspace(std::size_t bytes);
  /// Numbers of the host's for a run: on a device a copy there, for as long as the call.
  [[nodiscard]] TensorRef there(const TensorRef& numbers);

  /// Before the run, and after it with what it returned.
  [[nodiscard]] Status begin();
  [[nodiscard]] Status end(Status ran);

 private:
  [[nodiscard]] void* lend(std::size_t bytes);

  const Stream* cpu_ = nullptr;
  QueuePtr queue_;
  bool decided_ = false;  // where it runs: there is a stream=, or an array
  const char* first_ = nullptr;
  bool waits_ = false;           // somebody does not know of the stream
  std::vector<QueuePtr> homes_;  // of arrays, other than the stream
  std::vector<std::pair<void*, std::size_t>> lent_;
  nb::object torch_device_;
};

/// Runs a plan without the GIL.
template <class Plan, class Args>
[[nodiscard]] Status run_plan(const Plan& plan, On& on, const Args& args) {
  const Workspace workspace = on.workspace(plan.workspace_size());
  if (Status s = on.begin(); !s) return s;
  Status status;
  {
    const WithoutGil released;
    status = plan.run(on.stream(), workspace, args);
  }
  return on.end(std::move(status));
}

}  // namespace octavo::python
