// Numeric execution by several processes: the collectives between their ranks, and the executor of process 0.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rank/numeric/collectives.h"
#include "rank/parallel/deployment_executor.h"
#include "rank/parallel/mpi_session.h"
#include "rank/parallel/numeric_ranks.h"
#include "rank/parallel/worker_link.h"

namespace tpsim::rank {

// Collectives over the MPI processes of a deployment, with the very bits of LocalCollectives: each process
// adds up its slice of the elements from all ranks in rank order, and the slices are handed round.
//
// Waiting yields and then sleeps, so that eight processes on two cores do not spin against each other, and
// looks whether the others still exist.
class MpiCollectives : public Collectives {
 public:
  // Collective: every process of `group` makes one at the same time.
  explicit MpiCollectives(const ProcessGroup& group);
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;
  ~MpiCollectives() override;

  std::uint32_t tp_size() const override { return group_.tp_size; }
  std::uint32_t first_rank() const override { return group_.first_rank(group_.process); }
  std::uint32_t num_ranks() const override { return group_.ranks_per_process(); }

  // Called now and then while waiting; what it throws ends the wait.
  void set_while_waiting(std::function<void()> hook) { while_waiting_ = std::move(hook); }

  // Throws RankLost where a process is gone, Stopped where a signal asks to stop.
  void all_reduce(std::span<const float* const> parts, std::uint64_t count, float* out) override;
  void all_gather(std::span<const float* const> parts, std::uint32_t rows, std::uint32_t columns,
                  float* out) override;
  void all_to_all(const Messages& sent, Messages& received) override;

 private:
  // What every process has for every other, in their order: send_counts_[p] and receive_counts_[p] elements.
  void exchange(const void* from, void* to, MPI_Datatype type);
  void wait(MPI_Request& request);
  void look_around() const;
  std::uint64_t slice_begin(std::uint64_t count, std::uint32_t process) const {
    return count * process / group_.num_processes;
  }

  const ProcessGroup group_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::function<void()> while_waiting_;
  std::vector<float> sent_, received_;
  std::vector<const float*> views_;
  std::vector<int> send_counts_, send_offsets_, receive_counts_, receive_offsets_;
};

// The executor of process 0 where batches are really computed: the clock is the wall clock.
//
// With other processes, each batch goes to all of them and all compute it together; they meet in the
// collectives of the forward pass, so nothing has to be answered but the end of the run.
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
