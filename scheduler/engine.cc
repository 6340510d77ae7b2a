#include "scheduler/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/base/stop_flag.h"
#include "scheduler/data_parallel_group.h"
#include "scheduler/front_end.h"
#include "scheduler/load.h"
#include "scheduler/metrics.h"
#include "scheduler/overload.h"
#include "scheduler/pipeline_timeline.h"

namespace tpsim::scheduler {
namespace {

// The event loops of SGLang's scheduler (event_loop_normal, event_loop_overlap) on a clock that the executor
// drives. `now_` is the time of the scheduler's thread, `gpu_free_` when the last launched pass ends.
class Engine {
 public:
  Engine(const SchedulerConfig& config, const LoadConfig& load, const Workload& workload, Executor& executor,
         RunObserver& observer)
      : config_(config),
        offer_(load),
        workload_(&workload),
        executor_(executor),
        observer_(observer),
        load_(load, workload),
        front_end_(load.front_end),
        scheduler_(
            config, [this](const Req& req, const char* because) { on_finished(req, because); },
            [this](double gap, std::uint32_t count) {
              if (!warming_up_) metrics_.on_inter_token(gap, count);
            }),
        overload_(load_.offered()),
        pipeline_(config.pipeline.size),
        in_flight_(config.pipeline.micro_batches()) {
    metrics_.set_goodput(load.goodput);
    if (config.pipeline.staged()) metrics_.set_passes_overlap();
  }

  proto::RunReport run() {
    try {
      if (offer_.warmup_requests > 0) warm_up();
      serve();
    } catch (const ExecutorLost&) {
      stopped_ = true;  // whoever made the executor knows why
    }
    const StopFlag::Writing results;  // a long run has millions of samples to sort
    proto::RunReport report;
    report.set_stopped_early(stopped_);
    if (stopped_ && !warming_up_) record_unfinished();
    report.set_page_size(config_.page_size);
    report.set_kv_pool_tokens(scheduler_.totals().capacity);
    report.set_swa_pool_tokens(scheduler_.totals().swa_capacity);
    scheduler_.write_states(report);
    report.set_retractions(scheduler_.retractions() - warmup_retractions_);
    report.set_evicted_tokens(scheduler_.evicted_tokens() - warmup_evicted_tokens_);
    if (load_.turns() > 0) {
      report.set_session_mode(offer_.session_mode == SessionMode::kClosed ? "closed" : "timestamps");
      report.set_turns(load_.turns());
      report.set_early_turns(early_turns_);
    }
    scheduler_.write_report(report);
    if (config_.speculation.enabled()) write_speculation(report);
    metrics_.write(now_, report);
    if (config_.pipeline.staged()) pipeline_.write_report(report);
    if (!stopped_) overload_.write(report);
    return report;
  }

 private:
  void write_speculation(proto::RunReport& report) const {
    proto::Speculation& out = *report.mutable_speculation();
    out.set_num_steps(config_.speculation.num_steps);
    out.set_eagle_topk(config_.speculation.topk);
    out.set_num_draft_tokens(config_.speculation.num_draft_tokens);
    double steps = 0, tokens = 0;
    const std::vector<std::uint64_t> histogram = scheduler_.accept_histogram();
    for (std::size_t i = 0; i < histogram.size(); ++i) {
      steps += static_cast<double>(histogram[i]);
      tokens += static_cast<double>(histogram[i] * (i + 1));
    }
    if (steps == 0) return;
    report.set_accept_length(tokens / steps);
    for (const std::uint64_t count : histogram)
      out.add_accept_length_fraction(static_cast<double>(count) / steps);
  }

  struct Launched {
    LockstepBatch* batch = nullptr;
    double end = 0;
    double returned = 0;  // when the scheduler's thread has issued it and goes on
  };

  // What the device has to do for one pass.
  struct QueuedPass {
    double start = 0, end = 0, launches = 0;
    // When all but `left` of its launches have run; they run evenly.
    double time_with(double left) const { return end - (end - start) * left / launches; }
  };

  // When the last launch of `pass`, that comes behind queued_, finds room in the device's queue.
  double queue_room_time(const QueuedPass& pass) const {
    const double room = config_.launch_queue;
    if (room <= 0) return 0;
    if (pass.launches > room) return pass.time_with(room);
    if (pass.launches + queued_.launches > room) return queued_.time_with(room - pass.launches);
    return 0;
  }

  void serve() {
    bool running = true;
    while (running && !stopped_) {
      if (config_.pipeline.staged()) {
        running = loop_pipeline();
        continue;
      }
      receive();
      running = config_.disable_overlap_schedule ? step_normal() : step_overlap();
    }
  }

  // As SGLang's serving benchmark warms a server up, at once but within the places of the run.
  void warm_up() {
    constexpr std::uint32_t kMostTokens = 32;
    const Workload& measured = *workload_;
    warmup_workload_.extra_keys = measured.extra_keys;
    WorkloadRequest request = measured.requests.front();
    request.session = 0;
    request.max_new_tokens = std::min(request.max_new_tokens, kMostTokens);
    if (!request.output.empty()) request.output.truncate(request.max_new_tokens);
    warmup_workload_.requests.assign(offer_.warmup_requests, request);
    LoadConfig at_once;
    at_once.max_concurrency = offer_.max_concurrency;
    LoadGenerator load = std::exchange(load_, LoadGenerator(at_once, warmup_workload_));
    workload_ = &warmup_workload_;
    warming_up_ = true;
    serve();
    if (stopped_) return;
    warming_up_ = false;
    workload_ = &measured;
    load_ = std::move(load);
    if (offer_.flush_cache) scheduler_.flush_cache();
    scheduler_.reset_report();
    warmup_retractions_ = scheduler_.retractions();
    warmup_evicted_tokens_ = scheduler_.evicted_tokens();
    front_end_ = FrontEnd(offer_.front_end);
    now_ = gpu_free_ = 0;
    queued_ = {};
    pipeline_.reset();
  }

  void receive() {
    while (load_.next_time() <= now_) {
      const LoadGenerator::Sent sent = load_.pop();
      early_turns_ += sent.early ? 1 : 0;
      const WorkloadRequest& request = workload_->requests[sent.index];
      front_end_.send(sent, request.prompt.size(), request.image_prepare_seconds);
    }
    if (!looks_for_requests()) return;
    while (front_end_.next_time() <= now_) {
      const LoadGenerator::Sent sent = front_end_.pop();
      const WorkloadRequest& request = workload_->requests[sent.index];
      scheduler_.add_request(sent.index, request, sent.time);
      if (offer_.front_end.prepares_images) now_ += request.image_receive_seconds;
    }
  }

  // Whether the scheduler looks at what has come since, as SGLang's SchedulerRecvSkipper decides. Rounds
  // without a pass take no time and count till it looks.
  bool looks_for_requests() {
    const bool decoded = last_mode_ == proto::DECODE || last_mode_ == proto::TARGET_VERIFY;
    if (decoded && ++passes_since_look_ < config_.recv_interval) return false;
    passes_since_look_ = 0;
    return true;
  }

  // Returns whether there is anything left to do.
  bool step_normal() {
    LockstepBatch* batch = scheduler_.get_next_batch_to_run(now_);
    last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
    if (batch == nullptr) return idle();
    const Launched launched = launch(*batch);
    now_ = launched.end;
    finish(launched);
    return true;
  }

  // The next pass is formed and launched while the one before still runs; only then is its result looked at,
  // however long the launch takes: the first tokens of a prefill wait until a prefill behind it is issued.
  bool step_overlap() {
    LockstepBatch* batch = scheduler_.get_next_batch_to_run(now_);
    last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
    Launched launched;
    if (batch != nullptr) {
      launched = launch(*batch);
      now_ = launched.returned;
    }
    if (pending_.batch != nullptr) {
      now_ = std::max(now_, pending_.end);
      finish(pending_);
    } else if (batch == nullptr) {
      return idle();
    }
    pending_ = launched;
    return true;
  }

  // SGLang's event_loop_pp, once round its micro-batches: one is launched, then the tokens of the next, which
  // runs longest, are waited for. Idle time passes between two rounds, so that what comes then meets the
  // first micro-batch; a server goes on round and round.
  bool loop_pipeline() {
    bool idles = true;
    for (std::uint32_t i = 0; i < in_flight_.size() && !stopped_; ++i) {
      receive();
      Launched& next = in_flight_[(i + 1) % in_flight_.size()];
      LockstepBatch* batch = scheduler_.get_next_batch_to_run(now_, i);
      last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
      if (batch != nullptr) {
        // With buffered micro-batches the stream receives those tokens before it runs this one.
        in_flight_[i] = launch(*batch, config_.pipeline.async_batch_depth > 0 ? next.end : 0);
        now_ += config_.scheduler_step_seconds;
        idles = false;
      }
      if (next.batch != nullptr) {
        now_ = std::max(now_, next.end);
        finish(next);
        next = {};
        idles = false;
      }
    }
    return !idles || idle();
  }

  bool idle() {
    const double next = std::min(load_.next_time(), front_end_.next_time());
    if (scheduler_.on_idle(next != LoadGenerator::kNever)) return true;
    if (next == LoadGenerator::kNever) return false;
    now_ = std::max(now_, next);
    return true;
  }

  // `not_before`: of pipeline stages, when the first may begin.
  Launched launch(LockstepBatch& batch, double not_before = 0) {
    scheduler_.write_forward_batch(batch, sequence_number_++, message_);
    const StepOutcome outcome = executor_.forward(message_);
    scheduler_.take_sampled(batch, outcome);
    const double forming = config_.scheduler_step_seconds + compile_seconds(batch);
    const double host = forming + outcome.host_time;
    double start, gpu_seconds = outcome.step_time;
    if (config_.pipeline.staged()) {
      const PipelineTimeline::Pass pass = pipeline_.launch(now_ + host, forming, not_before, outcome.stages);
      start = pass.start;
      gpu_free_ = pass.end;
      gpu_seconds = PipelineTimeline::busy_seconds(outcome.stages);
    } else {
      start = std::max(gpu_free_ + pass_gap(batch), now_ + host);
      gpu_free_ = start + outcome.step_time;
    }
    double returned = now_ + forming;
    if (outcome.issue_time > 0) returned = now_ + host + outcome.issue_time;
    if (!config_.pipeline.staged()) {
      const QueuedPass queued{start, gpu_free_, outcome.launches};
      returned = std::max(returned, queue_room_time(queued));
      queued_ = queued;
    }
    record_step(batch, start, config_.pipeline.staged() ? gpu_free_ - start : outcome.step_time, gpu_seconds);
    if (config_.check_invariants) scheduler_.check_invariants();
    return {&batch, gpu_free_, returned};
  }

  double pass_gap(const LockstepBatch& batch) const {
    return config_.pass_gap_seconds + config_.pass_gap_request_seconds * batch.decode_requests;
  }

  double compile_seconds(const LockstepBatch& batch) {
    double seconds = 0;
    if (!compiled_batch_ && batch.extend_requests > 1) {
      seconds += config_.compile_batch_seconds;
      compiled_batch_ = true;
    }
    // The budget of a chunk counts each request's last page whole.
    const std::uint64_t budget =
        batch.extend_tokens + std::uint64_t{batch.extend_requests} * config_.page_size;
    if (!compiled_chunk_ && config_.chunked_prefill_size > 0 && budget >= config_.chunked_prefill_size) {
      seconds += config_.compile_chunk_seconds;
      compiled_chunk_ = true;
    }
    if (!compiled_decode_ && batch.forward_mode == proto::DECODE && batch.decode_requests > 1 &&
        batch.capture_bucket > 0) {
      seconds += config_.compile_decode_seconds;
      compiled_decode_ = true;
    }
    return seconds;
  }

  void finish(const Launched& launched) {
    const LockstepBatch& batch = *launched.batch;
    scheduler_.process_batch_result(*launched.batch,
                                    front_end_.stream(now_, batch.extend_requests, batch.decode_requests));
    if (config_.check_invariants) scheduler_.check_invariants();
  }

  void record_step(const LockstepBatch& batch, double start, double step_time, double gpu_seconds) {
    if (warming_up_) {
      report_progress_after(batch);
      return;
    }
    const DataParallelGroup::Totals totals = scheduler_.totals();
    StepRecord record;
    record.sequence_number = message_.sequence_number();
    record.forward_mode = batch.forward_mode;
    record.start_time = start;
    record.step_time = step_time;
    record.extend_requests = batch.extend_requests;
    record.extend_tokens = batch.extend_tokens;
    record.cached_tokens = batch.cached_tokens;
    record.decode_requests = batch.decode_requests;
    record.decode_tokens = batch.decode_tokens;
    record.capture_bucket = batch.capture_bucket;
    record.waiting = static_cast<std::uint32_t>(totals.waiting);
    record.running = static_cast<std::uint32_t>(totals.running);
    record.kv_cached_tokens = totals.evictable;
    record.kv_free_tokens = totals.available;
    record.kv_allocated_tokens = totals.capacity - record.kv_cached_tokens - record.kv_free_tokens;
    record.swa_cached_tokens = totals.swa_evictable;
    record.swa_free_tokens = totals.swa_available;
    record.swa_allocated_tokens = totals.swa_capacity - totals.swa_evictable - totals.swa_available;
    record.states_cached = totals.states_evictable;
    record.states_free = totals.states_available;
    record.states_held = totals.state_capacity - record.states_cached - record.states_free;
    metrics_.on_step(record, gpu_seconds);
    observer_.on_step(record);
    report_progress_after(batch);
  }

  void report_progress_after(const LockstepBatch& batch) {
    // Priced steps take microseconds; computed ones are long enough to look up after each.
    constexpr std::uint64_t kProgressEvery = 512;
    if (message_.sequence_number() % kProgressEvery != 0 && !batch.computed()) return;
    const Progress progress{now_, metrics_.finished(), load_.size(), metrics_.steps()};
    if (!observer_.on_progress(progress)) stopped_ = true;
  }

  RequestRecord record_of(const Req& req, RequestState state) const {
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
    record.finish_time = state == RequestState::kUnfinished ? 0 : front_end_.seen(now_);
    record.output_ids = req.output_ids;
    record.prompt_logits = req.prompt_logits;
    return record;
  }

  void on_finished(const Req& req, const char* because) {
    if (because != nullptr) {
      spdlog::debug("request {} of {} + {} tokens is refused: {}", req.id, req.input_len,
                    req.source->max_new_tokens, because);
    }
    load_.on_finished(req.id, front_end_.seen(now_));
    if (warming_up_) return;
    const RequestRecord record =
        record_of(req, because == nullptr ? RequestState::kCompleted : RequestState::kRejected);
    metrics_.on_request(record);
    overload_.on_request(record);
    observer_.on_request(record);
  }

  void record_unfinished() {
    scheduler_.visit_unfinished([this](const Req& req) {
      const RequestRecord record = record_of(req, RequestState::kUnfinished);
      metrics_.on_request(record);
      observer_.on_request(record);
    });
  }

  const SchedulerConfig& config_;
  const LoadConfig& offer_;
  const Workload* workload_;  // that is served now
  Executor& executor_;
  RunObserver& observer_;
  LoadGenerator load_;
  FrontEnd front_end_;
  std::uint64_t early_turns_ = 0;
  bool warming_up_ = false;
  Workload warmup_workload_;
  std::uint64_t warmup_retractions_ = 0;
  std::uint64_t warmup_evicted_tokens_ = 0;
  RunMetrics metrics_;
  DataParallelGroup scheduler_;
  OverloadWatch overload_;
  proto::ForwardBatch message_;
  Launched pending_;
  QueuedPass queued_;  // launched last
  PipelineTimeline pipeline_;
  std::vector<Launched> in_flight_;  // of each micro-batch
  std::uint64_t sequence_number_ = 0;
  double now_ = 0;
  double gpu_free_ = 0;
  proto::ForwardMode last_mode_ = proto::IDLE;  // of the last round of the loop
  std::uint32_t passes_since_look_ = 0;
  bool compiled_batch_ = false;
  bool compiled_chunk_ = false;
  bool compiled_decode_ = false;
  bool stopped_ = false;
};

}  // namespace

proto::RunReport run_workload(const SchedulerConfig& config, const LoadConfig& load, const Workload& workload,
                              Executor& executor, RunObserver& observer) {
  return Engine(config, load, workload, executor, observer).run();
}

}  // namespace tpsim::scheduler
