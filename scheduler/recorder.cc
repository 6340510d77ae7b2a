#include "scheduler/recorder.h"

#include <cstddef>
#include <vector>

namespace tpsim::scheduler {
namespace {

// `time`: when its client saw its end.
RequestRecord record_of(const Req& req, RequestState state, double time) {
  RequestRecord record;
  record.id = req.id;
  record.state = state;
  record.session = req.source->session;
  record.input_tokens = req.input_len;
  record.output_tokens = req.output_len;
  record.cached_tokens = req.cached_tokens;
  record.retractions = req.retractions;
  record.images = static_cast<std::uint32_t>(req.source->images.size());
  for (const ImageInput& image : req.source->images) record.image_tokens += image.tokens;
  record.arrival_time = req.arrival_time;
  record.first_scheduled_time = req.first_scheduled_time;
  record.first_token_time = req.first_token_time;  // as its client saw it
  record.finish_time = time;
  record.interruptions = req.interruptions;
  record.output_ids = req.output_ids;
  record.prompt_logits = req.prompt_logits;
  return record;
}

void write_speculation(const SpeculationConfig& config, const std::vector<std::uint64_t>& accepted,
                       proto::RunReport& report) {
  proto::Speculation& out = *report.mutable_speculation();
  out.set_num_steps(config.num_steps);
  out.set_eagle_topk(config.topk);
  out.set_num_draft_tokens(config.num_draft_tokens);
  double steps = 0, tokens = 0;
  for (std::size_t i = 0; i < accepted.size(); ++i) {
    steps += static_cast<double>(accepted[i]);
    tokens += static_cast<double>(accepted[i] * (i + 1));
  }
  if (steps == 0) return;
  report.set_accept_length(tokens / steps);
  for (const std::uint64_t count : accepted)
    report.mutable_speculation()->add_accept_length_fraction(static_cast<double>(count) / steps);
}

}  // namespace

RunRecorder::RunRecorder(const SchedulerConfig& config, const LoadConfig& load, const Offered& offered,
                         RunObserver& observer)
    : speculation_(config.speculation),
      offered_(offered),
      observer_(observer),
      metrics_(load.goodput, config.pipeline.staged()),
      overload_(offered.rate, offered.last_arrival) {}

void RunRecorder::end_warm_up(const DataParallelGroup& schedulers) {
  warming_up_ = false;
  warmup_retractions_ = schedulers.retractions();
  warmup_evicted_tokens_ = schedulers.evicted_tokens();
}

void RunRecorder::on_step(const StepRecord& record, double gpu_seconds) {
  if (warming_up_) return;
  metrics_.on_step(record, gpu_seconds);
  observer_.on_step(record);
}

void RunRecorder::on_finished(const Req& req, RequestState state, double time) {
  if (warming_up_) return;
  const RequestRecord record = record_of(req, state, time);
  metrics_.on_request(record);
  if (state != RequestState::kUnfinished) overload_.on_request(record);
  observer_.on_request(record);
}

proto::RunReport RunRecorder::report(const Replica& replica, bool stopped_early) {
  const DataParallelGroup& schedulers = replica.schedulers();
  proto::RunReport report;
  report.set_stopped_early(stopped_early);
  if (stopped_early) {
    for (const Req* req : schedulers.unfinished()) on_finished(*req, RequestState::kUnfinished, 0);
  }
  report.set_retractions(schedulers.retractions() - warmup_retractions_);
  report.set_evicted_tokens(schedulers.evicted_tokens() - warmup_evicted_tokens_);
  replica.write_report(report);
  if (speculation_.enabled()) write_speculation(speculation_, schedulers.accept_histogram(), report);
  metrics_.write(replica.now(), report);
  if (!stopped_early) overload_.write(offered_, report);
  return report;
}

}  // namespace tpsim::scheduler
