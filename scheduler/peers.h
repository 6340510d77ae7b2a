// Processes that run one fleet together. Each has the same sources and router and comes to the same; it has a
// share of the replicas, and tells the others what these did whenever the router looks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::scheduler {

class Peers {
 public:
  // `tells_steps`: process 0 hears of every pass, in the order of the run.
  explicit Peers(bool tells_steps) : tells_steps(tells_steps) {}
  virtual ~Peers() = default;
  virtual std::uint32_t process() const = 0;  // of this one; 0 records the run
  virtual std::uint32_t size() const = 0;
  // The bytes of each, by process. Every process comes here as often, and waits for the others. Throws where
  // one of them is gone or has given up.
  virtual std::vector<std::string> exchange(std::string bytes) = 0;

  const bool tells_steps;

  // Which process has a replica. They take turns; to hear of a pass of any replica costs process 0 a fifth of
  // serving it, to hear of requests alone a fiftieth, so that it serves fewer: a share s with s + 1/5 =
  // (1 - s) / (size - 1), or none.
  std::uint32_t owner_of(std::uint32_t replica) const {
    const std::uint64_t processes = size(), cost = tells_steps ? 5 : 50;  // its reciprocal
    const std::uint64_t part = processes <= cost ? cost + 1 - processes : 0, of = cost * processes;
    const auto before = [&](std::uint64_t i) { return (2 * part * i + of) / (2 * of); };  // of process 0
    const std::uint64_t first = before(replica);
    if (processes == 1 || before(std::uint64_t{replica} + 1) > first) return 0;
    return static_cast<std::uint32_t>(1 + (replica - first) % (processes - 1));
  }
  bool has(std::uint32_t replica) const { return owner_of(replica) == process(); }
};

}  // namespace tpsim::scheduler
