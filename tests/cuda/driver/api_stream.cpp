// Streams, events and functions of the host in streams.
#include <chrono>

#include "tests/cuda/driver/driver.hpp"

using namespace standin;

namespace {

Event& event_of(void* handle) {
  const auto found = driver().events.find(handle);
  if (found == driver().events.end()) throw Failure{invalid_handle};
  return *found->second;
}

double now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A query lets a command happen, so that who polls gets on.
void nudge(const Mark& mark) {
  if (mark.stream->done < mark.count) run_until({mark.stream, mark.stream->done + 1});
}

}  // namespace

STANDIN_API int cuStreamCreate(void** stream, unsigned flags) {
  return call("cuStreamCreate", Needs::context, [&]() -> int {
    if (stream == nullptr || flags > 1) return invalid_value;
    auto s = std::make_shared<Stream>();
    s->context = &current();
    s->blocking = flags == 0;
    *stream = s.get();
    current().streams.push_back(s);
    driver().streams.emplace(s.get(), std::move(s));
    return success;
  });
}
STANDIN_API int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

STANDIN_API int cuStreamDestroy_v2(void* stream) {
  return call("cuStreamDestroy", Needs::context, [&]() -> int {
    const auto found = driver().streams.find(stream);
    if (found == driver().streams.end()) return invalid_handle;
    // (Work that it has left is still done at some time.)
    Context& context = *found->second->context;
    driver().streams.erase(found);
    std::erase_if(context.streams, [](const auto& s) {
      return s->commands.empty() && !driver().streams.contains(s.get());
    });
    return success;
  });
}

STANDIN_API int cuStreamSynchronize(void* stream) {
  return call("cuStreamSynchronize", Needs::context,
              [&] { return synchronize(stream_of(stream)); });
}

STANDIN_API int cuStreamQuery(void* stream) {
  return call("cuStreamQuery", Needs::context, [&]() -> int {
    const auto s = stream_of(stream);
    nudge({s, s->enqueued});
    if (s->context->error != 0) return s->context->error;
    return is_done(s) ? success : not_ready;
  });
}

STANDIN_API int cuStreamGetCtx(void* stream, Context** context) {
  return call("cuStreamGetCtx", Needs::init, [&]() -> int {
    if (reinterpret_cast<u64>(stream) <= 2) {
      *context = &current();
      return success;
    }
    const auto found = driver().streams.find(stream);
    if (found == driver().streams.end()) return invalid_handle;
    *context = found->second->context;
    return success;
  });
}

STANDIN_API int cuStreamGetFlags(void* stream, unsigned* flags) {
  return call("cuStreamGetFlags", Needs::context, [&]() -> int {
    *flags = stream_of(stream)->blocking ? 0 : 1;
    return success;
  });
}

STANDIN_API int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  return call("cuStreamWaitEvent", Needs::context, [&]() -> int {
    const auto s = stream_of(stream);
    const Event& e = event_of(event);
    if (e.recorded) s->needs.push_back(e.mark);
    return success;
  });
}

STANDIN_API int cuStreamIsCapturing(void* stream, int* status) {
  return call("cuStreamIsCapturing", Needs::context, [&]() -> int {
    stream_of(stream);
    *status = 0;
    return success;
  });
}

STANDIN_API int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return call("cuLaunchHostFunc", Needs::context, [&]() -> int {
    if (function == nullptr) return invalid_value;
    enqueue(stream_of(stream), [=] {
      driver().in_host_function = true;
      function(data);
      driver().in_host_function = false;
    });
    return success;
  });
}

STANDIN_API int cuEventCreate(void** event, unsigned) {
  return call("cuEventCreate", Needs::context, [&]() -> int {
    auto e = std::make_unique<Event>();
    e->context = &current();
    *event = e.get();
    driver().events.emplace(e.get(), std::move(e));
    return success;
  });
}

STANDIN_API int cuEventDestroy_v2(void* event) {
  return call("cuEventDestroy", Needs::context, [&]() -> int {
    event_of(event);
    driver().events.erase(event);
    return success;
  });
}

STANDIN_API int cuEventRecord(void* event, void* stream) {
  return call("cuEventRecord", Needs::context, [&]() -> int {
    Event& e = event_of(event);
    const auto s = stream_of(stream);
    if (e.context != s->context) return invalid_handle;
    enqueue(s, [time = e.time] { *time = now(); });
    e.mark = {s, s->enqueued};
    e.recorded = true;
    return success;
  });
}

STANDIN_API int cuEventSynchronize(void* event) {
  return call("cuEventSynchronize", Needs::context, [&]() -> int {
    const Event& e = event_of(event);
    if (e.recorded) run_until(e.mark);
    return e.context->error;
  });
}

STANDIN_API int cuEventQuery(void* event) {
  return call("cuEventQuery", Needs::context, [&]() -> int {
    const Event& e = event_of(event);
    if (!e.recorded) return success;
    nudge(e.mark);
    if (e.context->error != 0) return e.context->error;
    return e.mark.stream->done >= e.mark.count ? success : not_ready;
  });
}

STANDIN_API int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return call("cuEventElapsedTime", Needs::context, [&]() -> int {
    const Event& a = event_of(start);
    const Event& b = event_of(end);
    if (!a.recorded || !b.recorded) return invalid_handle;
    if (a.mark.stream->done < a.mark.count || b.mark.stream->done < b.mark.count) return not_ready;
    *milliseconds = static_cast<float>(*b.time - *a.time);
    return success;
  });
}
