// The workload that the flags name.
#pragma once

#include "launch/server_args.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Reads --trace, or makes the requests of --dataset-name. Throws UserError for a file that cannot be read.
scheduler::Workload load_workload(const ServerArgs& args);

// How it is offered: at the times of the trace, all at once for --dataset-name random, or by --request-rate.
scheduler::LoadConfig load_config(const ServerArgs& args);

}  // namespace tpsim::launch
