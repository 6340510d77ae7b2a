// A whole run: a workload, offered as LoadConfig says, through the scheduler to an executor.
#pragma once

#include <functional>
#include <string_view>

#include "proto/base/archive.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/fleet.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Where a run leaves its state now and then, to be gone on with after the process was killed.
class Checkpoints {
 public:
  virtual ~Checkpoints() = default;

  // State that a run of the same configuration, load and workload left; empty: the run begins at its
  // beginning. Valid until read_rest().
  virtual std::string_view resumed() = 0;
  // After the run has read its own part: what else save() added.
  virtual void read_rest(StateReader& state) = 0;

  // Asked between two events. Whether the run should leave its state now.
  virtual bool due() = 0;
  // The state is put away: what `write_run` writes, the run's part, and what else goes on with it (executor,
  // records). Throws UserError where a run could not be gone on with.
  virtual void save(const std::function<void(StateWriter&)>& write_run) = 0;
};

// Runs `workload` to its end (or until the observer stops it) and returns the report's scheduler part:
// everything but names (backend, model, hardware, trace), ranks, calibration and server_args. What is held of
// the workload is what was sent and not answered, and what LoadGenerator reads ahead.
// `checkpoints`, of priced passes only: where the run leaves its state, and goes on from; null: nowhere.
// Throws UserError for a configuration that cannot be carried out, and whatever executor and workload throw.
proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints = nullptr);

// The same through a fleet; load.router says which of `servers` a request is sent to, load.decode_router
// which of `decode`. Of several processes, each has to come here; the report is that of process 0.
// REQUIRES: at least one server; one in all where there are checkpoints; where there are peers, a load that
// comes_by_itself(), several servers, none of which decode only, and priced passes.
proto::RunReport run_workload(const Fleet& fleet, const LoadConfig& load, const StreamedWorkload& workload,
                              RunObserver& observer, Checkpoints* checkpoints = nullptr);

}  // namespace tpsim::scheduler
