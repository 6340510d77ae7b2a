// Which measured loads a run is like, for its error bands.
#pragma once

#include <string>

#include "launch/deployment/deployment.h"
#include "launch/flags/server_args.h"
#include "proto/report.pb.h"
#include "scheduler/workload/streamed_workload.h"

namespace tpsim::launch {

// `report`: of the run that served `workload`. Flags that pace the steps of all kernels alike (data-parallel
// attention, pipeline stages, no overlap, no graphs, mixed chunks) follow the backend's name.
proto::LoadTraits traits_of(const ServerArgs& args, const Deployment& deployment,
                            const scheduler::WorkloadOutline& workload, const proto::RunReport& report);

// Why the measured loads of its GPU and model family do not speak for the run, a sentence; empty: they do.
// Kernels that take much of a step (attention, matrix products, experts, the all-reduce) have no measurement
// on this GPU, or more than a tenth of the time was spent in steps beyond the shapes that were measured.
std::string carried_over(const proto::RunReport& report);

}  // namespace tpsim::launch
