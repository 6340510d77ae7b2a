#include "launch/validation/load_records.h"

#include <algorithm>

namespace tpsim::launch {

void LoadRecords::on_request(const scheduler::RequestRecord& record) {
  if (record.state == scheduler::RequestState::kRejected) ++rejected_;
  if (record.state != scheduler::RequestState::kCompleted) return;
  begin_ = completed_ == 0 ? record.arrival_time : std::min(begin_, record.arrival_time);
  end_ = std::max(end_, record.finish_time);
  ++completed_;
  ttft_ += record.ttft();
  e2e_ += record.e2e_latency();
  spans_ += record.finish_time - record.first_token_time;
  tokens_ += record.output_tokens - 1;
}

void LoadRecords::on_step(const scheduler::StepRecord& record) {
  ServedStep step;
  step.decode = record.decode_requests > 0;
  step.prefill = record.extend_requests > 0;
  step.running = record.decode_requests;
  step.kv_tokens = record.kv_allocated_tokens;
  step.new_seqs = record.extend_requests;
  step.new_tokens = record.extend_tokens;
  step.end = record.start_time + record.step_time;
  const bool follows = running_ > 0 && !steps_.empty();
  step.seconds = follows ? step.end - steps_.back().end : record.step_time;
  running_ = record.running;
  steps_.push_back(step);
}

MeasuredFigures LoadRecords::figures() const {
  MeasuredFigures figures;
  if (completed_ == 0) return figures;
  const auto count = static_cast<double>(completed_);
  figures.ttft_ms = 1e3 * ttft_ / count;
  figures.e2e_ms = 1e3 * e2e_ / count;
  if (tokens_ > 0) figures.tpot_ms = 1e3 * spans_ / static_cast<double>(tokens_);
  figures.duration_s = end_ - begin_;
  return figures;
}

}  // namespace tpsim::launch
