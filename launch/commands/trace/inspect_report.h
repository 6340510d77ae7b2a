// What `tpsim trace inspect` prints.
#pragma once

#include <string>

#include "scheduler/workload/statistics.h"

namespace tpsim::launch {

// For a terminal: a table of lengths, the best hit rates and a bar for each interval of time.
std::string inspect_text(const scheduler::WorkloadStatistics& statistics);

// The same figures as one JSON object, unrounded.
std::string inspect_json(const scheduler::WorkloadStatistics& statistics);

}  // namespace tpsim::launch
