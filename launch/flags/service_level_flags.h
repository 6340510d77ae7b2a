// --goodput, with the KEY:VALUE pairs of vLLM's serving benchmark in milliseconds, and the search by it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/flags/load_flags.h"
#include "scheduler/records.h"

namespace tpsim::launch {

struct ServiceLevelArgs {
  scheduler::ServiceLevels goodput;
  bool max_goodput_rate = false;
  std::optional<double> goodput_share;  // default 0.99
};

void declare_service_levels(FlagSet& flags, ServiceLevelArgs& args);
void check_service_levels(const ServiceLevelArgs& args, const LoadArgs& load, bool numeric);

// Pairs in several words or separated by commas: "ttft:2000", "tpot:50", "e2e:30000" (or the benchmark's
// "e2el"). Throws UserError naming `flag`.
scheduler::ServiceLevels read_service_levels(std::string_view flag, const std::vector<std::string>& values);

// "ttft:2000 tpot:50".
std::string to_string(const scheduler::ServiceLevels& levels);

}  // namespace tpsim::launch
