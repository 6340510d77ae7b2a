#include "launch/lab/served/load_records.h"

namespace tpsim::launch {

void LoadRecords::on_request(const scheduler::RequestRecord& record) {
  if (record.state == scheduler::RequestState::kRejected) ++rejected_;
  if (record.state != scheduler::RequestState::kCompleted) return;
  sums_.add(record.arrival_time, record.first_token_time, record.finish_time, record.output_tokens);
}

void LoadRecords::on_step(const scheduler::StepRecord& record) {
  ServedStep step;
  step.decode = record.decode_requests > 0;
  step.prefill = record.extend_requests > 0;
  step.running = record.decode_requests;
  step.kv_tokens = record.pools[kvcache::kKvPool].held;
  step.new_seqs = record.extend_requests;
  step.new_tokens = record.extend_tokens;
  step.end = record.start_time + record.step_time;
  const bool follows = running_ > 0 && !steps_.empty();
  step.seconds = follows ? step.end - steps_.back().end : record.step_time;
  running_ = record.running;
  steps_.push_back(step);
}

}  // namespace tpsim::launch
