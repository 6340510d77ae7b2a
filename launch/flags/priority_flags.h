// Priorities of requests, and which give way where the pool is full.
#pragma once

#include <string_view>

#include "launch/cli/flag_set.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct PriorityArgs {
  scheduler::PriorityConfig priority;
  scheduler::RetractionPolicy retraction_policy = scheduler::RetractionPolicy::kLength;
};

void declare_priorities(FlagSet& flags, PriorityArgs& args);
void check_priorities(const PriorityArgs& args, scheduler::SchedulePolicy policy);

std::string_view to_string(scheduler::RetractionPolicy policy);

}  // namespace tpsim::launch
