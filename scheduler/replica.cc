#include "scheduler/replica.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

namespace tpsim::scheduler {
namespace {

bool takes_snapshots(const proto::ForwardBatch& batch) {
  return batch.state_snapshot_rows_size() > 0 || std::ranges::any_of(batch.dp_batches(), takes_snapshots);
}

}  // namespace

Replica::Replica(const SchedulerConfig& config, const FrontEndConfig& front_end, Executor& executor,
                 ReplicaEvents& events)
    : config_(config),
      front_end_config_(front_end),
      executor_(executor),
      events_(events),
      front_end_(front_end),
      schedulers_(
          config, [this](const Req& req, const char* because) { on_rejected(req, because); },
          [this](double gap, std::uint32_t count) { events_.on_inter_token(gap, count); }),
      pipeline_(config.pipeline.size),
      in_flight_(config.pipeline.micro_batches()) {
  result_.wants_tokens = events.wants_tokens();
}

void Replica::restart_clock() {
  schedulers_.finish_host_copies();
  schedulers_.reset_report();
  front_end_ = FrontEnd(front_end_config_);
  now_ = look_ = gpu_free_ = 0;
  host_ = {};
  cancelled_.clear();
  queued_ = {};
  pipeline_.reset();
}

void Replica::write_report(proto::RunReport& report) const {
  report.set_page_size(config_.page_size);
  const PoolUses pools = schedulers_.totals().pools;
  report.set_kv_pool_tokens(pools[kvcache::kKvPool].capacity());
  report.set_swa_pool_tokens(pools[kvcache::kWindowPool].capacity());
  schedulers_.write_states(report);
  schedulers_.write_hicache(report);
  schedulers_.write_report(report);
  if (config_.pipeline.staged()) pipeline_.write_report(report);
  if (config_.scheduler_step_seconds <= 0) return;  // nobody priced the host
  proto::HostSeconds& host = *report.mutable_host_seconds();
  host.set_forming(host_.forming);
  host.set_planning(host_.planning);
  host.set_issuing(host_.issuing);
  host.set_launch_queue(host_.launch_queue);
  host.set_launch_queue_delay(host_.launch_queue_delay);
  host.set_between_passes(host_.between_passes);
  host.set_compiling(host_.compiling);
}

void Replica::submit(const RequestSource::Sent& sent) {
  front_end_.send(sent, sent.request->prompt.size(), sent.request->image_prepare_seconds);
}

bool Replica::cancel(std::uint64_t id, double time) {
  if (const std::optional<RequestSource::Sent> sent = front_end_.withdraw(id)) {
    front_end_.leave();
    schedulers_.forget_pages(id);
    Req req = unserved(*sent);
    req.cancelled = true;
    events_.on_finished(req, RequestState::kCancelled, nullptr, time);
    return true;
  }
  const bool known = std::any_of(cancelled_.begin(), cancelled_.end(),
                                 [id](const Cancelled& cancelled) { return cancelled.id == id; });
  if (known || !schedulers_.serves(id)) return false;
  cancelled_.push_back({id, time});
  return true;
}

double Replica::next_event_time() const {
  if (!idle_) return now_;
  const double cancelled = cancelled_.empty() ? RequestSource::kNever : cancelled_.front().time;
  const double transfer = config_.hicache.enabled() ? schedulers_.next_host_copy() : RequestSource::kNever;
  return std::max(now_,
                  std::min({front_end_.next_time(), cancelled, schedulers_.next_transfer_time(), transfer}));
}

void Replica::advance() {
  const bool slept = idle_;
  now_ = next_event_time();
  if (slept || !looks_when_formed()) look_ = now_;
  idle_ = false;
  receive();
  if (config_.pipeline.staged()) {
    step_pipeline();
  } else if (config_.disable_overlap_schedule) {
    step_normal();
  } else {
    step_overlap();
  }
  if (config_.disaggregation.mode == DisaggregationMode::kPrefill) notice_transfers();
}

LockstepBatch* Replica::get_next_batch_to_run(std::uint32_t micro_batch) {
  LockstepBatch* const batch = schedulers_.get_next_batch_to_run(now_, micro_batch);
  say_what_queues_did();
  return batch;
}

void Replica::say_what_queues_did() {
  if (config_.disaggregation.mode == DisaggregationMode::kNull) return;
  double longest = 0;  // each data-parallel rank has a thread of its own
  std::size_t prebuilt = 0;
  for (std::size_t rank = 0; rank < schedulers_.size(); ++rank) {
    DisaggregationQueues& queues = *schedulers_.scheduler(rank).queues();
    longest = std::max(longest, std::exchange(queues.thread_seconds, 0));
    prebuilt += queues.prebuilt.size();
    for (const KvMessage& message : queues.messages) events_.on_kv_message(message);
    queues.messages.clear();
  }
  now_ += longest;
  if (prebuilt == 0) return;
  result_.clear();
  side().process_batch_result_prebuilt(front_end_.stream(now_, prebuilt, 0), result_);
  gave_back_ = !result_.finished.empty();
  hand_on(now_);
}

void Replica::notice_transfers() {
  result_.clear();
  side().process_inflight_queue(now_, result_);
  if (result_.finished.empty()) return;
  idle_ = false;  // there are pages for what waits
  hand_on(now_);
}

void Replica::prefill_refused(std::uint64_t id, double time) {
  now_ = std::max(now_, time);
  idle_ = false;
  side().on_prefill_refused(id);
}

// When the last launch of `pass`, that comes after queued_, finds room in the device's queue.
double Replica::queue_room_time(const QueuedPass& pass) const {
  const double room = config_.launch_queue;
  if (room <= 0) return 0;
  if (pass.launches > room) return pass.time_with(room);
  if (pass.launches + queued_.launches > room) return queued_.time_with(room - pass.launches);
  return 0;
}

void Replica::receive() {
  if (!looks_for_requests()) return;
  if (config_.hicache.enabled()) schedulers_.set_host_time(now_);
  for (; !cancelled_.empty(); cancelled_.pop_front()) schedulers_.cancel(cancelled_.front().id, micro_batch_);
  while (front_end_.next_time() <= look_) {
    RequestSource::Sent sent = front_end_.pop();
    const double images = sent.request->image_receive_seconds;
    schedulers_.add_request(sent.id, std::move(sent.request), sent.time);
    if (front_end_config_.prepares_images) now_ += images;
  }
}

// Whether requests are seen though the scheduler's thread is still launching: time the host takes beyond
// forming a pass is then none of theirs.
bool Replica::looks_when_formed() const {
  return !front_end_config_.by_socket && config_.scheduler_step_seconds > 0 &&
         !config_.disable_overlap_schedule && !config_.pipeline.staged();
}

// Whether the scheduler looks at what has come since, as SGLang's SchedulerRecvSkipper decides. Rounds
// without a pass take no time and count till it looks.
bool Replica::looks_for_requests() {
  const bool decoded = last_mode_ == proto::DECODE || last_mode_ == proto::TARGET_VERIFY;
  if (decoded && ++passes_since_look_ < config_.recv_interval) return false;
  passes_since_look_ = 0;
  return true;
}

void Replica::step_normal() {
  LockstepBatch* batch = get_next_batch_to_run();
  last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
  if (batch == nullptr) {
    idle();
    return;
  }
  const Launched launched = launch(*batch);
  now_ = launched.end;
  finish(launched);
}

// The next pass is formed and launched while the one before still runs; only then is its result looked at,
// however long the launch takes: the first tokens of a prefill wait until a prefill after it is issued.
void Replica::step_overlap() {
  LockstepBatch* batch = get_next_batch_to_run();
  last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
  Launched launched;
  if (batch != nullptr) {
    launched = launch(*batch);
    now_ = launched.returned;
    look_ += config_.scheduler_step_seconds;
  }
  if (pending_.batch != nullptr) {
    now_ = std::max(now_, pending_.end);
    look_ = std::max(look_, pending_.end);
    // A snapshot that the radix cache takes over is read by the host (mem_cache/memory_pool.py: `.item()` of
    // the donated slot), on a stream that stands behind the pass launched meanwhile (managers/scheduler.py:
    // _apply_war_barrier; graphs of decodes have an event of their own). Met by a server of 0.5.16: first
    // tokens of Qwen3.5 come when the next prefill ends.
    if (pending_.snapshots && launched.fenced) {
      now_ = std::max(now_, launched.end);
      look_ = std::max(look_, now_);
    }
    if (batch != nullptr) host_.launch_queue_delay += now_ - std::max(launched.issued, pending_.end);
    finish(pending_);
  } else if (batch == nullptr) {
    look_ = now_;
    idle();
    return;
  }
  pending_ = launched;
}

// SGLang's event_loop_pp, one turn of it: a micro-batch is launched, then the tokens of the next, which runs
// longest, are waited for. Idle time passes between two rounds of all micro-batches, so that what comes then
// meets the first; a server goes on round and round.
void Replica::step_pipeline() {
  const std::uint32_t i = micro_batch_;
  micro_batch_ = (i + 1) % static_cast<std::uint32_t>(in_flight_.size());
  if (i == 0) round_idles_ = true;
  Launched& next = in_flight_[micro_batch_];
  LockstepBatch* batch = get_next_batch_to_run(i);
  last_mode_ = batch == nullptr ? proto::IDLE : batch->forward_mode;
  if (batch != nullptr) {
    // With buffered micro-batches the stream receives those tokens before it runs this one.
    in_flight_[i] = launch(*batch, config_.pipeline.async_batch_depth > 0 ? next.end : 0);
    now_ += config_.scheduler_step_seconds;
    round_idles_ = false;
  }
  if (next.batch != nullptr) {
    now_ = std::max(now_, next.end);
    finish(next);
    next = {};
    round_idles_ = false;
  }
  if (micro_batch_ == 0 && round_idles_) idle();
}

void Replica::idle() {
  const bool more = front_end_.next_time() != RequestSource::kNever || events_.more_to_come();
  idle_ = !schedulers_.on_idle(more) && !std::exchange(gave_back_, false);
}

// `not_before`: of pipeline stages, when the first may begin.
Replica::Launched Replica::launch(LockstepBatch& batch, double not_before) {
  schedulers_.write_forward_batch(batch, sequence_number_++, message_);
  const StepOutcome outcome = executor_.forward(message_);
  schedulers_.take_sampled(batch, outcome);
  const double compiling = compile_seconds(batch);
  const double gap = config_.pass_gap_seconds + config_.pass_gap_request_seconds * batch.decode_requests;
  double work = config_.scheduler_step_seconds, serial = 0;
  if (batch.extend_requests == 0) {
    // Each data-parallel rank's scheduler is a process of its own.
    work = config_.decode_step_seconds +
           config_.decode_request_seconds * batch.decode_requests / config_.data_parallel.size;
  } else if (!config_.pipeline.staged()) {
    if (config_.disable_overlap_schedule) {
      serial = config_.serial_extend_seconds;
    } else {
      work += config_.forming_extend_seconds;
    }
  }
  const HostWork tier = config_.hicache.enabled() ? schedulers_.take_host_work() : HostWork{};
  const double forming = work + compiling + serial + tier.cpu_seconds;
  const double host = forming + outcome.host_time;
  double start, gpu_seconds = outcome.step_time;
  if (config_.pipeline.staged()) {
    const PipelineTimeline::Pass pass = pipeline_.launch(now_ + host, forming, not_before, outcome.stages);
    start = pass.start;
    gpu_free_ = pass.end;
    gpu_seconds = PipelineTimeline::busy_seconds(outcome.stages);
  } else {
    start = std::max(gpu_free_ + gap, now_ + host);
    gpu_free_ = tier.end_of_pass(start, outcome.step_time);
  }
  double returned = now_ + forming;
  if (outcome.issue_time > 0) returned = now_ + host + outcome.issue_time;
  const double issued = returned;
  if (!config_.pipeline.staged()) {
    const QueuedPass queued{start, gpu_free_, outcome.launches};
    returned = std::max(returned, queue_room_time(queued));
    queued_ = queued;
  }
  host_.forming += work;
  host_.planning += outcome.host_time;
  host_.issuing += outcome.issue_time;
  host_.compiling += compiling;
  host_.between_passes += serial + (config_.pipeline.staged() ? 0 : gap);
  if (!config_.disable_overlap_schedule) host_.launch_queue += returned - issued;
  StepRecord times;
  times.start_time = start;
  times.step_time = tier.layers > 0 ? gpu_free_ - start : outcome.step_time;
  times.formed_time = now_;
  times.returned_time = returned;
  if (config_.pipeline.staged()) {
    times.step_time = gpu_free_ - start;
    times.returned_time = now_ + config_.scheduler_step_seconds;
    times.stages = pipeline_.last_pass();
  }
  record_step(batch, times, gpu_seconds);
  if (config_.check_invariants) schedulers_.check_invariants();
  const bool prefills = batch.extend_requests > 0;
  return {&batch,
          gpu_free_,
          returned,
          issued,
          prefills && config_.states.read_behind_next_pass && takes_snapshots(message_),
          prefills || batch.capture_bucket == 0};
}

double Replica::compile_seconds(const LockstepBatch& batch) {
  double seconds = 0;
  if (!compiled_batch_ && batch.extend_requests > 1) {
    seconds += config_.compile_batch_seconds;
    compiled_batch_ = true;
  }
  // The budget of a chunk counts each request's last page whole.
  const std::uint64_t budget = batch.extend_tokens + std::uint64_t{batch.extend_requests} * config_.page_size;
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

void Replica::finish(const Launched& launched) {
  LockstepBatch& batch = *launched.batch;
  result_.clear();
  const bool streams = config_.disaggregation.mode != DisaggregationMode::kPrefill;
  double seen = now_;
  if (streams) {
    const std::uint64_t answered =
        front_end_config_.copy_seconds > 0 ? schedulers_.answered_tokens(batch) : 0;
    seen = front_end_.stream(now_, batch.extend_requests, batch.decode_requests, answered);
  }
  schedulers_.process_batch_result(batch, seen, result_);
  // Copies of what ended are issued before its last token is sent.
  if (config_.hicache.enabled()) now_ += schedulers_.take_host_work().cpu_seconds;
  if (!streams) say_what_queues_did();
  hand_on(launched.end);
  if (config_.check_invariants) schedulers_.check_invariants();
}

// Clients get what result_ has.
void Replica::hand_on(double kv_ready) {
  result_.time = front_end_.seen(now_);
  for (const Req* req : result_.kv_ready) events_.on_kv_ready(*req, kv_ready);
  if (!result_.tokens.empty()) events_.on_tokens(result_);
  for (const Req* req : result_.finished) {
    const RequestState state = req->cancelled ? RequestState::kCancelled : RequestState::kCompleted;
    front_end_.leave();
    events_.on_finished(*req, state, nullptr, result_.time);
  }
}

void Replica::on_rejected(const Req& req, const char* because) {
  const double seen = front_end_.seen(now_);
  front_end_.leave();
  if (req.cancelled) {
    events_.on_finished(req, RequestState::kCancelled, nullptr, seen);
  } else {
    events_.on_finished(req, RequestState::kRejected, because, seen);
  }
}

// `record`: with its times.
void Replica::record_step(const LockstepBatch& batch, StepRecord record, double gpu_seconds) {
  const DataParallelGroup::Totals totals = schedulers_.totals();
  record.sequence_number = message_.sequence_number();
  record.forward_mode = batch.forward_mode;
  record.extend_requests = batch.extend_requests;
  record.extend_tokens = batch.extend_tokens;
  record.cached_tokens = batch.cached_tokens;
  record.decode_requests = batch.decode_requests;
  record.decode_tokens = batch.decode_tokens;
  record.capture_bucket = batch.capture_bucket;
  record.waiting = static_cast<std::uint32_t>(totals.waiting);
  record.running = static_cast<std::uint32_t>(totals.running);
  record.pools = totals.pools;
  events_.on_step(record, gpu_seconds, batch.computed());
}

PipelineTimeline::Pass PipelineTimeline::launch(double issued, double host, double not_before,
                                                std::span<const StageOutcome> stages) {
  if (stages.size() != stages_.size())
    throw std::logic_error("the executor prices another number of pipeline stages than are scheduled");
  Pass pass;
  double there = not_before;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageOutcome& outcome = stages[i];
    Stage& stage = stages_[i];
    const double start = std::max({stage.free, issued + static_cast<double>(i) * host, there});
    if (i == 0) pass.start = start;
    const bool last = i + 1 == stages.size();
    const double done = start + outcome.seconds;
    last_pass_[i] = {.start = start, .end = done, .sent = done + outcome.send};
    stage.free = last ? done : done + outcome.send;
    stage.busy += outcome.seconds;
    stage.sending += outcome.send;
    there = done + outcome.send + (last ? 0 : stages[i + 1].receive);
  }
  pass.end = there;
  under_way_ += std::max(0.0, pass.end - std::max(pass.start, last_end_));
  last_end_ = std::max(last_end_, pass.end);
  return pass;
}

double PipelineTimeline::busy_seconds(std::span<const StageOutcome> stages) {
  double sum = 0;
  for (const StageOutcome& stage : stages) sum += stage.seconds;
  return sum / static_cast<double>(stages.size());
}

void PipelineTimeline::write_report(proto::RunReport& report) const {
  double busy = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    proto::PipelineStage& out = *report.add_pipeline_stages();
    out.set_pp_rank(static_cast<std::uint32_t>(i));
    out.set_busy_seconds(stages_[i].busy);
    out.set_send_seconds(stages_[i].sending);
    out.set_idle_fraction(under_way_ > 0 ? std::max(0.0, 1 - stages_[i].busy / under_way_) : 0);
    busy += stages_[i].busy;
  }
  const double all = under_way_ * static_cast<double>(stages_.size());
  report.set_pipeline_bubble_fraction(all > 0 ? std::max(0.0, 1 - busy / all) : 0);
}

void PipelineTimeline::reset() { *this = PipelineTimeline(stages_.size()); }

}  // namespace tpsim::scheduler
