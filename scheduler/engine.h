// A whole run: a workload, offered as LoadConfig says, through the scheduler to an executor.
#pragma once

#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Runs `workload` to its end (or until the observer stops it) and returns the report's scheduler part:
// everything but names (backend, model, hardware, trace), ranks, calibration and server_args.
// Throws UserError for a configuration that cannot be carried out, and whatever the executor throws.
proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load, const Workload& workload,
                              Executor& executor, RunObserver& observer);

}  // namespace tpsim::scheduler
