// Which model of a fleet each request is for, where its router has several behind it (`--enable-igw`): what
// the trace says in `model`, or by the shares of the fleet file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/fleet/fleet.h"
#include "scheduler/workload/workload.h"

namespace tpsim::launch {

// Gives each model of `fleet` its replicas, as RouterConfig::models has them; empty unless the router tells
// models apart. Throws UserError for a workload whose requests do not say which model they are for, or name
// one that is not served.
std::vector<std::vector<std::uint32_t>> replicas_of_models(const Fleet& fleet,
                                                           const scheduler::WorkloadOutline& workload);

// `workload` with models drawn by the shares of the fleet, whole conversations at once; null where there is
// nothing to draw. `workload` and `fleet` must outlive it.
std::unique_ptr<scheduler::StreamedWorkload> with_models_drawn(const Fleet& fleet, std::uint64_t seed,
                                                               const scheduler::StreamedWorkload& workload);

}  // namespace tpsim::launch
