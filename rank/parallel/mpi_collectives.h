// Collectives over the MPI processes of a deployment, with the very bits of LocalCollectives: each process
// adds up its slice of the elements from all ranks in rank order, and the slices are handed round.
//
// Waiting yields and then sleeps, so that eight processes on two cores do not spin against each other, and
// looks whether the others still exist.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rank/numeric/collectives.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

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

}  // namespace tpsim::rank
