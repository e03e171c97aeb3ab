#include "octavo/stream.hpp"

#include <algorithm>
#include <new>
#include <thread>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/workspace.hpp"

#if defined(OCTAVO_STD_THREADS)
#include <vector>
#else
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace octavo {

struct Stream::Impl {
  explicit Impl(const CpuOptions& o)
      : options(o),
        threads(o.threads > 0 ? o.threads
                              : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())))
#if !defined(OCTAVO_STD_THREADS)
        ,
        // oneTBB complains on standard error when asked for more than it will give.
        arena(std::min(threads, static_cast<int>(tbb::global_control::active_value(
                                    tbb::global_control::max_allowed_parallelism))))
#endif
  {
  }
  CpuOptions options;
  int threads;
#if !defined(OCTAVO_STD_THREADS)
  tbb::task_arena arena;
#endif
};

Stream Stream::cpu(const CpuOptions& options) { return Stream(std::make_shared<Impl>(options)); }
int Stream::threads() const noexcept { return impl_->threads; }
const CpuOptions& Stream::options() const noexcept { return impl_->options; }

WorkspaceBuffer::WorkspaceBuffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(detail::allocate_workspace(bytes))),
      bytes_(bytes) {}
void WorkspaceBuffer::Free::operator()(std::byte* p) const noexcept {
  ::operator delete (p, std::align_val_t{workspace_alignment});
}

namespace detail {

void parallel(const Stream& stream, int parts, PartFunction fn) {
  // Set here for oneTBB's own arithmetic, and inside each part: a task runs under the environment
  // that its arena captured.
  const FpEnvironment outer;
  const auto run = [&fn](int part) {
    const FpEnvironment environment;
    fn(part);
  };
  if (parts == 1) {
    run(0);
    return;
  }
#if defined(OCTAVO_STD_THREADS)
  (void)stream;
  std::vector<std::thread> threads;
  for (int part = 1; part < parts; ++part) threads.emplace_back(run, part);
  run(0);
  for (std::thread& thread : threads) thread.join();
#else
  stream.impl().arena.execute([&] { tbb::parallel_for(0, parts, run, tbb::static_partitioner{}); });
#endif
}

}  // namespace detail
}  // namespace octavo
