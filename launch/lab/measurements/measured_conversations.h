// Loads of conversations: each turn's prompt is the one before it, its answer, and new tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "launch/lab/measurements/measured_requests.h"

namespace tpsim::launch {

struct MeasuredTurn {
  MeasuredRequest request;
  std::uint32_t conversation = 0, turn = 0;
};

// The prompts of `turns` in the order of their numbers. `timed`: conversations begin when they did, and each
// turn follows the answer before it as long after as it did; else all are at 0.
scheduler::Workload replay_turns(std::vector<MeasuredTurn> turns, bool timed, const MeasuredLoad& load);

}  // namespace tpsim::launch
