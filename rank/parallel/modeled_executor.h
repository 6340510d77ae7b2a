// All ranks of a deployment in this process; needs no MPI.
#pragma once

#include <vector>

#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/local_ranks.h"

namespace tpsim::rank {

class ModeledExecutor : public DeploymentExecutor {
 public:
  // REQUIRES: `ranks` are all ranks of the deployment.
  explicit ModeledExecutor(LocalRanks ranks);

  // The step takes as long as the slowest rank needs to arrive at the collectives, and the collectives.
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override;
  std::vector<proto::RankReport> finish() override;
  std::vector<RankGroup> rank_groups() const override { return ranks_.groups(); }
  void last_pass(std::vector<RankSeconds>& seconds) const override { ranks_.last_pass(seconds); }
  void save(StateWriter& state) override;
  void load(StateReader& state) override;

 private:
  LocalRanks ranks_;
};

}  // namespace tpsim::rank
