// The processes of one command: process 0 schedules, the others stand in for their ranks until it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "launch/deployment/deployment.h"
#include "launch/deployment/numeric_execution.h"
#include "launch/flags/server_args.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/worker_link.h"
#include "scheduler/engine.h"
#include "scheduler/peers.h"

namespace tpsim::launch {

// What process 0 has to carry out batches with.
class Stage {
 public:
  Stage(const ServerArgs& args, const rank::ProcessGroup& group, rank::WorkerLink* link,
        NumericStage* numeric)
      : args_(args), group_(group), link_(link), numeric_(numeric) {}
  // Of priced replicas that are shared out: this process stands in for all ranks of its own. `group`: of it
  // alone.
  Stage(const ServerArgs& args, const rank::ProcessGroup& group, scheduler::Peers& peers)
      : args_(args), group_(group), peers_(&peers) {}

  const ServerArgs& args() const { return args_; }
  const rank::ProcessGroup& group() const { return group_; }
  // Whether this process stands in for all ranks.
  bool alone() const { return link_ == nullptr; }
  // Processes that go through the same runs and share out their replicas; null: this one has all.
  scheduler::Peers* peers() const { return peers_; }
  // Begins the next run; runs come in the order of the deployments. `return_logits`: of numeric execution.
  std::unique_ptr<rank::DeploymentExecutor> make_executor(const Deployment& deployment,
                                                          bool return_logits = false) const;
  // For process 0 while it has nothing to wait for. Throws RankLost where one of the others has died.
  void check_alive() const;

 private:
  const ServerArgs& args_;
  const rank::ProcessGroup& group_;
  rank::WorkerLink* link_ = nullptr;  // null: this process stands in for all ranks
  NumericStage* numeric_ = nullptr;   // null: modeled
  scheduler::Peers* peers_ = nullptr;
};

// Replicas whose passes are priced in this process: all of a deployment, or those that are added.
class PricedReplicas {
 public:
  // `deployment` must outlive it. `first`: carries out what the first one runs, of which there is no other.
  // `threads`, `peers`: that run them, as Fleet has it.
  explicit PricedReplicas(const Deployment& deployment, scheduler::Executor* first = nullptr,
                          std::uint32_t threads = 1, scheduler::Peers* peers = nullptr);
  // None yet.
  explicit PricedReplicas(std::uint32_t threads = 1, scheduler::Peers* peers = nullptr) {
    fleet_.threads = threads;
    fleet_.peers = peers;
  }
  // `count` servers more, of another deployment behind a front end of its own; both must outlive it.
  void add(const Deployment& deployment, std::uint32_t count, const scheduler::FrontEndConfig& front_end);
  const scheduler::Fleet& fleet() const { return fleet_; }
  // Those of its own; null: another process has it.
  std::span<const std::unique_ptr<rank::ModeledExecutor>> executors() const { return executors_; }
  // What the ranks of all replicas did, in their order; those of the first say `first()`, where it is given.
  // As DeploymentExecutor::finish(), of all processes, for process 0.
  std::vector<proto::RankReport> finish(rank::DeploymentExecutor* first = nullptr) const;
  // What each replica is one of, in their order.
  std::span<const Deployment* const> deployments() const { return deployments_; }

 private:
  void add(const Deployment& deployment, std::uint32_t count, const scheduler::FrontEndConfig* front_end,
           std::vector<scheduler::FleetServer>& to);

  std::vector<std::unique_ptr<rank::ModeledExecutor>> executors_;
  std::vector<const Deployment*> deployments_;
  scheduler::Fleet fleet_;
};

// Threads that run the replicas of one setting: --jobs, by default the cores of a process of `group`; one
// where the settings of a sweep share these, and for a trace, which looks at every pass when it is over.
std::uint32_t replica_threads(const ServerArgs& args, const rank::ProcessGroup& group = {});

// Called in every process with the same arguments. Process 0 calls `schedule`, whose exit status all
// processes return. Throws what `schedule` throws, and UserError for a wrong number of processes.
int run_on_ranks(const ServerArgs& args, const std::vector<Deployment>& deployments,
                 rank::MpiSession& session, const std::function<int(const Stage&)>& schedule);

// The same in a group of processes, of several perhaps; called in each of them. Its tp_size is the number of
// ranks of `deployments`.
int run_on_group(const ServerArgs& args, std::span<const Deployment> deployments, rank::MpiSession& session,
                 const rank::ProcessGroup& group, const std::function<int(const Stage&)>& schedule);

}  // namespace tpsim::launch
