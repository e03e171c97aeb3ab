// What the plugins share: a task is a function that does the work and returns its output.
#pragma once

#include <exception>
#include <functional>

#include "octavo/dtype.hpp"
#include "octavo/sku.hpp"
#include "peers/peer.h"

#define OCTAVO_PEER_EXPORT extern "C" __attribute__((visibility("default")))

namespace octavo::bench {

using Task = std::function<const void*()>;
using Elementwise = octavo_peer_elementwise;
using Linear = octavo_peer_linear;
using Groups = octavo_peer_groups;
using Floats = octavo_peer_floats;

inline Op op_of(const Elementwise& e) { return static_cast<Op>(e.op); }
inline DType real_of(const Elementwise& e) { return static_cast<DType>(e.real); }
inline DType integer_of(const Elementwise& e) { return static_cast<DType>(e.integer); }

// Makes a task that works: what a library refuses, when asked or when first run, it does not have.
template <class Problem, Task make(const Problem&)>
void* make_task(const Problem* problem) {
  try {
    Task task = make(*problem);
    if (!task || !task()) return nullptr;
    return new Task(std::move(task));
  } catch (const std::exception&) {
    return nullptr;
  }
}
inline const void* run_task(void* task) { return (*static_cast<Task*>(task))(); }
inline void destroy_task(void* task) { delete static_cast<Task*>(task); }

// What a library lacks altogether.
template <class Problem>
Task no_task(const Problem&) {
  return {};
}

template <Task elementwise(const Elementwise&), Task linear(const Linear&),
          Task groups(const Groups&) = no_task, Task floats(const Floats&) = no_task>
constexpr octavo_peer make_peer(const char* name, const char* version) {
  return {.name = name,
          .version = version,
          .elementwise = make_task<Elementwise, elementwise>,
          .linear = make_task<Linear, linear>,
          .groups = make_task<Groups, groups>,
          .floats = make_task<Floats, floats>,
          .run = run_task,
          .destroy = destroy_task};
}

}  // namespace octavo::bench
