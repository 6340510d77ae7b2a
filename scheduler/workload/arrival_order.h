// Workloads whose requests are held in memory, put in order.
#pragma once

#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

// Puts requests in order of arrival (equal times keep their order), moves the first arrival to 0 and numbers
// sessions and namespaces by first appearance.
void sort_by_arrival(Workload& workload);

// Moves the first request to 0, and all others with it.
void start_at_zero(Workload& workload);

}  // namespace tpsim::scheduler
