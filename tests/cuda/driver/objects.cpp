// What contexts own, and what the control functions tell of it.
#include <cstring>

#include "tests/cuda/driver/control.hpp"
#include "tests/cuda/driver/driver.hpp"

namespace standin {

void add(Counters& sum, const Counters& more) {
  // (All members are u64.)
  u64 a[sizeof(Counters) / 8];
  u64 b[sizeof(Counters) / 8];
  std::memcpy(a, &sum, sizeof a);
  std::memcpy(b, &more, sizeof b);
  for (std::size_t i = 0; i < std::size(a); ++i) a[i] += b[i];
  std::memcpy(&sum, a, sizeof a);
}

void keep_counters(const Kernel& kernel) {
  if (kernel.counters.launches != 0) add(driver().counters[kernel.name], kernel.counters);
}

void unload(Module& module) {
  Driver& d = driver();
  for (const auto& k : module.kernels) keep_counters(*k);
  for (const auto& f : module.functions) d.functions.erase(f.get());
  d.modules.erase(&module);
}

void destroy_context(Context& context) {
  Driver& d = driver();
  std::vector<Module*> modules;
  for (const auto& [handle, m] : d.modules) {
    if (m->context == &context) modules.push_back(m.get());
  }
  for (Module* m : modules) unload(*m);
  std::erase_if(d.streams, [&](const auto& s) { return s.second->context == &context; });
  std::erase_if(d.events, [&](const auto& e) { return e.second->context == &context; });
  d.memory->release_all(&context);
  context.streams.clear();
  context.default_stream.reset();
  context.error = 0;
  context.retained = 0;
}

namespace {

std::map<std::string, Counters> all_counters() {
  Driver& d = driver();
  std::map<std::string, Counters> sums = d.counters;
  for (const auto& [handle, m] : d.modules) {
    for (const auto& k : m->kernels) {
      if (k->counters.launches != 0) add(sums[k->name], k->counters);
    }
  }
  return sums;
}

using Lock = std::lock_guard<std::recursive_mutex>;

const Control table = {
    .size = sizeof(Control),
    .set_seed =
        [](std::uint64_t seed) {
          const Lock lock(driver().mutex);
          driver().seed = seed;
          driver().random = seed * 0x9e3779b97f4a7c15u + 1;
        },
    .inject =
        [](const char* function, std::uint64_t nth, int result) {
          const Lock lock(driver().mutex);
          if (nth == 0)
            driver().injections.erase(function);
          else
            driver().injections[function] = {nth, result};
        },
    .clear_injections =
        [] {
          const Lock lock(driver().mutex);
          driver().injections.clear();
        },
    .calls = [](const char* function) -> std::uint64_t {
      const Lock lock(driver().mutex);
      const auto found = driver().calls.find(function);
      return found == driver().calls.end() ? 0 : found->second;
    },
    .reset_calls =
        [] {
          const Lock lock(driver().mutex);
          driver().calls.clear();
        },
    .live =
        [] {
          Driver& d = driver();
          const Lock lock(d.mutex);
          Live live{};
          live.allocations = d.memory->count(false);
          live.host_allocations = d.memory->count(true);
          live.streams = d.streams.size();
          live.events = d.events.size();
          live.modules = d.modules.size();
          for (const auto& c : d.contexts) live.contexts += c->retained;
          return live;
        },
    .message = [] { return driver().message.c_str(); },
    .reset =
        [] {
          Driver& d = driver();
          const Lock lock(d.mutex);
          d.injections.clear();
          d.calls.clear();
          d.message.clear();
          for (const auto& c : d.contexts) {
            c->error = 0;
            for (const auto& s : c->streams) {
              s->done = s->enqueued;
              s->commands.clear();
            }
            if (c->default_stream) {
              c->default_stream->done = c->default_stream->enqueued;
              c->default_stream->commands.clear();
            }
          }
        },
    .set_counting =
        [](bool on) {
          const Lock lock(driver().mutex);
          driver().counting = on;
        },
    .reset_counters =
        [] {
          Driver& d = driver();
          const Lock lock(d.mutex);
          d.counters.clear();
          for (const auto& [handle, m] : d.modules) {
            for (const auto& k : m->kernels) k->counters = Counters{};
          }
        },
    .counter_count = []() -> std::uint64_t {
      const Lock lock(driver().mutex);
      return all_counters().size();
    },
    .counters =
        [](std::uint64_t index, KernelCounters* into) {
          const Lock lock(driver().mutex);
          static std::map<std::string, Counters> sums;
          sums = all_counters();
          if (index >= sums.size()) return false;
          const auto at = std::next(sums.begin(), static_cast<std::ptrdiff_t>(index));
          const Counters& c = at->second;
          *into = {at->first.c_str(),
                   c.launches,
                   c.blocks,
                   c.warp_instructions,
                   c.thread_instructions,
                   c.mma,
                   c.double_instructions,
                   c.atomics,
                   c.global_requests,
                   c.global_bytes_read,
                   c.global_bytes_written,
                   c.sectors,
                   c.ideal_sectors,
                   c.touched_bytes_read,
                   c.touched_bytes_written,
                   c.shared_requests,
                   c.shared_conflicts};
          return true;
        },
    .set_devices =
        [](int count, int capability) {
          Driver& d = driver();
          const Lock lock(d.mutex);
          for (const auto& c : d.contexts) {
            if (c->retained != 0) return false;
          }
          d.devices = count;
          d.capability = capability;
          d.initialised = false;
          return true;
        },
    .set_memory =
        [](std::uint64_t bytes) {
          const Lock lock(driver().mutex);
          driver().memory->capacity = bytes;
        },
    .pending = []() -> std::uint64_t {
      Driver& d = driver();
      const Lock lock(d.mutex);
      u64 n = 0;
      for (const auto& c : d.contexts) {
        for (const auto& s : c->streams) n += s->commands.size();
        if (c->default_stream) n += c->default_stream->commands.size();
      }
      return n;
    },
};

}  // namespace

STANDIN_API const Control* octavo_standin_control();
STANDIN_API const Control* octavo_standin_control() { return &table; }

}  // namespace standin
