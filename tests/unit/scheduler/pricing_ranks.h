// Ranks without memory, which is fast: the time of a pass follows from its batch alone. The messages of
// several data-parallel ranks nobody follows.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/executor.h"

namespace tpsim::scheduler {

class PricingRanks : public Executor {
 public:
  explicit PricingRanks(const SchedulerConfig& config) : stages_(config.pipeline.size) {}
  StepOutcome forward(const proto::ForwardBatch& batch) override {
    double tokens = 1;
    for (const std::uint32_t length : batch.extend_lens()) tokens += length;
    const double seconds = 0.004 + 2e-5 * tokens;
    for (StageOutcome& stage : stages_) stage = {1e-5, seconds / static_cast<double>(stages_.size()), 2e-5};
    return {.step_time = seconds, .stages = stages_};
  }

 private:
  std::vector<StageOutcome> stages_;
};

}  // namespace tpsim::scheduler
