// Processes that run one fleet together. Each has the same sources and router and comes to the same; the i-th
// of n has the replicas i, i + n …, and tells the others what these did whenever the router looks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tpsim::scheduler {

class Peers {
 public:
  virtual ~Peers() = default;
  virtual std::uint32_t process() const = 0;  // of this one; 0 records the run
  virtual std::uint32_t size() const = 0;
  // The bytes of each, by process. Every process comes here as often, and waits for the others. Throws where
  // one of them is gone or has given up.
  virtual std::vector<std::string> exchange(const std::string& bytes) = 0;

  bool has(std::uint32_t replica) const { return replica % size() == process(); }
};

}  // namespace tpsim::scheduler
