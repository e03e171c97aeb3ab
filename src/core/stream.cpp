#include "core/stream.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <thread>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/workspace.hpp"

#if defined(OCTAVO_STD_THREADS)
#include <vector>
#else
#include <pthread.h>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <atomic>
#endif

namespace octavo {

#if !defined(OCTAVO_STD_THREADS)
namespace {

// In a child of fork none of oneTBB's threads exist, and a lock that one of them held stays locked
// for ever. So a child whose parent had started oneTBB never touches it: neither runs in it nor
// frees what is of it.
std::atomic<bool> is_child{false};
std::atomic<bool> children_are_marked{false};

// Before each use of oneTBB. (Without a lock, which could be held at a fork; two handlers do what
// one does.)
void mark_children() {
  if (!children_are_marked.load(std::memory_order_acquire))
    children_are_marked = pthread_atfork(nullptr, nullptr, [] { is_child = true; }) == 0;
}

struct DeleteArena {
  void operator()(tbb::task_arena* arena) const {
    if (!is_child) delete arena;
  }
};
using Arena = std::unique_ptr<tbb::task_arena, DeleteArena>;

Arena make_arena(int threads) {
  if (is_child) return nullptr;
  // oneTBB complains on standard error when asked for more than it will give.
  const std::size_t most =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return Arena(new tbb::task_arena(std::min(threads, static_cast<int>(most))));
}

}  // namespace
#endif

namespace {

struct CpuStream : Stream::Impl {
  explicit CpuStream(const CpuOptions& o) : Impl(Backend::cpu) {
    options = o;
    threads = o.threads > 0 ? o.threads
                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
#if !defined(OCTAVO_STD_THREADS)
    arena = make_arena(threads);
#endif
  }
#if !defined(OCTAVO_STD_THREADS)
  Arena arena;
#endif
};

}  // namespace

Stream Stream::cpu(const CpuOptions& options) {
  return Stream(std::make_shared<CpuStream>(options));
}
Backend Stream::backend() const noexcept { return impl_->backend; }
Status Stream::synchronize() const { return impl_->synchronize(); }
int Stream::threads() const noexcept { return impl_->threads; }
const CpuOptions& Stream::options() const noexcept { return impl_->options; }

WorkspaceBuffer::WorkspaceBuffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(detail::allocate_workspace(bytes))),
      bytes_(bytes) {}
WorkspaceBuffer::WorkspaceBuffer(const Stream& stream, std::size_t bytes)
    : data_(nullptr, Free{stream.impl_}),
      bytes_(bytes) {
  const Result<void*> memory = stream.impl().allocate(bytes);
  if (!memory) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(*memory));
}
void WorkspaceBuffer::Free::operator()(std::byte* p) const noexcept {
  if (from != nullptr) return from->free(p);
  ::operator delete (p, std::align_val_t{workspace_alignment});
}

namespace detail {

void parallel(const Stream& stream, int parts, PartFunction fn) {
  const auto run = [&fn](int part) {
    const FpEnvironment environment;
    fn(part);
  };
  if (parts == 1) {
    run(0);
    return;
  }
  // Set here for oneTBB's own arithmetic, and inside each part: a task runs under the environment
  // that its arena captured.
  const FpEnvironment outer;
#if defined(OCTAVO_STD_THREADS)
  (void)stream;
  std::vector<std::thread> threads;
  for (int part = 1; part < parts; ++part) threads.emplace_back(run, part);
  run(0);
  for (std::thread& thread : threads) thread.join();
#else
  if (is_child) {
    for (int part = 0; part < parts; ++part) run(part);
    return;
  }
  mark_children();
  // (Only implementations for the CPU come here.)
  static_cast<CpuStream&>(stream.impl()).arena->execute([&] {
    tbb::parallel_for(0, parts, run, tbb::static_partitioner{});
  });
#endif
}

}  // namespace detail
}  // namespace octavo
