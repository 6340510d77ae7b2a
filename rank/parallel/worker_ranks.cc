#include "rank/parallel/worker_ranks.h"

namespace tpsim::rank {
namespace {

template <typename T>
void append(std::vector<char>& answer, const T& value) {
  const char* const bytes = reinterpret_cast<const char*>(&value);
  answer.insert(answer.end(), bytes, bytes + sizeof value);
}

}  // namespace

void PricedRanks::forward(const proto::ForwardBatch& batch, bool synchronous, std::vector<char>& answer) {
  const StepTimes local = ranks_.price(batch);
  if (batch.end_of_run()) return;
  if (synchronous) {
    append(answer, local);
    return;
  }
  const StepTimes slowest = ranks_.slowest_of_deployment();
  ranks_.account(slowest.arrival);
  append(answer, slowest.step_time());
}

}  // namespace tpsim::rank
