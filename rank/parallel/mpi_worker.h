// What every process but process 0 does: it carries out runs as they come, until process 0 shuts it down.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "rank/parallel/local_ranks.h"
#include "rank/parallel/mpi_session.h"

namespace tpsim::rank {

// The part of a run that this process prepares by itself, from the same command line as process 0.
struct WorkerRun {
  std::unique_ptr<WorkerRanks> ranks;
  // Of everything that decides prices; process 0's must be the same.
  std::uint64_t configuration_hash = 0;
};

// Returns the exit status that process 0 asks for. `make_run` is called at the start of each run with its
// index (0, 1, …). Whatever it or the run throws is told to process 0, which ends the job with it.
// REQUIRES: group.process > 0.
int run_worker(const ProcessGroup& group, const std::function<WorkerRun(std::uint32_t run_index)>& make_run);

}  // namespace tpsim::rank
