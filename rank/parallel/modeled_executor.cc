#include "rank/parallel/modeled_executor.h"

#include <utility>

namespace tpsim::rank {

ModeledExecutor::ModeledExecutor(LocalRanks ranks) : ranks_(std::move(ranks)) {}

scheduler::StepOutcome ModeledExecutor::forward(const proto::ForwardBatch& batch) {
  const StepTimes times = ranks_.price(batch);
  ranks_.account(times.arrival);
  return {times.step_time(), times.host};
}

std::vector<proto::RankReport> ModeledExecutor::finish() { return ranks_.reports(); }

}  // namespace tpsim::rank
