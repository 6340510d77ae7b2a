#include "rank/parallel/numeric_executor.h"

#include "proto/base/stop_flag.h"
#include "rank/parallel/deployment_executor.h"

namespace tpsim::rank {

NumericExecutor::NumericExecutor(WorkerLink* link, std::uint64_t configuration_hash,
                                 const std::function<std::unique_ptr<NumericRanks>()>& make_ranks)
    : link_(link) {
  if (link_ != nullptr) link_->begin_run(configuration_hash, nullptr);
  ranks_ = make_ranks();
}

NumericExecutor::~NumericExecutor() {
  if (link_ != nullptr) link_->end_run();
}

scheduler::StepOutcome NumericExecutor::forward(const proto::ForwardBatch& batch) {
  if (link_ == nullptr) return ranks_->compute(batch);
  link_->message().add(batch);
  link_->send();
  try {
    return ranks_->compute(batch);
  } catch (const RankLost&) {
    throw;
  } catch (const Stopped&) {
    link_->give_up(/*exit_status=*/3);
    given_up_ = true;
    throw;
  } catch (...) {  // the others wait in a collective that never comes
    link_->give_up(/*exit_status=*/2);
    throw;
  }
}

std::vector<proto::RankReport> NumericExecutor::finish() {
  const proto::ForwardBatch last = end_of_run(ranks_->next_sequence_number());
  ranks_->compute(last);
  std::vector<proto::RankReport> reports = ranks_->reports();
  if (link_ != nullptr && !given_up_) link_->finish_run(last, reports);
  return reports;
}

}  // namespace tpsim::rank
