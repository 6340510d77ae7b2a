// A whole run: a workload, offered as LoadConfig says, through the scheduler to an executor.
#pragma once

#include "proto/report.pb.h"
#include "scheduler/checkpoints.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/fleet.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

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
