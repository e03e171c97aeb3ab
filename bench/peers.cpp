#include "peers.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

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

}  // namespace octavo::bench
