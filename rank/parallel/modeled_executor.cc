#include "rank/parallel/modeled_executor.h"

#include <utility>

#include "proto/base/archive.h"

namespace tpsim::rank {

ModeledExecutor::ModeledExecutor(LocalRanks ranks) : ranks_(std::move(ranks)) {}

scheduler::StepOutcome ModeledExecutor::forward(const proto::ForwardBatch& batch) {
  const StepTimes times = ranks_.price(batch);
  ranks_.account(times.arrival);
  scheduler::StepOutcome outcome = times.outcome();
  outcome.stages = ranks_.stages();
  return outcome;
}

std::vector<proto::RankReport> ModeledExecutor::finish() { return ranks_.reports(); }

void ModeledExecutor::save(StateWriter& state) { state(ranks_); }

void ModeledExecutor::load(StateReader& state) { state(ranks_); }

}  // namespace tpsim::rank
