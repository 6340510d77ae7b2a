// The executor of process 0 where a deployment is spread over several MPI processes.
//
// Every process receives every batch and prices its own ranks. Streamed (the default): process 0 knows every
// rank's shape and slowdown, so it prices the slowest itself and goes on while batches travel packed; every
// process returns the step times that it worked out, and process 0 compares them bit for bit. Synchronous:
// each step waits for all processes, and the slowest answer counts.
//
// Results and reports are the same, byte for byte, in both ways and for any number of processes.
#pragma once

#include <cstdint>
#include <vector>

#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/local_ranks.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::rank {

class MpiExecutor : public DeploymentExecutor {
 public:
  // Begins the next run of `link`. `ranks` are those of process 0; streamed runs REQUIRE identical shards.
  // `configuration_hash` must be the same in every process (see run_worker).
  MpiExecutor(WorkerLink& link, LocalRanks ranks, std::uint64_t configuration_hash);
  MpiExecutor(const MpiExecutor&) = delete;
  MpiExecutor& operator=(const MpiExecutor&) = delete;
  // Without finish(), the run is given up; the link can begin another or shut down.
  ~MpiExecutor() override;

  // Throws UserError for a batch that cannot be carried out or processes that disagree, RankLost where a
  // process is silent.
  scheduler::StepOutcome forward(const proto::ForwardBatch& batch) override;
  std::vector<proto::RankReport> finish() override;
  std::vector<RankGroup> rank_groups() const override { return ranks_.groups(); }
  void last_pass(std::vector<RankSeconds>& seconds) const override { ranks_.last_pass(seconds); }

 private:
  scheduler::StepOutcome forward_streamed(const proto::ForwardBatch& batch);
  scheduler::StepOutcome forward_synchronous(const proto::ForwardBatch& batch);
  void on_answer(std::uint32_t process, std::uint64_t message, const AnswerHead& head,
                 std::span<const char> payload);
  void compare(std::uint32_t process, const AnswerHead& head, const std::vector<double>& expected,
               std::span<const char> payload) const;

  WorkerLink& link_;
  LocalRanks ranks_;
  // Streamed: the step times of the messages that are under way, by message number modulo their count.
  std::vector<std::vector<double>> expected_;
  StepTimes slowest_;  // synchronous: of the answers to the step under way
};

}  // namespace tpsim::rank
