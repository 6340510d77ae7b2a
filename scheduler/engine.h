// A whole run: a workload, offered as LoadConfig says, through the scheduler to an executor.
#pragma once

#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/records.h"
#include "scheduler/workload/streamed_workload.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

class Checkpoints;

// Runs `workload` to its end (or until the observer stops it) and returns the report's scheduler part:
// everything but names (backend, model, hardware, trace), ranks, calibration and server_args. What is held of
// the workload is what was sent and not answered, and what LoadGenerator reads ahead.
// `checkpoints`, of priced passes only: where the run leaves its state, and goes on from; null: nowhere.
// Throws UserError for a configuration that cannot be carried out, and whatever executor and workload throw.
proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints = nullptr);
// Of a workload in memory.
proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load, const Workload& workload,
                              Executor& executor, RunObserver& observer);

}  // namespace tpsim::scheduler
