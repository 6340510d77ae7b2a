// What a process does with batches for the ranks that it stands in for, as the loop of its messages
// (mpi_worker.h) sees it: pricing or computing.
#pragma once

#include <vector>

#include "proto/forward.pb.h"
#include "proto/report.pb.h"
#include "rank/parallel/local_ranks.h"

namespace tpsim::rank {

class WorkerRanks {
 public:
  virtual ~WorkerRanks() = default;
  // Carries out `batch` and appends to `answer` what process 0 wants to hear of it. `synchronous`: process 0
  // waits for the answer and sends outcome() afterwards.
  // Throws UserError for a batch that cannot be carried out.
  virtual void forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) = 0;
  // The slowest rank of the deployment arrived at `arrival` (seconds) in the batch before.
  virtual void outcome(double arrival) = 0;
  // One report per rank of this process, in rank order.
  virtual std::vector<proto::RankReport> reports() const = 0;
};

// Ranks that price their batches.
class PricedRanks : public WorkerRanks {
 public:
  explicit PricedRanks(LocalRanks ranks) : ranks_(std::move(ranks)) {}
  // The answer: one StepTimes where synchronous, else the step time of the slowest rank.
  void forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) override;
  void outcome(double arrival) override { ranks_.account(arrival); }
  std::vector<proto::RankReport> reports() const override { return ranks_.reports(); }

 private:
  LocalRanks ranks_;
};

}  // namespace tpsim::rank
