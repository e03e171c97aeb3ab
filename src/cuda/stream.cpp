#include "cuda/stream.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "core/memory_place.hpp"
#include "cuda/launch.hpp"

namespace octavo {

Result<Stream> Stream::cuda(const CudaOptions& options) {
  auto made = octavo::cuda::CudaStream::make(options);
  if (!made) return made.error();
  return Stream(*std::move(made));
}

namespace cuda {

extern const Ptx checks_ptx;

namespace {

constexpr Kernel check_kernel(checks_ptx, "check_values");
constexpr Kernel fold_kernel(checks_ptx, "fold_refusals");
constexpr Kernel refuse_kernel(checks_ptx, "refuse");

// Up to so many values one block checks, which needs no launch before it.
constexpr std::int64_t one_block = 32768;

// What the driver knows nothing of is the host's.
detail::MemoryPlace memory_place(const void* pointer) {
  const Result<const Driver*> d = driver();
  detail::MemoryPlace place;
  if (!d) return place;
  unsigned type = 0;
  unsigned managed = 0;
  int device = -1;
  PointerAttribute attributes[] = {pointer_memory_type, pointer_is_managed, pointer_device};
  void* values[] = {&type, &managed, &device};
  if ((*d)->pointer_attributes(3, attributes, values, reinterpret_cast<DevicePointer>(pointer)) !=
      success)
    return place;
  place.of_device = type == memory_device || managed != 0;
  place.of_host = type != memory_device || managed != 0;
  place.device = device;
  return place;
}

DevicePointer address(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

}  // namespace

Result<std::shared_ptr<CudaStream>> CudaStream::make(const CudaOptions& options) {
  auto context = Context::of_device(options.device);
  if (!context) return context.error();
  std::shared_ptr<CudaStream> stream(new CudaStream(*std::move(context)));
  if (Status s = stream->open(options); !s) return s.error();
  return stream;
}

Status CudaStream::open(const CudaOptions& options) {
  const Current current(*context_);
  if (!current.status()) return current.status();
  const Driver& d = driver();
  if (options.stream) {
    const auto given = static_cast<StreamHandle>(*options.stream);
    // (The legacy default stream and that of the thread are those of the context that is current.)
    ContextHandle of = context_->handle();
    if (std::bit_cast<std::uintptr_t>(given) > 2)
      if (Status s = check(d, "cuStreamGetCtx", d.stream_context(given, &of)); !s) return s;
    if (of != context_->handle())
      return Error(ErrorCode::invalid_problem, "stream",
                   fmt::format("stream: expected one of the primary context of device {}, got one "
                               "of another context",
                               context_->ordinal));
    handle_ = given;
  } else {
    // It waits for the legacy default stream and makes that wait, as what users copy there expects.
    constexpr unsigned blocking = 0;
    if (Status s = check(d, "cuStreamCreate", d.stream_create(&handle_, blocking)); !s) return s;
    owned_ = true;
  }
  Result<void*> state = context_->allocate(sizeof(RefusalState));
  if (!state) return state.error();
  state_ = static_cast<RefusalState*>(*state);
  if (Status s = check(d, "cuMemsetD8Async",
                       d.set_bytes(address(state_), 0xFF, sizeof(RefusalState), handle_));
      !s)
    return s;
  detail::note_device_memory(memory_place);
  return {};
}

CudaStream::~CudaStream() {
  {
    const Current current(*context_);
    // What is queued may yet write what goes now.
    if (current.status() && state_ != nullptr) (void)driver().stream_synchronize(handle_);
    if (current.status() && owned_) (void)driver().stream_destroy(handle_);
  }
  context_->free(state_);
}

Result<void*> CudaStream::allocate(std::size_t bytes) { return context_->allocate(bytes); }

void CudaStream::free(void* memory) noexcept {
  if (memory == nullptr) return;
  const Current current(*context_);
  // Work that was lent the memory may be queued.
  if (current.status()) (void)driver().stream_synchronize(handle_);
  context_->free(memory);
}

Status CudaStream::read_refusal(std::optional<Refusal>& refusal) {
  const Driver& d = driver();
  RefusalState state{};
  if (Status s = check(d, "cuMemcpyDtoHAsync",
                       d.copy_to_host(&state, address(state_), sizeof(state), handle_));
      !s)
    return s;
  if (Status s = check(d, "cuStreamSynchronize", d.stream_synchronize(handle_)); !s) return s;
  for (const Refusal& r : {state.first, state.latest})
    if (r.key != nothing_wrong && !refusal) refusal = r;
  if (!refusal) return {};
  return check(d, "cuMemsetD8Async",
               d.set_bytes(address(state_), 0xFF, sizeof(RefusalState), handle_));
}

Status CudaStream::synchronize() {
  {
    // Without the lock, so that others may enqueue meanwhile.
    const Current current(*context_);
    if (!current.status()) return current.status();
    if (Status s = check(driver(), "cuStreamSynchronize", driver().stream_synchronize(handle_)); !s)
      return s;
  }
  const Enqueue alone(*this);
  if (!alone.status()) return alone.status();
  std::optional<Refusal> refusal;
  if (Status s = read_refusal(refusal); !s) return s;
  if (!refusal) return {};
  return std::bit_cast<WordRefusal>(refusal->word)(*refusal);
}

Status CudaStream::check_values(std::initializer_list<Check> checks) {
  CheckArgs args;
  args.state = state_;
  std::int64_t most = 0;
  for (const Check& c : checks) {
    args.checks[args.count++] = c;
    most = std::max(most, c.count);
  }
  if (most <= one_block) return launch(*this, check_kernel, {}, {check_threads}, 0, args);
  if (Status s = fold_refusals(); !s) return s;
  const auto blocks = std::min<std::int64_t>((most + check_threads - 1) / check_threads,
                                             std::int64_t{4} * context_->limits.multiprocessors);
  return launch(*this, check_kernel, {static_cast<unsigned>(std::max<std::int64_t>(blocks, 2))},
                {check_threads}, 0, args);
}

Status CudaStream::fold_refusals() {
  return launch(*this, fold_kernel, {}, {}, 0, FoldArgs{state_});
}

Status CudaStream::refuse(const Refusal& refusal) {
  return launch(*this, refuse_kernel, {}, {}, 0, RefuseArgs{refusal, state_});
}

Status launch_bytes(CudaStream& stream, const Kernel& kernel, Size blocks, Size threads,
                    unsigned shared_bytes, const void* args) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return {};
  const Current current(stream.context());
  if (!current.status()) return current.status();
  const Result<FunctionHandle> function = stream.context().function(kernel, shared_bytes);
  if (!function) return function.error();
  // (The driver reads it before it returns.)
  void* parameters[] = {const_cast<void*>(args)};
  const Driver& d = stream.driver();
  return check(d, "cuLaunchKernel",
               d.launch(*function, blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
                        shared_bytes, stream.handle(), parameters, nullptr));
}

}  // namespace cuda
}  // namespace octavo
