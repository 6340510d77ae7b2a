// --goodput: the KEY:VALUE pairs of vLLM's serving benchmark, in milliseconds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scheduler/service_levels.h"

namespace tpsim::launch {

// Pairs in several words or separated by commas: "ttft:2000", "tpot:50", "e2e:30000" (or the benchmark's
// "e2el"). Throws UserError naming `flag`.
scheduler::ServiceLevels read_service_levels(std::string_view flag, const std::vector<std::string>& values);

// "ttft:2000 tpot:50".
std::string to_string(const scheduler::ServiceLevels& levels);

}  // namespace tpsim::launch
