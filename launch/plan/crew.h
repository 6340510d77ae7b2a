// The processes that mpirun started for a plan. Each goes through the whole search; what is many runs of
// settings is shared out over them and told to all, so that all decide alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "proto/plan.pb.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::launch {

class PlanCrew {
 public:
  // Collective. `session` must outlive it.
  explicit PlanCrew(rank::MpiSession& session);

  // Whether this process speaks and writes; the others leave signals to it.
  bool leads() const { return group_.process == 0; }
  // Cores for each process.
  std::uint32_t cores() const;

  // Work with a number each; the same number goes to the same process.
  using Work =
      std::function<void(const std::vector<std::size_t>& share, std::vector<proto::PlanTrial>& trials)>;
  // Every process does `work` for its share of the positions of `numbers`; returns the trials of all, in the
  // order of `numbers`. Collective. Throws, in every process, the first UserError that one threw; and in the
  // first process Stopped after a signal.
  std::vector<proto::PlanTrial> carry_out(const std::vector<std::uint32_t>& numbers, const Work& work) const;
  // The same for what the first process alone does: all go on, or none.
  void first_does(const std::function<void()>& work) const;

 private:
  const rank::ProcessGroup group_;
};

}  // namespace tpsim::launch
