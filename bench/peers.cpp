#include "peers.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

namespace octavo::bench {
namespace {

// PyTorch first: what it brings along is newer than what the system has.
constexpr const char* plugin_names[] = {"torch", "dnnl", "xnnpack", "onnxruntime"};

Peer load(const std::string& name) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto path = here / ("libpeer_" + name + ".so");
  Peer peer;
  peer.name = name;
  if (const char* only = std::getenv("OCTAVO_BENCH_PEER"); only != nullptr && name != only) {
    peer.why = "left out by OCTAVO_BENCH_PEER";
    return peer;
  }
  if (!std::filesystem::exists(path)) {
    peer.why = "not built";
    return peer;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) {
    peer.why = dlerror();
    return peer;
  }
  const auto entry =
      reinterpret_cast<octavo_peer_entry_function>(dlsym(library, OCTAVO_PEER_SYMBOL));
  peer.entry = entry ? entry() : nullptr;
  if (!peer.entry) peer.why = "does not work on this machine";
  return peer;
}

}  // namespace

const std::vector<Peer>& peers() {
  static const std::vector<Peer> all = [] {
    std::vector<Peer> loaded;
    for (const char* name : plugin_names) loaded.push_back(load(name));
    return loaded;
  }();
  return all;
}

namespace {
template <class Problem>
std::vector<PeerTask> make_tasks(const Problem& problem,
                                 void* (*octavo_peer::*make)(const Problem*)) {
  std::vector<PeerTask> tasks;
  for (const auto& peer : peers()) {
    void* task = peer.entry ? (peer.entry->*make)(&problem) : nullptr;
    if (task) tasks.push_back({peer.entry, std::shared_ptr<void>(task, peer.entry->destroy)});
  }
  return tasks;
}
}  // namespace

std::vector<PeerTask> peer_tasks(const octavo_peer_elementwise& problem) {
  return make_tasks(problem, &octavo_peer::elementwise);
}

std::vector<PeerTask> peer_tasks(const octavo_peer_linear& problem) {
  return make_tasks(problem, &octavo_peer::linear);
}

std::vector<PeerTask> peer_tasks(const octavo_peer_groups& problem) {
  return make_tasks(problem, &octavo_peer::groups);
}

std::vector<PeerTask> peer_tasks(const octavo_peer_floats& problem) {
  return make_tasks(problem, &octavo_peer::floats);
}

void compare_results(const std::string& case_name, std::span<const float> expected,
                     const std::vector<PeerTask>& tasks) {
  constexpr float allowed = 0.03F;  // of the largest element
  for (const auto& task : tasks) {
    const auto* got = static_cast<const float*>(task.run());
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      const float difference = std::abs(expected[i] - got[i]);
      if (!(difference <= worst)) worst = difference;  // (a NaN stays)
    }
    if (!(worst <= allowed * largest))
      std::fprintf(stderr, "%s: %s differs by up to %g of the largest element\n", case_name.c_str(),
                   task.peer->name, worst / largest);
  }
}

void name_absent(const std::string& operation, std::initializer_list<const char*> names,
                 const std::vector<PeerTask>& tasks) {
  static std::set<std::pair<std::string, std::string>> named;
  for (const Peer& peer : peers()) {
    const auto is_it = [&](const char* name) { return peer.name == name; };
    if (std::none_of(names.begin(), names.end(), is_it)) continue;
    const auto has_it = [&](const PeerTask& task) { return task.peer == peer.entry; };
    if (peer.entry && std::any_of(tasks.begin(), tasks.end(), has_it)) continue;
    if (!named.emplace(operation, peer.name).second) continue;
    std::fprintf(stderr, "%s: %s is not there: %s\n", operation.c_str(), peer.name.c_str(),
                 peer.entry ? "it has no such operation" : peer.why.c_str());
  }
}

}  // namespace octavo::bench
