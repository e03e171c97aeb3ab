// The libraries we are compared with. Each is a plugin beside the program, loaded with its symbols
// kept to itself: two of them carry their own copies of the same libraries.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness.hpp"
#include "peers/peer.h"

namespace octavo::bench {

struct Peer {
  std::string name;                    // of the plugin
  const octavo_peer* entry = nullptr;  // null: absent
  std::string why;                     // it is absent
};

// All of them, loaded once.
const std::vector<Peer>& peers();

// A peer's task that is freed with its last copy.
struct PeerTask {
  const octavo_peer* peer = nullptr;
  std::shared_ptr<void> task;
  [[nodiscard]] const void* run() const { return peer->run(task.get()); }
};

// The tasks of all peers that have the operation.
std::vector<PeerTask> peer_tasks(const octavo_peer_elementwise& problem);
std::vector<PeerTask> peer_tasks(const octavo_peer_linear& problem);
std::vector<PeerTask> peer_tasks(const octavo_peer_groups& problem);
std::vector<PeerTask> peer_tasks(const octavo_peer_floats& problem);

// Peers must do the same work to be compared with: says so on standard error if one does not. Some
// have one scale for all rows and round in another order, so equal bits are not asked for.
void compare_results(const std::string& case_name, std::span<const float> expected,
                     const std::vector<PeerTask>& tasks);

// Says on standard error, once for each, which of the peers named are not among the tasks.
// `operation` is what they were asked to do.
void name_absent(const std::string& operation, std::initializer_list<const char*> names,
                 const std::vector<PeerTask>& tasks);

}  // namespace octavo::bench
