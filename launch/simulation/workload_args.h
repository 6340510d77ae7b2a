// The workload that the flags name.
#pragma once

#include <memory>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// --trace, which is read through for its mistakes, or the requests of --dataset-name, made or sampled. Throws
// UserError for a file that cannot be read, and for flags that it has no use for.
std::unique_ptr<scheduler::StreamedWorkload> load_workload(const ServerArgs& args);

// How it is offered: at the times of the trace, all at once where a dataset has none, or by --request-rate.
// Its requests pass the deployment's router, where there is one, and SGLang's HTTP server, which runs on its
// host, as --front-end says.
scheduler::LoadConfig load_config(const ServerArgs& args, const Deployment& deployment,
                                  const scheduler::WorkloadOutline& workload);

}  // namespace tpsim::launch
