// Replicas shared out over the processes that mpirun started.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "rank/parallel/mpi_session.h"
#include "scheduler/config.h"
#include "scheduler/peers.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

class SessionPeers final : public scheduler::Peers {
 public:
  // Collective. All but process 0 leave signals to it. `tells_steps`: as Peers.
  SessionPeers(rank::MpiSession& session, bool tells_steps);
  std::uint32_t process() const override { return group_.process; }
  std::uint32_t size() const override { return group_.num_processes; }
  // Throws the UserError that another process met, RankLost where one has died, Over where process 0 is done.
  std::vector<std::string> exchange(std::string bytes) override;
  // The last exchange: this process has come to its end, with this exit status, or with a mistake; none where
  // another process has said so before. Returns the status of the first that ended.
  int end(int status, const std::string& mistake = "");

  // This process as one that stands in for all ranks of `deployment`.
  rank::ProcessGroup alone(const Deployment& deployment) const;
  struct Over {};

 private:
  std::vector<std::string> gather(const std::string& bytes);

  rank::MpiSession& session_;
  const rank::ProcessGroup group_;
  std::optional<int> status_;  // once a process has ended
};

// Whether process 0 has to serve all replicas, which a warning then says, naming the flag: where what
// replicas do decides what comes next, or is looked at pass by pass. `split`: prefill from decode.
bool serves_alone(const scheduler::Peers& peers, const ServerArgs& args, bool split,
                  const scheduler::LoadConfig& load, const scheduler::WorkloadOutline& workload);

// Called in every process with the same arguments. Process 0 calls `lead`, which prints and writes, the
// others `follow`, which goes through the same runs (Peers::exchange()) until process 0 has ended. Returns,
// in every process, the exit status of `lead`. Throws what the two throw: a UserError of one process in all
// of them; and RankLost where a process has died.
int share_replicas(const ServerArgs& args, rank::MpiSession& session,
                   const std::function<int(SessionPeers&)>& lead,
                   const std::function<void(SessionPeers&)>& follow);

}  // namespace tpsim::launch
