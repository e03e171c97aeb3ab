#include "on.hpp"

#include <algorithm>
#include <optional>

#include "arguments.hpp"

namespace octavo::python {

std::string place_name(int device) {
  return device < 0 ? "the CPU" : fmt::format("CUDA device {}", device);
}

const PyStream& parse_stream(nb::handle value) {
  // Never freed: a daemon thread may still run in it when the process ends.
  static const auto* const all = new PyStream{Stream::cpu()};
  if (value.is_none()) return *all;
  if (nb::isinstance<PyStream>(value)) return nb::cast<const PyStream&>(value);
  unsupported("stream", fmt::format("expected an octavo.Stream or None, got {}", describe(value)));
}

Workspace thread_workspace(std::size_t bytes) {
  thread_local std::optional<WorkspaceBuffer> buffer;
  if (bytes == 0) return {};
  if (!buffer || static_cast<Workspace>(*buffer).bytes < bytes) {
    buffer.reset();
    buffer.emplace(bytes);
  }
  return *buffer;
}

On::On(nb::handle stream) {
  const PyStream& parsed = parse_stream(stream);
  cpu_ = &parsed.stream;
  queue_ = parsed.queue;
  decided_ = !stream.is_none();
}

On::~On() {
  for (const auto& [memory, bytes] : lent_) queue_->give(memory, bytes);
}

QueuePtr On::queue_for(int device, const char* argument) const {
  if (queue_ != nullptr && queue_->device() == device) return queue_;
  const Result<QueuePtr> own = own_queue(device);
  if (own) return *own;
  const std::string& why = own.error().message();
  const std::string start = own.error().argument() + ": ";
  unsupported(argument,
              fmt::format("expected an array on the CPU, got one on {}; {}", place_name(device),
                          why.starts_with(start) ? why.substr(start.size()) : why));
}

void On::join(int device, const char* argument) {
  const auto refused = [&](int expected, const std::string& where) {
    invalid(argument,
            fmt::format("expected memory of {}, where {}, got memory of {}; copy it first",
                        place_name(expected), where, place_name(device)));
  };
  if (!decided_) {
    decided_ = true;
    first_ = argument;
    if (device >= 0) queue_ = queue_for(device, argument);
    return;
  }
  const int here = queue_ == nullptr ? -1 : queue_->device();
  if (device != here)
    refused(here, first_ == nullptr ? "the stream computes" : fmt::format("{} is", first_));
  if (first_ == nullptr) first_ = argument;
}

void On::join(const Array& array) {
  if (!decided_ && array.device >= 0) {
    decided_ = true;
    first_ = array.argument;
    queue_ = array.home;
  } else {
    join(array.device, array.argument);
  }
  if (array.device < 0) return;
  waits_ = waits_ || array.is_foreign;
  if (array.home != queue_ && std::find(homes_.begin(), homes_.end(), array.home) == homes_.end())
    homes_.push_back(array.home);
  if (!torch_device_.is_valid() && array.maker == Maker::torch)
    torch_device_ = array.object.attr("device");
}

void* On::lend(std::size_t bytes) {
  const Result<void*> memory = queue_->take(bytes);
  if (!memory) throw Refused(memory.error());
  if (*memory != nullptr) lent_.emplace_back(*memory, bytes);
  return *memory;
}

Workspace On::workspace(std::size_t bytes) {
  if (queue_ == nullptr) return thread_workspace(bytes);
  return {lend(bytes), bytes};
}

TensorRef On::there(const TensorRef& numbers) {
  if (queue_ == nullptr) return numbers;
  std::int64_t count = 1;
  for (int i = 0; i < numbers.shape.rank(); ++i) count *= numbers.shape[i];
  const auto bytes = static_cast<std::size_t>(bytes_for(numbers.dtype, count));
  TensorRef moved = numbers;
  void* const to = lend(bytes);
  if (Status s = queue_->upload(to, numbers.data, bytes); !s) throw Refused(s.error());
  moved.data = to;
  return moved;
}

Status On::begin() {
  if (queue_ != nullptr) queue_->note_call();
  for (const QueuePtr& home : homes_)
    if (Status s = queue_->follow(*home); !s) return s;
  return {};
}

Status On::end(Status ran) {
  for (const QueuePtr& home : homes_)
    if (Status s = home->follow(*queue_); !s && ran) ran = std::move(s);
  if (!waits_) return ran;
  const Status waited = synchronized(*queue_);
  if (ran && !waited) refuse_queued(waited.error());
  return ran;
}

Status synchronized(Queue& queue) {
  const WithoutGil released;
  return queue.synchronize();
}

void refuse_queued(const Error& error) {
  refuse(error, {{"scales", "scale"},
                 {"zero_points", "zero_point"},
                 {"weight_scales", "weight_scale"},
                 {"weight_zero_points", "weight_zero_point"},
                 {"activation_scales", "act_scale"},
                 {"activation_zero_points", "act_zero_point"},
                 {"output_scale", "out_scale"},
                 {"output_zero_point", "out_zero_point"}});
}

}  // namespace octavo::python
