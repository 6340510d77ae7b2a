// What a server is asked before its run begins.
#pragma once

#include "scheduler/config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// LoadConfig::prompts_before, and copies of the first request of `workload`, as SGLang's serving benchmark
// warms a server up: at most 32 tokens long, all sent at once.
Workload warm_up_workload(const LoadConfig& offer, const StreamedWorkload& workload);

}  // namespace tpsim::scheduler
