#include "tests/cuda/driver/driver.hpp"

#include <cstdio>
#include <cstdlib>

namespace standin {
namespace {

u64 from_environment(const char* name, u64 otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace

Driver::Driver() : memory(std::make_unique<Memory>()) {
  devices = static_cast<int>(from_environment("OCTAVO_STANDIN_DEVICES", 1));
  const char* cc = std::getenv("OCTAVO_STANDIN_CAPABILITY");  // as 8.0
  if (cc != nullptr && *cc != 0) {
    char* rest = nullptr;
    capability = static_cast<int>(std::strtol(cc, &rest, 10)) * 10;
    if (*rest == '.') capability += static_cast<int>(std::strtol(rest + 1, nullptr, 10));
  }
  multiprocessors = static_cast<int>(from_environment("OCTAVO_STANDIN_MULTIPROCESSORS", 108));
  seed = from_environment("OCTAVO_STANDIN_SEED", 0);
  counting = from_environment("OCTAVO_STANDIN_COUNT", 0) != 0;
  memory->capacity = from_environment("OCTAVO_STANDIN_MEMORY", memory->capacity);
  random = seed * 0x9e3779b97f4a7c15u + 1;
}

u64 Driver::next_random() {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

Driver& driver() {
  // (Never destroyed: other libraries may call it while the process ends.)
  static Driver* d = new Driver;
  return *d;
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

Context& current() {
  auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) throw Failure{invalid_context};
  Context& c = *stack.back();
  if (c.retained == 0) throw Failure{context_is_destroyed};
  return c;
}

void report(const std::string& text) {
  driver().message = text;
  std::fprintf(stderr, "stand-in driver: %s\n", text.c_str());
}

int call(const char* name, Needs needs, const std::function<int()>& body) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  ++d.calls[name];
  if (d.in_host_function) return not_permitted;
  if (needs != Needs::nothing && !d.initialised) return not_initialized;
  try {
    Context* context = needs == Needs::context ? &current() : nullptr;
    const auto injected = d.injections.find(name);
    if (injected != d.injections.end() && --injected->second.calls_left == 0) {
      const int result = injected->second.result;
      d.injections.erase(injected);
      auto& stack = context_stack();
      if (result >= 700 && result < 800 && result != launch_out_of_resources && !stack.empty() &&
          stack.back() != nullptr) {
        stack.back()->error = result;
      }
      return result;
    }
    if (context != nullptr && context->error != 0) return context->error;
    return body();
  } catch (const Failure& f) {
    return f.result;
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (const std::exception& e) {
    report(e.what());
    return unknown;
  }
}

}  // namespace standin
