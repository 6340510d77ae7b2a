#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "proto/base/stop_flag.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/load.h"
#include "scheduler/metrics.h"
#include "scheduler/records.h"
#include "scheduler/replica.h"
#include "scheduler/req.h"

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

// What a run leaves behind: the scheduler's part of its report, and the records of its requests and steps,
// which go to an observer as they come.
class RunRecorder {
 public:
  // All references must outlive it.
  RunRecorder(const SchedulerConfig& config, const LoadConfig& load, const Offered& offered,
              RunObserver& observer)
      : speculation_(config.speculation),
        offered_(offered),
        observer_(observer),
        metrics_(load.goodput, config.pipeline.staged()),
        overload_(offered.rate, offered.last_arrival) {}

  // What happens between the two is a warm-up, of which nothing is kept; nor of what `schedulers` counted.
  void begin_warm_up() { warming_up_ = true; }
  void end_warm_up(const DataParallelGroup& schedulers) {
    warming_up_ = false;
    warmup_retractions_ = schedulers.retractions();
    warmup_evicted_tokens_ = schedulers.evicted_tokens();
  }
  bool warming_up() const { return warming_up_; }

  // As ReplicaEvents has them.
  void on_inter_token(double gap, std::uint32_t count) {
    if (!warming_up_) metrics_.on_inter_token(gap, count);
  }
  void on_step(const StepRecord& record, double gpu_seconds) {
    if (warming_up_) return;
    metrics_.on_step(record, gpu_seconds);
    observer_.on_step(record);
  }
  void on_finished(const Req& req, RequestState state, double time) {
    if (warming_up_) return;
    const RequestRecord record = record_of(req, state, time);
    metrics_.on_request(record);
    if (state != RequestState::kUnfinished) overload_.on_request(record);
    observer_.on_request(record);
  }

  // At `time`, of `total` requests.
  Progress progress(double time, std::uint64_t total) const {
    return {time, metrics_.finished(), total, metrics_.steps()};
  }
  // Of all that was recorded. `stopped_early`: requests that `replica` still has are recorded as unfinished.
  // Nothing may be recorded afterwards.
  proto::RunReport report(const Replica& replica, bool stopped_early) {
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

  auto state() { return std::tie(metrics_, overload_, warmup_retractions_, warmup_evicted_tokens_); }

 private:
  const SpeculationConfig& speculation_;
  const Offered& offered_;
  RunObserver& observer_;
  RunMetrics metrics_;
  OverloadWatch overload_;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  bool warming_up_ = false;
};

// One replica, one source, the virtual clock.
class Run : public ReplicaEvents {
 public:
  Run(const SchedulerConfig& config, const LoadConfig& load, const StreamedWorkload& workload,
      Executor& executor, RunObserver& observer, Checkpoints* checkpoints)
      : offer_(load),
        workload_(workload),
        observer_(observer),
        checkpoints_(checkpoints),
        load_(load, workload),
        source_(&load_),
        replica_(config, load.front_end, executor, *this),
        recorder_(config, load, load_.offered(), observer) {}

  proto::RunReport run() {
    try {
      if (!resume() && (offer_.warmup_requests > 0 || !offer_.prompts_before.empty())) warm_up();
      if (!stopped_) serve(load_, early_turns_);
    } catch (const ExecutorLost&) {
      stopped_ = true;  // whoever made the executor knows why
    }
    const StopFlag::Writing results;  // a long run has millions of samples to sort
    proto::RunReport report = recorder_.report(replica_, stopped_);
    if (load_.turns() > 0) {
      report.set_session_mode(offer_.session_mode == SessionMode::kClosed ? "closed" : "timestamps");
      report.set_turns(load_.turns());
      report.set_early_turns(early_turns_);
    }
    return report;
  }

  bool more_to_come() const override { return source_->next_time() != RequestSource::kNever; }

  void on_inter_token(double gap, std::uint32_t count) override { recorder_.on_inter_token(gap, count); }

  void on_step(const StepRecord& record, double gpu_seconds, bool computed) override {
    recorder_.on_step(record, gpu_seconds);
    // Priced steps take microseconds; computed ones are long enough to look up after each.
    constexpr std::uint64_t kProgressEvery = 512;
    if (record.sequence_number % kProgressEvery != 0 && !computed) return;
    if (!observer_.on_progress(recorder_.progress(replica_.now(), load_.size()))) stopped_ = true;
  }

  void on_finished(const Req& req, RequestState state, const char* because, double time) override {
    if (because != nullptr) {
      spdlog::debug("request {} of {} + {} tokens is refused: {}", req.id, req.input_len,
                    req.source->max_new_tokens, because);
    }
    source_->on_finished(req.id, time);
    recorder_.on_finished(req, state, time);
  }

 private:
  // Places the requests of a source on the replica, event by event: requests come before the round of a
  // scheduler at the same time. `early`: is counted up by those that were sent before the answer that they
  // reply to had ended.
  void serve(RequestSource& source, std::uint64_t& early) {
    source_ = &source;
    Checkpoints* const checkpoints = recorder_.warming_up() ? nullptr : checkpoints_;
    const auto next_time = [&] { return std::min(source.next_time(), replica_.next_event_time()); };
    while (!stopped_ && next_time() != RequestSource::kNever) {
      if (source.next_time() <= replica_.next_event_time()) {
        const RequestSource::Sent sent = source.pop();
        early += sent.early ? 1 : 0;
        replica_.submit(sent);
      } else {
        replica_.advance();
      }
      if (checkpoints != nullptr && checkpoints->due()) save();
    }
    // Who stopped it may want to go on later.
    if (stopped_ && checkpoints != nullptr) save();
  }

  // What a resumed run goes on with. REQUIRES: not between warm-up and run.
  auto state() { return std::tie(load_, replica_, recorder_, early_turns_); }

  void save() {
    checkpoints_->save([this](StateWriter& out) { std::apply(out, state()); });
  }

  // Whether the run goes on from a checkpoint.
  bool resume() {
    if (checkpoints_ == nullptr || checkpoints_->resumed().empty()) return false;
    StateReader in(checkpoints_->resumed());
    std::apply(in, state());
    checkpoints_->read_rest(in);
    return true;
  }

  // As SGLang's serving benchmark warms a server up, at once but within the places of the run.
  void warm_up() {
    constexpr std::uint32_t kMostTokens = 32;
    const auto shortened = [](WorkloadRequest request, std::uint32_t tokens) {
      request.session = 0;
      request.max_new_tokens = std::min(request.max_new_tokens, tokens);
      // An answer may end earlier by itself.
      if (request.output.size() > request.max_new_tokens) request.output.truncate(request.max_new_tokens);
      return request;
    };
    Workload before;
    const auto next = workload_.read();
    for (const std::uint32_t tokens : offer_.prompts_before) {
      const std::shared_ptr<const WorkloadRequest> request = next();
      if (request == nullptr) break;
      before.requests.push_back(shortened(*request, 1));
      if (before.requests.back().prompt.size() > tokens) before.requests.back().prompt.truncate(tokens);
    }
    before.requests.insert(before.requests.end(), offer_.warmup_requests,
                           shortened(*workload_.read()(), kMostTokens));
    LoadConfig at_once;
    at_once.max_concurrency = offer_.max_concurrency;
    const WorkloadView at_once_only(before);
    LoadGenerator load(at_once, at_once_only);
    recorder_.begin_warm_up();
    std::uint64_t early = 0;
    serve(load, early);
    if (stopped_) return;
    if (offer_.flush_cache) replica_.flush_cache();
    recorder_.end_warm_up(replica_.schedulers());
    replica_.restart_clock();
  }

  const LoadConfig& offer_;
  const StreamedWorkload& workload_;
  RunObserver& observer_;
  Checkpoints* const checkpoints_;
  LoadGenerator load_;
  RequestSource* source_;  // that is served now
  Replica replica_;
  RunRecorder recorder_;
  std::uint64_t early_turns_ = 0;
  bool stopped_ = false;
};

}  // namespace

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load,
                              const StreamedWorkload& workload, Executor& executor, RunObserver& observer,
                              Checkpoints* checkpoints) {
  return Run(config, load, workload, executor, observer, checkpoints).run();
}

}  // namespace tpsim::scheduler
