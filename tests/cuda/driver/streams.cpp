// Streams do nothing until somebody waits: a command is executed when a synchronize, a query or a
// copy that blocks needs it, so that a wait that is missing shows. With a seed, other streams go on
// meanwhile, as far as they like.
#include "tests/cuda/driver/driver.hpp"

namespace standin {
namespace {

void step(Stream& stream);

void satisfy(const std::vector<Mark>& needs) {
  for (const Mark& m : needs) {
    while (m.stream->done < m.count) step(*m.stream);
  }
}

void step(Stream& stream) {
  // (What is needed first may be far back: only marks of the past are, so that this ends.)
  satisfy(stream.commands.front().needs);
  Command command = std::move(stream.commands.front());
  stream.commands.pop_front();
  ++stream.done;
  Context& context = *stream.context;
  if (context.error != 0) return;
  try {
    command.work();
  } catch (const Fault& f) {
    context.error = f.code;
    report(f.what());
  }
}

void let_others_run() {
  Driver& d = driver();
  if (d.seed == 0 || d.next_random() % 2 == 0) return;
  std::vector<std::shared_ptr<Stream>> ready;
  for (const auto& context : d.contexts) {
    for (const auto& s : context->streams) {
      if (!s->commands.empty()) ready.push_back(s);
    }
    if (context->default_stream && !context->default_stream->commands.empty())
      ready.push_back(context->default_stream);
  }
  if (!ready.empty()) step(*ready[d.next_random() % ready.size()]);
}

}  // namespace

std::shared_ptr<Stream> stream_of(void* handle) {
  Context& context = current();
  // 0 and 1 are the legacy default stream, 2 that of the thread, which is the same here.
  if (reinterpret_cast<u64>(handle) <= 2) return context.default_stream;
  const auto found = driver().streams.find(handle);
  if (found == driver().streams.end()) throw Failure{invalid_handle};
  if (found->second->context != &context) throw Failure{invalid_context};
  return found->second;
}

void enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> work) {
  Command command{std::move(work), std::move(stream->needs)};
  stream->needs.clear();
  Context& context = *stream->context;
  if (stream->is_default) {
    for (const auto& s : context.streams) {
      if (s->blocking && s->done < s->enqueued) command.needs.push_back({s, s->enqueued});
    }
  } else if (stream->blocking && context.default_stream->done < context.default_stream->enqueued) {
    command.needs.push_back({context.default_stream, context.default_stream->enqueued});
  }
  stream->commands.push_back(std::move(command));
  ++stream->enqueued;
}

void run_until(const Mark& mark) {
  while (mark.stream->done < mark.count) {
    let_others_run();
    if (mark.stream->done < mark.count) step(*mark.stream);
  }
}

int synchronize(const std::shared_ptr<Stream>& stream) {
  satisfy(stream->needs);
  run_until({stream, stream->enqueued});
  if (stream->is_default) {
    for (const auto& s : stream->context->streams) {
      if (s->blocking) run_until({s, s->enqueued});
    }
  }
  return stream->context->error;
}

int synchronize(Context& context) {
  run_until({context.default_stream, context.default_stream->enqueued});
  for (std::size_t i = 0; i < context.streams.size(); ++i) {
    run_until({context.streams[i], context.streams[i]->enqueued});
  }
  return context.error;
}

bool is_done(const std::shared_ptr<Stream>& stream) { return stream->done == stream->enqueued; }

}  // namespace standin
