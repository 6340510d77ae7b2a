#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "proto/base/stop_flag.h"
#include "scheduler/load.h"
#include "scheduler/recorder.h"
#include "scheduler/replica.h"

namespace tpsim::scheduler {
namespace {

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
      if (!resume() && offer_.warmup_requests > 0) warm_up();
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
    WorkloadRequest request = *workload_.read()();
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
