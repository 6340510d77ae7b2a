// plan.json: what `tpsim plan` answered, for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "launch/flags/server_args.h"
#include "launch/plan/answer.h"
#include "launch/plan/gpu_types.h"

namespace tpsim::launch {

// `best` has the proposed setting of each of the `plans` in their order, then the others of each. REQUIRES:
// there is a plan.
nlohmann::ordered_json plan_json(const PlanQuestion& question, const ServerArgs& args,
                                 std::span<const GpuPlan> plans, std::span<const GpuRefusal> refusals);

}  // namespace tpsim::launch
