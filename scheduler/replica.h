// One SGLang server as something that is stepped: front end, scheduler and executor, and the event loops of
// SGLang's scheduler (event_loop_normal, event_loop_overlap, event_loop_pp) round by round.
//
// A replica owns no clock. Its time is that of its scheduler's thread; advance() carries out the round that
// is due at next_event_time() and moves it on to the end of that round, as the executor says. What a client
// sends up to next_event_time() is submitted before.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <tuple>
#include <vector>

#include "proto/forward.pb.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/data_parallel_group.h"
#include "scheduler/executor.h"
#include "scheduler/front_end.h"
#include "scheduler/records.h"
#include "scheduler/req.h"
#include "scheduler/request_source.h"

namespace tpsim::scheduler {

// Who listens to a replica. Called within submit(), cancel() and advance(), with times of the replica's
// clock: what a client sees lies at or after the time of the call.
class ReplicaEvents {
 public:
  virtual ~ReplicaEvents() = default;
  // Whether submit() may be called again, should nothing else happen.
  virtual bool more_to_come() const = 0;
  // Whether on_tokens() is wanted: passes without a listener do not collect them.
  virtual bool wants_tokens() const { return false; }
  // Requests that got tokens, those that end with them included; their clients see them at `result.time`.
  virtual void on_tokens(const PassResult&) {}
  // Where prefill and decode are split: what the other side is to know.
  virtual void on_kv_message(const KvMessage&) {}
  // The KV of all of a prompt is there, at `time`.
  virtual void on_kv_ready(const Req&, double /*time*/) {}
  // The request left; its client sees it at `time`. `because`: of a refused one. Comes once for each that was
  // submitted, cancelled ones too.
  virtual void on_finished(const Req& req, RequestState state, const char* because, double time) = 0;
  // Runs of requests that got a token `gap` seconds after the one before.
  virtual void on_inter_token(double gap, std::uint32_t count) = 0;
  // A pass was launched, for `gpu_seconds`. `computed`: numeric execution, which takes as long as it says.
  virtual void on_step(const StepRecord& record, double gpu_seconds, bool computed) = 0;
};

// When each pipeline stage works on which micro-batch, and how long none of its GPUs do.
//
// A stage begins a micro-batch when it is free, its host has issued the kernels, and what the stage before
// sends is there. Sending keeps a stage: the next pass waits for the stream on which the send runs
// (_pp_commit_proxy_send_work and _pp_wait_forward_dependencies in managers/scheduler_pp_mixin.py; so without
// SGLANG_PP_COMM_OVERLAP, the default). Receiving does not. Every stage runs the same scheduler; it goes on
// when the stage before has launched its next micro-batch, so each is one step of the host behind.
class PipelineTimeline {
 public:
  explicit PipelineTimeline(std::size_t stages) : stages_(stages), last_pass_(stages) {}

  // All times in seconds of the run's clock.
  struct Pass {
    double start = 0;  // first kernel, on the first stage
    double end = 0;    // the tokens are with the first stage's scheduler
  };
  // `issued`: the first stage's kernels; the others' follow after `host` each. `not_before`: the first stage
  // waits until then, issued or not. REQUIRES: as many stages as the constructor was told.
  Pass launch(double issued, double host, double not_before, std::span<const StageOutcome> stages);

  // Kernels of all stages together in the pass launched last, over the number of stages.
  static double busy_seconds(std::span<const StageOutcome> stages);
  // The stages in the pass launched last; valid until the next.
  std::span<const StageTimes> last_pass() const { return last_pass_; }

  // What the stages did since the last reset(), into pipeline_stages and pipeline_bubble_fraction: of the
  // time in which some micro-batch was under way, the part in which the stages, on average, computed nothing.
  void write_report(proto::RunReport& report) const;
  // The clock begins again at 0.
  void reset();

  auto state() { return std::tie(stages_, under_way_, last_end_); }

 private:
  struct Stage {
    double free = 0;  // can begin the next pass
    double busy = 0, sending = 0;
  };
  std::vector<Stage> stages_;
  std::vector<StageTimes> last_pass_;
  double under_way_ = 0;  // seconds in which some pass was
  double last_end_ = 0;
};

class Replica {
 public:
  // All references must outlive it. Throws UserError for a configuration that cannot be carried out.
  Replica(const SchedulerConfig& config, const FrontEndConfig& front_end, Executor& executor,
          ReplicaEvents& events);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // A client sends a request at `sent.time`. REQUIRES: not before the one of the last call.
  void submit(const RequestSource::Sent& sent);
  // At `time` the client of request `id` wants no more of it (SGLang's abort_request). Before it has reached
  // the scheduler it never does; else the scheduler learns of it in its next round (Scheduler::cancel()).
  // Returns whether the request was here and was cancelled for the first time; it is over with
  // on_finished(), as kCancelled. REQUIRES: `time` is not before the one of the last call, nor after
  // next_event_time().
  bool cancel(std::uint64_t id, double time);
  // When advance() has something to do; kNever: nothing until a submit().
  double next_event_time() const;
  // One round of the scheduler's event loop. REQUIRES: next_event_time() is not kNever. Throws what the
  // executor throws.
  void advance();

  double now() const { return now_; }
  const DataParallelGroup& schedulers() const { return schedulers_; }
  // The schedulers of a server that prefills or decodes only, for what the other side says.
  DataParallelGroup& side() { return schedulers_; }
  // Decode: at `time` the prefill server gives request `id` up. REQUIRES: not after next_event_time().
  void prefill_refused(std::uint64_t id, double time);
  // SGLang's /flush_cache. REQUIRES: nothing runs or waits.
  void flush_cache() { schedulers_.flush_cache(); }
  // Time, queues in front of the scheduler and the figures of the report begin again; what is cached and
  // compiled stays. REQUIRES: nothing runs or waits.
  void restart_clock();
  // What the schedulers, the pools of states and the stages did.
  void write_report(proto::RunReport& report) const;

  // State of a checkpoint (proto/base/archive.h). Not of numeric execution.
  auto state() {
    return std::tie(front_end_, cancelled_, host_, schedulers_, pending_, queued_, pipeline_, in_flight_,
                    micro_batch_, round_idles_, idle_, sequence_number_, now_, look_, gpu_free_, last_mode_,
                    passes_since_look_, compiled_batch_, compiled_chunk_, compiled_decode_);
  }

 private:
  struct Launched {
    LockstepBatch* batch = nullptr;
    double end = 0;
    double returned = 0;     // when the scheduler's thread has issued it and goes on
    double issued = 0;       // the same had the device's queue room for all
    bool snapshots = false;  // a prefill that leaves snapshots of states to the radix cache
    bool fenced = false;  // not a graph of decodes: what the scheduler's stream does next waits for its end

    auto state() { return std::tie(batch, end, returned, issued, snapshots, fenced); }
  };

  struct Cancelled {
    std::uint64_t id = 0;
    double time = 0;
  };

  // What the device has to do for one pass.
  struct QueuedPass {
    double start = 0, end = 0, launches = 0;
    // When all but `left` of its launches have run; they run evenly.
    double time_with(double left) const { return end - (end - start) * left / launches; }
  };

  // Of the scheduler's thread, as proto::HostSeconds.
  struct HostSeconds {
    double forming = 0, planning = 0, issuing = 0, launch_queue = 0, launch_queue_delay = 0;
    double between_passes = 0, compiling = 0;
  };

  double queue_room_time(const QueuedPass& pass) const;
  void receive();
  bool looks_when_formed() const;
  bool looks_for_requests();
  void step_normal();
  void step_overlap();
  void step_pipeline();
  void idle();
  LockstepBatch* get_next_batch_to_run(std::uint32_t micro_batch = 0);
  void say_what_queues_did();
  void notice_transfers();
  void hand_on(double kv_ready);
  Launched launch(LockstepBatch& batch, double not_before = 0);
  double compile_seconds(const LockstepBatch& batch);
  void finish(const Launched& launched);
  void record_step(const LockstepBatch& batch, StepRecord record, double gpu_seconds);
  void on_rejected(const Req& req, const char* because);

  const SchedulerConfig& config_;
  const FrontEndConfig front_end_config_;
  Executor& executor_;
  ReplicaEvents& events_;
  FrontEnd front_end_;
  std::deque<Cancelled> cancelled_;  // of which the scheduler has not learnt yet
  DataParallelGroup schedulers_;
  proto::ForwardBatch message_;
  PassResult result_;
  Launched pending_;
  QueuedPass queued_;  // launched last
  PipelineTimeline pipeline_;
  std::vector<Launched> in_flight_;  // of each micro-batch
  std::uint32_t micro_batch_ = 0;    // whose turn it is
  bool round_idles_ = true;          // of the micro-batches so far
  bool idle_ = false;                // until a request reaches the scheduler
  bool gave_back_ = false;           // pages, in this round, of requests that ended with their first token
  std::uint64_t sequence_number_ = 0;
  HostSeconds host_;
  double now_ = 0;                              // of the scheduler's thread
  double look_ = 0;                             // what was there then it sees; now_ at the latest
  double gpu_free_ = 0;                         // when the last launched pass ends
  proto::ForwardMode last_mode_ = proto::IDLE;  // of the last round of the loop
  std::uint32_t passes_since_look_ = 0;
  bool compiled_batch_ = false;
  bool compiled_chunk_ = false;
  bool compiled_decode_ = false;
};

}  // namespace tpsim::scheduler
