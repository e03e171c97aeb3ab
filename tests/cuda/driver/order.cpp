// The order of a function's blocks. Lanes that stand at the least instruction go on, so that those
// who took another way are waited for where ways meet again: if what comes later in the text is
// never before what must wait for it. A compiler may put a loop's last block in front of the loop,
// or its exit within.
#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "tests/cuda/driver/ptx.hpp"

namespace standin {
namespace {

struct Part {
  u32 first = 0;  // statements
  u32 last = 0;
  std::vector<int> next;
  int falls_to = -1;
};

bool is_jump(const Statement& s) {
  return s.opcode.starts_with("bra") || s.opcode == "ret" || s.opcode == "ret.uni" ||
         s.opcode == "exit";
}

class Order {
 public:
  explicit Order(const Function& f) {
    const auto size = static_cast<u32>(f.body.size());
    std::set<u32> leaders{0};
    for (const auto& [name, at] : f.labels) leaders.insert(at);
    for (u32 i = 0; i < size; ++i)
      if (is_jump(f.body[i])) leaders.insert(i + 1);
    leaders.erase(size);
    for (const u32 at : leaders) {
      part_at_[at] = static_cast<int>(parts_.size());
      parts_.push_back({at, size, {}, -1});
    }
    for (std::size_t i = 0; i + 1 < parts_.size(); ++i) parts_[i].last = parts_[i + 1].first;
    for (Part& p : parts_) {
      const Statement& s = f.body[p.last - 1];
      const bool jumps = is_jump(s);
      if (s.opcode.starts_with("bra") && !s.operands.empty()) {
        const auto label = f.labels.find(s.operands[0].name);
        if (label != f.labels.end() && part_at_.contains(label->second))
          p.next.push_back(part_at_.at(label->second));
      }
      if ((!jumps || s.guard >= 0) && p.last < size) {
        p.falls_to = part_at_.at(p.last);
        p.next.push_back(p.falls_to);
      }
    }
  }

  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] std::vector<int> find() {
    std::vector<int> all;
    for (std::size_t i = 0; i < parts_.size(); ++i) all.push_back(static_cast<int>(i));
    std::vector<int> order;
    lay_out(all, -1, order);
    return order;
  }

 private:
  // Loops stay together, and nothing stands before what leads to it; ways back to `header` do not
  // count.
  void lay_out(const std::vector<int>& nodes, int header, std::vector<int>& order) {
    const std::set<int> inside(nodes.begin(), nodes.end());
    std::map<int, int> group;  // strongly connected parts, by Tarjan
    std::map<int, int> index;
    std::map<int, int> low;
    std::vector<int> stack;
    std::set<int> on_stack;
    int groups = 0;
    const auto next_of = [&](int v) {
      std::vector<int> list;
      for (const int n : parts_[static_cast<std::size_t>(v)].next)
        if (n != header && inside.contains(n)) list.push_back(n);
      return list;
    };
    const auto visit = [&](auto&& self, int v) -> void {
      index[v] = low[v] = static_cast<int>(index.size());
      stack.push_back(v);
      on_stack.insert(v);
      for (const int n : next_of(v)) {
        if (!index.contains(n)) {
          self(self, n);
          low[v] = std::min(low[v], low[n]);
        } else if (on_stack.contains(n)) {
          low[v] = std::min(low[v], index[n]);
        }
      }
      if (low[v] != index[v]) return;
      for (;;) {
        const int n = stack.back();
        stack.pop_back();
        on_stack.erase(n);
        group[n] = groups;
        if (n == v) break;
      }
      ++groups;
    };
    for (const int v : nodes)
      if (!index.contains(v)) visit(visit, v);

    std::vector<std::vector<int>> members(static_cast<std::size_t>(groups));
    std::vector<int> waits_for(static_cast<std::size_t>(groups), 0);
    for (const int v : nodes) members[static_cast<std::size_t>(group[v])].push_back(v);
    for (const int v : nodes)
      for (const int n : next_of(v))
        if (group[n] != group[v]) ++waits_for[static_cast<std::size_t>(group[n])];
    // The first in the text of those that may come.
    using Ready = std::pair<int, int>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto add = [&](int g) { ready.push({members[static_cast<std::size_t>(g)].front(), g}); };
    for (int g = 0; g < groups; ++g)
      if (waits_for[static_cast<std::size_t>(g)] == 0) add(g);
    while (!ready.empty()) {
      const auto& own = members[static_cast<std::size_t>(ready.top().second)];
      ready.pop();
      const bool loops =
          own.size() > 1 || std::ranges::count(next_of(own.front()), own.front()) > 0;
      if (loops) {
        lay_out(own, header_of(own), order);
      } else {
        order.push_back(own.front());
      }
      for (const int v : own)
        for (const int n : next_of(v))
          if (group[n] != group[v] && --waits_for[static_cast<std::size_t>(group[n])] == 0)
            add(group[n]);
    }
  }

  // Where a loop is entered: from what is outside of it.
  [[nodiscard]] int header_of(const std::vector<int>& loop) const {
    const std::set<int> own(loop.begin(), loop.end());
    if (own.contains(0)) return 0;
    for (const int v : loop)
      for (std::size_t from = 0; from < parts_.size(); ++from)
        if (!own.contains(static_cast<int>(from)))
          for (const int n : parts_[from].next)
            if (n == v) return v;
    return loop.front();
  }

  std::vector<Part> parts_;
  std::map<u32, int> part_at_;
};

}  // namespace

void order_parts(Function& f) {
  if (f.body.empty() || !is_jump(f.body.back()) || f.body.back().guard >= 0) return;
  Order order(f);
  const std::vector<Part>& parts = order.parts();
  const std::vector<int> found = order.find();
  std::vector<Statement> body;
  std::vector<u32> begins(parts.size());
  std::vector<std::pair<std::size_t, int>> added;  // a jump, to the part that stood behind
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Part& p = parts[static_cast<std::size_t>(found[i])];
    begins[static_cast<std::size_t>(found[i])] = static_cast<u32>(body.size());
    for (u32 at = p.first; at < p.last; ++at) body.push_back(f.body[at]);
    if (p.falls_to < 0 || (i + 1 < found.size() && found[i + 1] == p.falls_to)) continue;
    Statement jump;
    jump.line = body.back().line;
    jump.opcode = "bra.uni";
    added.emplace_back(body.size(), p.falls_to);
    body.push_back(jump);
  }
  std::map<u32, u32> moved;
  for (std::size_t i = 0; i < parts.size(); ++i) moved[parts[i].first] = begins[i];
  for (auto& [name, at] : f.labels)
    at = at < f.body.size() ? moved.at(at) : static_cast<u32>(body.size());
  for (const auto& [at, to] : added) {
    Operand label;
    label.kind = Kind::label;
    label.name = "$part" + std::to_string(to);
    f.labels[label.name] = begins[static_cast<std::size_t>(to)];
    body[at].operands.push_back(label);
  }
  f.body = std::move(body);
}

}  // namespace standin
