// The state behind the driver's functions.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tests/cuda/driver/launch.hpp"
#include "tests/cuda/driver/ptx.hpp"

namespace standin {

// CUresults.
enum Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  invalid_ptx = 218,
  unsupported_ptx_version = 222,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  launch_out_of_resources = 701,
  primary_context_active = 708,
  context_is_destroyed = 709,
  not_permitted = 800,
  not_supported = 801,
  unknown = 999,
};

struct Context;
struct Stream;

// So many commands of a stream.
struct Mark {
  std::shared_ptr<Stream> stream;
  u64 count = 0;
};

struct Command {
  std::function<void()> work;
  std::vector<Mark> needs;
};

struct Stream {
  Context* context = nullptr;
  bool is_default = false;
  bool blocking = true;  // waits for the default stream, and that for it
  u64 enqueued = 0;
  u64 done = 0;
  std::deque<Command> commands;
  std::vector<Mark> needs;  // of the next command
};

struct Event {
  Context* context = nullptr;
  Mark mark;
  bool recorded = false;
  std::shared_ptr<double> time = std::make_shared<double>(0);
};

struct Module;

struct Function_ {
  Module* module = nullptr;
  Kernel* kernel = nullptr;
};

struct Module {
  Context* context = nullptr;
  Text text;
  std::vector<u8> const_bank;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::unique_ptr<Function_>> functions;
  std::vector<u64> variables;  // allocations
};

struct Context {
  int device = 0;
  u32 retained = 0;
  u32 flags = 0;
  int error = 0;  // stays
  std::shared_ptr<Stream> default_stream;
  std::vector<std::shared_ptr<Stream>> streams;  // those destroyed with work left, too
};

struct Injection {
  u64 calls_left;
  int result;
};

struct Driver {
  std::recursive_mutex mutex;
  bool initialised = false;
  bool in_host_function = false;
  int devices = 1;
  int capability = 80;
  int multiprocessors = 108;
  u64 seed = 0;
  u64 random = 1;
  u64 launches = 0;
  bool counting = false;
  std::unique_ptr<Memory> memory;
  std::vector<std::unique_ptr<Context>> contexts;  // primary ones, by device
  std::unordered_map<void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<void*, std::unique_ptr<Event>> events;
  std::unordered_map<void*, std::unique_ptr<Module>> modules;
  std::unordered_set<void*> functions;
  std::unordered_map<std::string, Injection> injections;
  std::unordered_map<std::string, u64> calls;
  std::string message;
  std::map<std::string, Counters> counters;  // of modules that are gone

  Driver();
  u64 next_random();
};

Driver& driver();
std::vector<Context*>& context_stack();

// Thrown by what the functions of the API call.
struct Failure {
  int result;
};

// Runs one function of the API: the lock, injections, errors that stay.
enum class Needs { nothing, init, context };
int call(const char* name, Needs needs, const std::function<int()>& body);
Context& current();
void report(const std::string& text);

// streams.cpp
std::shared_ptr<Stream> stream_of(void* handle);
void enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> work);
void run_until(const Mark& mark);
// All that a synchronize of the stream waits for; then the context's error.
int synchronize(const std::shared_ptr<Stream>& stream);
int synchronize(Context& context);
bool is_done(const std::shared_ptr<Stream>& stream);

// objects.cpp
void destroy_context(Context& context);
void unload(Module& module);
void keep_counters(const Kernel& kernel);
void add(Counters& sum, const Counters& more);

#define STANDIN_API extern "C" __attribute__((visibility("default")))

}  // namespace standin
