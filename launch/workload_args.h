// The workload that the flags name.
#pragma once

#include "launch/server_args.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Reads --trace, or makes or samples the requests of --dataset-name. Throws UserError for a file that cannot
// be read, and for flags that it has no use for.
scheduler::Workload load_workload(const ServerArgs& args);

// How it is offered: at the times of the trace, all at once where a dataset has none, or by --request-rate.
// Its requests pass SGLang's HTTP server as --front-end says.
scheduler::LoadConfig load_config(const ServerArgs& args, const scheduler::Workload& workload);

}  // namespace tpsim::launch
