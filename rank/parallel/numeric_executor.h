// The executor of process 0 where batches are really computed: the clock is the wall clock.
//
// With other processes, each batch goes to all of them and all compute it together; they meet in the
// collectives of the forward pass, so nothing has to be answered but the end of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/numeric_ranks.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::rank {

class NumericExecutor : public DeploymentExecutor {
 public:
  // Begins the next run of `link`; null: `ranks` are all ranks of the deployment. `make_ranks` is called once
  // the others know of the run: building ranks may need them all.
  NumericExecutor(WorkerLink* link, std::uint64_t configuration_hash,
                  const std::function<std::unique_ptr<NumericRanks>()>& make_ranks);
  NumericExecutor(const NumericExecutor&) = delete;
  NumericExecutor& operator=(const NumericExecutor&) = delete;
  // Without finish(), the run is given up.
  ~NumericExecutor() override;

  // Throws Stopped where a signal came in mid-pass: the pass is dropped, and nothing but finish() may follow.
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override;
  // Of all ranks; after Stopped, of those of this process.
  std::vector<proto::RankReport> finish() override;

 private:
  WorkerLink* link_;
  std::unique_ptr<NumericRanks> ranks_;
  bool given_up_ = false;
};

}  // namespace tpsim::rank
