#include "queue.hpp"

#include <algorithm>

namespace octavo::python {
namespace {

using cuda::check;

cuda::DevicePointer address(const void* memory) {
  return reinterpret_cast<cuda::DevicePointer>(memory);
}

// What a stream keeps for calls to come. Larger results are rare, and worth a wait.
constexpr std::size_t most_free_bytes = std::size_t{64} << 20;

struct Queues {
  std::map<int, QueuePtr> own;
  std::vector<QueuePtr> of_frameworks;  // kept, for nobody says when they go
  std::vector<std::weak_ptr<Queue>> all;
};
// Never freed: when the process ends the driver may have ended before.
Queues& queues() {
  static auto* const all = new Queues();
  return *all;
}

Result<QueuePtr> make(const CudaOptions& options) {
  const Result<Stream> stream = Stream::cuda(options);
  if (!stream) return stream.error();
  auto queue = std::make_shared<Queue>(*stream);
  auto& all = queues().all;
  std::erase_if(all, [](const std::weak_ptr<Queue>& q) { return q.expired(); });
  all.emplace_back(queue);
  return queue;
}

}  // namespace

Result<QueuePtr> new_queue(int device) { return make({.device = device}); }

Result<QueuePtr> own_queue(int device) {
  QueuePtr& queue = queues().own[device];
  if (queue == nullptr) {
    Result<QueuePtr> made = new_queue(device);
    if (!made) return made.error();
    queue = *made;
  }
  return queue;
}

Result<QueuePtr> queue_of(int device, std::uintptr_t handle) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): handles are numbers in Python
  auto* const stream = reinterpret_cast<void*>(handle);
  // (One of ours may come back by its handle, and goes when ours goes.)
  for (QueuePtr& known : all_queues())
    if (known->handle() == stream && known->device() == device) return std::move(known);
  Result<QueuePtr> made = make({.device = device, .stream = stream});
  if (made) queues().of_frameworks.push_back(*made);
  return made;
}

std::vector<QueuePtr> all_queues() {
  std::vector<QueuePtr> found;
  for (const std::weak_ptr<Queue>& known : queues().all)
    if (QueuePtr queue = known.lock()) found.push_back(std::move(queue));
  return found;
}

Queue::~Queue() {
  wait();
  release_all();
}

void Queue::release_all() noexcept {
  for (const auto& [bytes, memory] : free_) on().context().free(memory);
  free_.clear();
  free_bytes_ = 0;
}

Result<void*> Queue::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (const auto found = free_.find(bytes); found != free_.end()) {
    void* const memory = found->second;
    free_.erase(found);
    free_bytes_ -= bytes;
    return memory;
  }
  Result<void*> memory = on().context().allocate(bytes);
  if (memory || free_.empty()) return memory;
  wait();
  release_all();
  return on().context().allocate(bytes);
}

void Queue::give(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  const std::scoped_lock lock(mutex_);
  if (free_bytes_ + bytes > most_free_bytes) {
    wait();
    release_all();
    if (bytes > most_free_bytes) return on().context().free(memory);
  }
  free_.emplace(bytes, memory);
  free_bytes_ += bytes;
}

Status Queue::upload(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return {};
  const cuda::Enqueue alone(on());
  if (!alone.status()) return alone.status();
  const cuda::Driver& d = on().driver();
  return check(d, "cuMemcpyHtoDAsync", d.copy_to_device(address(to), from, bytes, handle()));
}

Status Queue::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return {};
  const cuda::Enqueue alone(on());
  if (!alone.status()) return alone.status();
  const cuda::Driver& d = on().driver();
  return check(d, "cuMemcpyDtoDAsync",
               d.copy_on_device(address(to), address(from), bytes, handle()));
}

Status Queue::download(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return {};
  const cuda::Current current(on().context());
  if (!current.status()) return current.status();
  const cuda::Driver& d = on().driver();
  if (Status s = check(d, "cuMemcpyDtoHAsync", d.copy_to_host(to, address(from), bytes, handle()));
      !s)
    return s;
  return check(d, "cuStreamSynchronize", d.stream_synchronize(handle()));
}

Status Queue::follow(const Queue& other) const { return other.lead(handle()); }

Status Queue::lead(cuda::StreamHandle other) const {
  const cuda::Current current(on().context());
  if (!current.status()) return current.status();
  const cuda::Driver& d = on().driver();
  cuda::EventHandle event = nullptr;
  if (Status s = check(d, "cuEventCreate", d.event_create(&event, cuda::event_disable_timing)); !s)
    return s;
  Status status = check(d, "cuEventRecord", d.event_record(event, handle()));
  if (status) status = check(d, "cuStreamWaitEvent", d.stream_wait(other, event, 0));
  (void)d.event_destroy(event);  // (when it has happened)
  return status;
}

void Queue::wait() const noexcept {
  const cuda::Current current(on().context());
  if (current.status()) (void)on().driver().stream_synchronize(handle());
}

Result<std::shared_ptr<Block>> Block::make(const QueuePtr& queue, std::size_t bytes) {
  const Result<void*> memory = queue->take(bytes);
  if (!memory) return memory.error();
  return std::make_shared<Block>(queue, *memory, bytes);
}

Block::~Block() {
  if (memory_ == nullptr) return;
  if (!shared_) {
    queue_->give(memory_, bytes_);
    return;
  }
  cuda::Context& context = queue_->on().context();
  {
    const cuda::Current current(context);
    if (current.status()) (void)context.driver.context_synchronize();
  }
  context.free(memory_);
}

Readers::~Readers() {
  for (const QueuePtr& queue : all_) queue->wait();
}

void Readers::add(const QueuePtr& queue) {
  const std::scoped_lock lock(mutex_);
  all_.insert(queue);
}

}  // namespace octavo::python
