// What a router has sent to each replica and not heard the end of (sglang_router's WorkerLoadGuard).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tpsim::scheduler {

class InFlight {
 public:
  // `sessions`: they are counted, too.
  InFlight(std::size_t replicas, bool sessions) : requests_(replicas), sessions_(sessions ? replicas : 0) {}

  std::span<const std::uint64_t> requests() const { return requests_; }
  // Conversations that some of them are of.
  std::uint64_t sessions(std::size_t replica) const { return sessions_[replica].size(); }
  // `session`: of the request; 0: none.
  void add(std::size_t replica, std::uint32_t session) {
    ++requests_[replica];
    if (session != 0 && !sessions_.empty()) ++sessions_[replica][session];
  }
  void remove(std::size_t replica, std::uint32_t session) {
    --requests_[replica];
    if (sessions_.empty()) return;
    const auto found = sessions_[replica].find(session);
    if (found != sessions_[replica].end() && --found->second == 0) sessions_[replica].erase(found);
  }
  void clear(std::size_t replica) {
    requests_[replica] = 0;
    if (!sessions_.empty()) sessions_[replica].clear();
  }

 private:
  std::vector<std::uint64_t> requests_;
  std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> sessions_;  // requests of each
};

}  // namespace tpsim::scheduler
