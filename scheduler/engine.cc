#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/stop_flag.h"
#include "scheduler/checkpoints.h"
#include "scheduler/event_loop.h"
#include "scheduler/load.h"
#include "scheduler/metrics.h"
#include "scheduler/overload.h"
#include "scheduler/replica.h"

namespace tpsim::scheduler {
namespace {

// One replica, one source, the virtual clock; keeps the report.
class Run : public ReplicaEvents {
 public:
  Run(const SchedulerConfig& config, const LoadConfig& load, const StreamedWorkload& workload,
      Executor& executor, RunObserver& observer, Checkpoints* checkpoints)
      : config_(config),
        offer_(load),
        workload_(workload),
        observer_(observer),
        checkpoints_(checkpoints),
        load_(load, workload),
        source_(&load_),
        replica_(config, load.front_end, executor, *this),
        overload_(load_.offered().rate, load_.offered().last_arrival) {
    metrics_.set_goodput(load.goodput);
    if (config.pipeline.staged()) metrics_.set_passes_overlap();
  }

  proto::RunReport run() {
    try {
      if (!resume() && offer_.warmup_requests > 0) warm_up();
      if (!stopped_) serve(load_, early_turns_);
    } catch (const ExecutorLost&) {
      stopped_ = true;  // whoever made the executor knows why
    }
    const StopFlag::Writing results;  // a long run has millions of samples to sort
    proto::RunReport report;
    report.set_stopped_early(stopped_);
    if (stopped_ && !warming_up_) record_unfinished();
    const DataParallelGroup& schedulers = replica_.schedulers();
    report.set_retractions(schedulers.retractions() - warmup_retractions_);
    report.set_evicted_tokens(schedulers.evicted_tokens() - warmup_evicted_tokens_);
    if (load_.turns() > 0) {
      report.set_session_mode(offer_.session_mode == SessionMode::kClosed ? "closed" : "timestamps");
      report.set_turns(load_.turns());
      report.set_early_turns(early_turns_);
    }
    replica_.write_report(report);
    if (config_.speculation.enabled()) write_speculation(report);
    metrics_.write(replica_.now(), report);
    if (!stopped_) overload_.write(load_.offered(), report);
    return report;
  }

  bool more_to_come() const override { return source_->next_time() != RequestSource::kNever; }

  void on_inter_token(double gap, std::uint32_t count) override {
    if (!warming_up_) metrics_.on_inter_token(gap, count);
  }

  void on_step(const StepRecord& record, double gpu_seconds, bool computed) override {
    if (!warming_up_) {
      metrics_.on_step(record, gpu_seconds);
      observer_.on_step(record);
    }
    // Priced steps take microseconds; computed ones are long enough to look up after each.
    constexpr std::uint64_t kProgressEvery = 512;
    if (record.sequence_number % kProgressEvery != 0 && !computed) return;
    const Progress progress{replica_.now(), metrics_.finished(), load_.size(), metrics_.steps()};
    if (!observer_.on_progress(progress)) stopped_ = true;
  }

  void on_finished(const Req& req, RequestState state, const char* because, double time) override {
    if (because != nullptr) {
      spdlog::debug("request {} of {} + {} tokens is refused: {}", req.id, req.input_len,
                    req.source->max_new_tokens, because);
    }
    source_->on_finished(req.id, time);
    if (warming_up_) return;
    const RequestRecord record = record_of(req, state, time);
    metrics_.on_request(record);
    overload_.on_request(record);
    observer_.on_request(record);
  }

 private:
  // `early` counts the turns that were early, with those before.
  void serve(RequestSource& source, std::uint64_t& early) {
    source_ = &source;
    EventLoop loop(source, replica_);
    const std::uint64_t before = early;
    while (!stopped_ && loop.next_time() != RequestSource::kNever) {
      loop.step();
      if (checkpoints_ == nullptr || warming_up_ || !checkpoints_->due()) continue;
      early = before + loop.early();
      save();
    }
    early = before + loop.early();
    // Who stopped it may want to go on later.
    if (stopped_ && checkpoints_ != nullptr && !warming_up_) save();
  }

  // What a resumed run goes on with. REQUIRES: not between warm-up and run.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(load_, replica_, metrics_, overload_, early_turns_, warmup_retractions_, warmup_evicted_tokens_);
  }

  void save() {
    checkpoints_->save([this](StateWriter& state) { serialize(state); });
  }

  // Whether the run goes on from a checkpoint.
  bool resume() {
    if (checkpoints_ == nullptr || checkpoints_->resumed().empty()) return false;
    StateReader state(checkpoints_->resumed());
    serialize(state);
    checkpoints_->read_rest(state);
    return true;
  }

  // As SGLang's serving benchmark warms a server up, at once but within the places of the run.
  void warm_up() {
    constexpr std::uint32_t kMostTokens = 32;
    WorkloadRequest request = *workload_.read()->next();
    request.session = 0;
    request.max_new_tokens = std::min(request.max_new_tokens, kMostTokens);
    // An answer may end earlier by itself.
    if (request.output.size() > request.max_new_tokens) request.output.truncate(request.max_new_tokens);
    Workload copies;
    copies.requests.assign(offer_.warmup_requests, request);
    LoadConfig at_once;
    at_once.max_concurrency = offer_.max_concurrency;
    const WorkloadView at_once_only(copies);
    LoadGenerator load(at_once, at_once_only);
    warming_up_ = true;
    std::uint64_t early = 0;
    serve(load, early);
    if (stopped_) return;
    warming_up_ = false;
    if (offer_.flush_cache) replica_.flush_cache();
    warmup_retractions_ = replica_.schedulers().retractions();
    warmup_evicted_tokens_ = replica_.schedulers().evicted_tokens();
    replica_.restart_clock();
  }

  void write_speculation(proto::RunReport& report) const {
    proto::Speculation& out = *report.mutable_speculation();
    out.set_num_steps(config_.speculation.num_steps);
    out.set_eagle_topk(config_.speculation.topk);
    out.set_num_draft_tokens(config_.speculation.num_draft_tokens);
    double steps = 0, tokens = 0;
    const std::vector<std::uint64_t> histogram = replica_.schedulers().accept_histogram();
    for (std::size_t i = 0; i < histogram.size(); ++i) {
      steps += static_cast<double>(histogram[i]);
      tokens += static_cast<double>(histogram[i] * (i + 1));
    }
    if (steps == 0) return;
    report.set_accept_length(tokens / steps);
    for (const std::uint64_t count : histogram)
      out.add_accept_length_fraction(static_cast<double>(count) / steps);
  }

  // `time`: when its client saw its end.
  static RequestRecord record_of(const Req& req, RequestState state, double time) {
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

  void record_unfinished() {
    replica_.schedulers().visit_unfinished([this](const Req& req) {
      const RequestRecord record = record_of(req, RequestState::kUnfinished, 0);
      metrics_.on_request(record);
      observer_.on_request(record);
    });
  }

  const SchedulerConfig& config_;
  const LoadConfig& offer_;
  const StreamedWorkload& workload_;
  RunObserver& observer_;
  Checkpoints* const checkpoints_;
  LoadGenerator load_;
  RequestSource* source_;  // that is served now
  Replica replica_;
  RunMetrics metrics_;
  OverloadWatch overload_;
  std::uint64_t early_turns_ = 0;
  bool warming_up_ = false;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  bool stopped_ = false;
};

}  // namespace

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints) {
  return Run(config, load, workload, executor, observer, checkpoints).run();
}

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load, const Workload& workload,
                              Executor& executor, RunObserver& observer) {
  return run_workload(config, load, WorkloadView(workload), executor, observer);
}

}  // namespace tpsim::scheduler
