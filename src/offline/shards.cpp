// All files of the result, a few at a time: threads that write into one file wait for each other in
// the system, and while one file is flushed to the disk the next is worked on.
#include <algorithm>
#include <list>
#include <mutex>

#include "core/parallel.hpp"
#include "offline/files.hpp"
#include "offline/shard.hpp"

namespace octavo::offline {
namespace {

// More would leave more behind unfinished when a run is stopped.
constexpr std::size_t most_open = 4;

class Schedule {
 public:
  Schedule(std::vector<ShardJob> jobs, int threads)
      : jobs_(std::move(jobs)),
        most_open_(std::min(most_open, static_cast<std::size_t>(threads))) {}

  // What each thread does until nothing is left, or something has failed.
  void work(const Stream& one) {
    Scratch scratch;
    std::unique_lock lock(mutex_);
    while (Open* open = next()) {
      const std::size_t piece = open->next++;
      ++open->workers;
      lock.unlock();
      Status status = guarded("memory", [&] { return open->shard->run(one, piece, scratch); });
      lock.lock();
      --open->workers;
      if (!status) fail(open->job, piece, std::move(status));
      if (++open->done < open->shard->pieces() || failed()) continue;
      lock.unlock();
      status = guarded("memory", [&] { return open->shard->finish(); });
      lock.lock();
      if (!status) fail(open->job, piece, std::move(status));
      open_.remove_if([open](const Open& o) { return &o == open; });
    }
  }

  [[nodiscard]] Result<int> result() {
    if (failed()) return failure_.error();
    return kept_;
  }

 private:
  struct Open {
    std::unique_ptr<Shard> shard;
    std::size_t job = 0;
    std::size_t next = 0, done = 0;  // pieces
    int workers = 0;
    [[nodiscard]] bool has_work() const { return next < shard->pieces(); }
  };

  [[nodiscard]] bool failed() const { return !failure_; }
  // Of several errors the one that comes first in the files is told.
  void fail(std::size_t job, std::size_t piece, Status status) {
    if (failed() && std::pair(job, piece) >= failed_at_) return;
    failed_at_ = {job, piece};
    failure_ = std::move(status);
  }

  // A file with work, the one that the fewest threads are at; null if there is none.
  Open* next() {
    if (failed()) return nullptr;
    Open* best = nullptr;
    std::size_t with_work = 0;
    for (Open& open : open_) {
      if (!open.has_work()) continue;
      ++with_work;
      if (best == nullptr || open.workers < best->workers) best = &open;
    }
    if (best != nullptr && (best->workers == 0 || with_work >= most_open_)) return best;
    const Result<Open*> opened = guarded("memory", [&] { return open_next(); });
    if (opened) return *opened != nullptr ? *opened : best;
    fail(next_job_ - 1, 0, opened.error());
    return nullptr;
  }

  // Opens the next file that is not finished and not empty; null if there is none.
  Result<Open*> open_next() {
    while (next_job_ < jobs_.size()) {
      const ShardJob& job = jobs_[next_job_++];
      auto shard = Shard::open(job);
      if (!shard) return shard.error();
      if (*shard == nullptr) {
        ++kept_;
        std::uint64_t source = 0;
        for (const StoredTensor& t : job.file->tensors()) source += t.size();
        job.done(source);
      } else if ((*shard)->pieces() > 0) {
        open_.push_back({*std::move(shard), next_job_ - 1, 0, 0, 0});
        return &open_.back();
      } else if (Status s = (*shard)->finish(); !s) {
        return s.error();
      }
    }
    return nullptr;
  }

  std::vector<ShardJob> jobs_;
  std::size_t most_open_;
  std::mutex mutex_;
  std::list<Open> open_;
  std::size_t next_job_ = 0;
  int kept_ = 0;
  Status failure_;
  std::pair<std::size_t, std::size_t> failed_at_;
};

}  // namespace

Result<int> write_shards(const Stream& stream, std::vector<ShardJob> jobs) {
  return guarded("memory", [&]() -> Result<int> {
    const Stream one = Stream::cpu({.threads = 1, .cap = stream.options().cap});
    Schedule schedule(std::move(jobs), stream.threads());
    detail::parallel(stream, stream.threads(), [&](int) { schedule.work(one); });
    return schedule.result();
  });
}

}  // namespace octavo::offline
