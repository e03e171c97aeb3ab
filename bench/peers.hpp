// The libraries we are compared with. Each is a plugin beside the program, loaded with its symbols
// kept to itself: two of them carry their own copies of the same libraries.
#pragma once

#include <memory>
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

}  // namespace octavo::bench
