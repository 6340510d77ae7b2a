// Continuous batching: SGLang's Scheduler without its process, sockets and clock.
//
// A DataParallelGroup calls begin_pass() and end_pass(), an executor carries the batch out, and the group
// hands it back to process_batch_result() when its result is known: at once, or, with overlap scheduling,
// after the next batch has been formed. As in SGLang, a request that ends unforeseen is then still part of
// one more decode pass, whose token is dropped.
//
// Source of the rules: SGLang 0.5 scheduler.py, schedule_batch.py, mem_cache/common.py; what differs between
// releases is in sglang_release.h. recorded_schedules_test.cc makes recordings of SGLang again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "proto/forward.pb.h"
#include "scheduler/config.h"
#include "scheduler/disaggregation/queues.h"
#include "scheduler/executor.h"
#include "scheduler/kv_pool.h"
#include "scheduler/policy.h"
#include "scheduler/prefill_adder.h"
#include "scheduler/req.h"
#include "scheduler/steady_decode.h"

namespace tpsim::scheduler {

// One launched pass. The first num_extend requests are its extend part, the rest decode: one token, or
// (TARGET_VERIFY) as many as accept_lens says.
struct ScheduleBatch {
  proto::ForwardMode forward_mode = proto::IDLE;
  std::uint32_t micro_batch = 0;
  std::vector<Req*> reqs;
  std::size_t num_extend = 0;
  Req* chunked_req = nullptr;  // prefill not finished by this pass: no token
  std::uint32_t extend_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t capture_bucket = 0;
  // TARGET_VERIFY: tokens that each request keeps. Modeled: drawn when the pass was formed; numeric:
  // computed.
  std::vector<std::uint32_t> accept_lens;
  std::int64_t steady_pass = SteadyDecode::kNoPass;  // its number, where it is counted (steady_decode.h)
  // Numeric execution: the tokens of each request, one after the other, and the logits of the extend part
  // where asked for.
  std::vector<std::uint32_t> next_token_ids;
  std::vector<std::uint32_t> first_token;  // of each request among them, where accept_lens says how many
  std::vector<float> extend_logits;

  // State of a checkpoint (proto/base/archive.h). Not of numeric execution.
  auto state() {
    return std::tie(forward_mode, micro_batch, num_extend, extend_tokens, cached_tokens, capture_bucket,
                    accept_lens, reqs, chunked_req);
  }
};

class Scheduler {
 public:
  // Called once for each request that leaves outside of a pass: refused, with the reason, or cancelled, null.
  using OnRejected = std::function<void(const Req&, const char* because)>;
  // Called for runs of requests that got a token `gap` seconds after their previous one.
  using OnInterToken = std::function<void(double gap, std::uint32_t count)>;

  Scheduler(const SchedulerConfig& config, OnRejected on_rejected, OnInterToken on_inter_token);

  // A request arrives. Rejected at once where its prompt cannot fit the context or the pool; its output is
  // clipped to what fits.
  void add_request(std::uint64_t id, RequestPtr source, double now);

  // Why such a request is refused when it comes; null: it is not.
  const char* refusal(const WorkloadRequest& source) const;

  // Where prefill and decode are split (scheduler/disaggregation/), else null.
  DisaggregationQueues* queues() { return queues_.get(); }
  // Prefill: at `time` it knows that the decode server has pages for request `id`. Returns whether that waits
  // for them.
  bool on_pages(std::uint64_t id, double time, std::uint32_t prefix);
  // The KV of request `id` is at the decode server at `time`, as the side that is told notices; `prefilled`
  // is what else comes with it.
  void on_kv(std::uint64_t id, double time, const KvTransfer& prefilled);
  // Decode: the prefill server gives request `id` up.
  void on_prefill_refused(std::uint64_t id);
  // Prefill, every turn of the loop: requests whose transfer has ended by `now` give their pages back.
  void process_inflight_queue(double now, PassResult& result);
  // Decode, after begin_pass(): clients get the first tokens of what entered the batch at `now`.
  void process_batch_result_prebuilt(double now, PassResult& result);
  // When one of the calls above has something to do; seconds.
  double next_transfer_time() const;

  // The client of request `id` wants no more of it, before the pass of `micro_batch` is formed: SGLang's
  // abort_request(). One that waits leaves at once, and one between the chunks of its prompt, of which all
  // but the last computed one are cached. One that runs leaves with its next token; all its KV is cached, as
  // of one that ends. Where a release loses the abort the request goes on to its end. Returns whether `id`
  // was here and is cancelled for the first time.
  bool cancel(std::uint64_t id, std::uint32_t micro_batch = 0);

  // SGLang's get_next_batch_to_run() in two halves, for ranks that must know whether another one prefills:
  // the pass of `micro_batch` that prefills, or null; then what is run, or null where there is nothing to
  // run, with one more token for those that decode unless `may_decode` is false. The batch stays valid until
  // process_batch_result(). At most two are out at a time; with pipeline stages, one of each micro-batch.
  ScheduleBatch* begin_pass(double now, std::uint32_t micro_batch);
  ScheduleBatch* end_pass(ScheduleBatch* prefill, bool may_decode);
  // begin_pass() in two halves, where ranks agree whether to prefill (prefill_delayer.h): what this one says,
  // and what it does when it knows.
  PrefillBid bid_for_prefill(double now, std::uint32_t micro_batch);
  ScheduleBatch* prefill_as_agreed(double now, const PrefillBid& bid, bool allowed);
  // Moves the metadata of `batch` (deltas since the batch before) into `message`.
  void write_forward_batch(const ScheduleBatch& batch, proto::ForwardBatch& message);
  // The same of a pass in which only other data-parallel ranks have something to run.
  void write_idle_batch(std::uint32_t capture_bucket, proto::ForwardBatch& message);
  // What numeric execution sampled in `batch`; kept until process_batch_result(). Call it right after the
  // pass was launched. Throws std::logic_error where a request of the batch has no token.
  void take_sampled(ScheduleBatch& batch, const StepOutcome& outcome);
  // The tokens of `batch` arrive at `now`. Adds what it produced to `result`.
  void process_batch_result(ScheduleBatch& batch, double now, PassResult& result);

  // Nothing to run and nothing in flight: forgets the estimates where nothing waits either, and rejects the
  // request at the head of the queue where even an idle server did not admit it (SGLang would wait for
  // ever), with a window pool only where no request is to come. Returns whether another attempt may do
  // something.
  bool on_idle(bool more_to_come);

  // When what on_idle() leaves waiting can be tried again though nothing else happens; seconds of the run's
  // clock, infinity: never.
  double next_host_copy() const {
    return waiting_.empty() ? HiCacheController::kNever : pool_.next_host_copy();
  }
  // What the host tier asks of the next pass, or of the thread; since the last call.
  HostWork take_host_work() { return pool_.hicache() != nullptr ? pool_.hicache()->take_work() : HostWork{}; }
  void set_host_time(double now) {
    if (pool_.hicache() != nullptr) pool_.hicache()->set_time(now);
  }
  // Copies are done, whenever that would be, and their clock begins again.
  void finish_host_copies() {
    if (pool_.hicache() != nullptr) pool_.hicache()->finish_all();
  }

  void clear_host_counts() {
    if (pool_.hicache() != nullptr) pool_.hicache()->clear_counts();
  }

  // Whether request `id` is here and not cancelled.
  bool serves(std::uint64_t id) const { return find(id) != nullptr; }
  const WaitingQueue& waiting_queue() const { return waiting_; }
  // Requests without a place in the pool; and with the tokens that they ask for.
  std::size_t num_waiting() const;
  RoutedReplicas::Load waiting() const;
  std::size_t num_running() const { return active_; }
  // Whether the running batch names any, perhaps only such as have ended.
  bool may_decode() const { return !running_.reqs.empty(); }
  // Tokens that the answers of the batch's decoding requests have, before process_batch_result().
  std::uint64_t answered_tokens(const ScheduleBatch& batch) const;
  const KvPool& pool() const { return pool_; }
  // Empties the prefix cache (SGLang's /flush_cache). REQUIRES: no request is live.
  void flush_cache() {
    settle();
    pool_.flush();
  }
  std::uint64_t retractions() const { return retractions_; }
  // Of the requests that were retracted: their prompts, and the answers that they had so far.
  std::uint64_t retracted_input_tokens() const { return retracted_input_tokens_; }
  std::uint64_t retracted_output_tokens() const { return retracted_output_tokens_; }
  double new_token_ratio() const { return new_token_ratio_.current(); }
  // Speculative decoding: entry i counts the steps of a request that kept i + 1 tokens.
  const std::vector<std::uint64_t>& accept_histogram() const { return accept_histogram_; }
  void clear_accept_histogram() { accept_histogram_.assign(accept_histogram_.size(), 0); }
  // What is neither finished nor rejected, in no order.
  std::vector<const Req*> unfinished();
  // allocated + free + cached = capacity; throws std::logic_error.
  void check_invariants();

  // State of a checkpoint (proto/base/archive.h). Not of numeric execution.
  template <typename Archive>
  void serialize(Archive& archive) {
    if constexpr (!Archive::kReads) settle();  // steps that are noted only
    archive(pool_, policy_, new_token_ratio_, arena_, free_reqs_, retired_, ended_running_, waiting_,
            preempted_, chunked_req_);
    archive.owned(batches_);
    archive(last_batch_, formed_last_, pass_time_, active_, running_, running_may_have_finished_,
            running_may_finish_, queue_entries_, next_batch_, selected_, prefill_sizes_);
    for (MicroBatch& micro_batch : put_away_) archive(micro_batch);
    archive(next_output_base_, retractions_, retracted_input_tokens_, retracted_output_tokens_,
            accept_histogram_, gap_, gap_count_, idle_retried_);
  }

 private:
  // SGLang's running_batch: the flag belongs to the batch and goes with it.
  struct RunningBatch {
    std::vector<Req*> reqs;
    bool batch_is_full = false;

    auto state() { return std::tie(reqs, batch_is_full); }
  };

  // What each micro-batch has of its own: SGLang's running_mbs and last_mbs.
  struct MicroBatch {
    RunningBatch running;
    bool running_may_have_finished = false;
    bool running_may_finish = false;
    ScheduleBatch* last_batch = nullptr;
    std::size_t next_batch = 0;

    auto state() {
      return std::tie(running, running_may_have_finished, running_may_finish, next_batch, last_batch);
    }
  };

  void select(std::uint32_t micro_batch);
  void merge_last_extend();
  std::optional<std::int32_t> priority_of(const WorkloadRequest& source) const;
  void set_priority(Req& req);
  void prefetch(Req& req);
  void enqueue(Req& req);
  std::size_t num_allocatable_reqs(std::size_t held_rows) const;
  bool preempts() const;
  bool preempt_to_schedule(const Req& req, PrefillAdder& adder);
  void return_preempted(bool admitted);
  bool open_pass(double now, std::uint32_t micro_batch);
  ScheduleBatch* get_new_batch_prefill(double now);
  void admit_waiting(PrefillAdder& adder);
  void free_behind_chunks(const std::vector<Req*>& admitted);
  void fill_prefill(ScheduleBatch& batch, const PrefillAdder& adder, double now);
  void mix_with_running(ScheduleBatch& batch);
  ScheduleBatch* update_running_batch();
  bool filter_running();
  bool leaves_early() const { return rules_.skip_finishing_decode && !config_.disable_overlap_schedule; }
  bool leave_finishing();
  // Whether one more token is its last, whatever it is.
  static bool finishes_by_length(const Req& req) { return req.output_len + 1 >= req.max_new_tokens; }
  void retract_decode();
  void give_up(Req& req, std::size_t remaining);
  bool check_decode_mem(const std::vector<Req*>& reqs);
  std::uint64_t new_tokens_required_next_decode(const std::vector<Req*>& reqs) const;
  std::uint32_t speculative_reach(const Req& req) const;
  void reserve_for_drafts(const std::vector<Req*>& reqs);
  void prepare_for_verify(ScheduleBatch& batch);
  bool decode_fits(const std::vector<Req*>& reqs);
  void prepare_for_decode(std::vector<Req*>& reqs);
  void match_prefix_for_admission(Req& req);
  void tokens_arrived(Req& req, std::uint32_t count, double now, PassResult& result);
  void add_gap(double gap, std::uint32_t count) {
    if (gap != gap_) {
      flush_inter_token();
      gap_ = gap;
    }
    gap_count_ += count;
  }
  bool counts_decodes() const;
  void begin_steady();
  void join_steady(Req& req);
  void process_steady(double now, PassResult& result);
  void settle();
  bool claims_bonus() const;
  std::uint32_t keep_accepted(Req& req, const ScheduleBatch& batch, std::size_t position,
                              std::uint32_t count);
  void keep_sampled(Req& req, const ScheduleBatch& batch, std::size_t position);
  bool is_finished(const Req& req) const;
  void flush_inter_token();
  bool prefills_only() const { return config_.disaggregation.mode == DisaggregationMode::kPrefill; }
  bool decodes_only() const { return config_.disaggregation.mode == DisaggregationMode::kDecode; }
  const char* refusal_of_side(std::uint64_t input_tokens) const;
  void enqueue_on_side(Req& req);
  std::optional<bool> on_idle_side();
  void pop_bootstrapped();
  void process_prefill_chunk();
  void process_prefilled(Req& req, bool goes_on, double now);
  void send_kv_chunk(Req& req, std::uint32_t end, bool last, double now);
  void process_decode_queue();
  void resume_retracted_reqs();
  void pop_preallocated();
  void pop_transferred();
  void get_new_prebuilt_batch();
  bool pre_alloc(Req& req);
  // Of a decode server that keeps prefixes: locks what it has of the first `limit` tokens; gives that up.
  void match_on_decode_side(Req& req, std::uint32_t limit);
  void unmatch_on_decode_side(Req& req);
  void keep_arrived(Req& req);
  std::int64_t allocatable_tokens(std::int64_t need_for_single) const;
  bool leave_side(Req& req, const char* because);
  void give_pages_back(Req& req);
  void spend_on_prompt(const Req& req, double seconds, double token_seconds);
  Req* find(std::uint64_t id) const;
  bool abort_reaches(const Req& req) const;
  void finish(Req& req);
  void reject(Req& req, const char* because);
  void recycle();
  ScheduleBatch& take_batch();

  SchedulerConfig config_;
  ReleaseRules rules_;
  std::uint32_t max_req_len_, max_req_input_len_;  // tokens
  OnRejected on_rejected_;
  OnInterToken on_inter_token_;
  KvPool pool_;
  WaitingQueuePolicy policy_;
  NewTokenRatio new_token_ratio_;

  std::vector<std::unique_ptr<Req>> arena_;  // every Req ever made; free ones are reused
  std::vector<Req*> free_reqs_;
  std::vector<Req*> retired_;  // finished or rejected, perhaps still named by a list or a pass
  std::size_t active_ = 0;     // requests with KV slots

  WaitingQueue waiting_;
  // Of the selected micro-batch; those of the others are put away.
  RunningBatch running_;
  std::vector<Req*> preempted_;  // in this pass
  bool running_may_have_finished_ = false;
  bool running_may_finish_ = false;  // by length, with the token in flight
  std::uint64_t queue_entries_ = 0;
  double pass_time_ = 0;  // when the pass that is formed was begun
  // Of the pass that is formed: whether requests may be admitted, whether one asked to be, and whether the
  // queue is in its order.
  bool admits_ = true, asked_ = false, sorted_ = false;
  PrefillSizes prefill_sizes_;
  Req* chunked_req_ = nullptr;
  ScheduleBatch* last_batch_ = nullptr;
  std::vector<ScheduleBatch> batches_;  // two of each micro-batch
  std::size_t next_batch_ = 0;
  std::uint32_t selected_ = 0;
  const ScheduleBatch* formed_last_ = nullptr;  // of whichever micro-batch: SGLang's cur_batch
  std::vector<MicroBatch> put_away_;

  kvcache::TokenId next_output_base_ = kGeneratedTokenBase;
  std::uint64_t retractions_ = 0;
  std::uint64_t retracted_input_tokens_ = 0, retracted_output_tokens_ = 0;
  std::vector<std::uint64_t> accept_histogram_;
  double gap_ = 0;
  std::uint32_t gap_count_ = 0;
  SteadyDecode steady_;
  std::vector<Req*> ended_running_;  // of the running batch, since filter_running()
  PrefillAdder::Lists adder_lists_;
  bool computes_ = false;      // the executor samples: tokens must be looked at
  bool shows_tokens_ = false;  // the result processed last asks which got them
  bool idle_retried_ = false;
  std::unique_ptr<DisaggregationQueues> queues_;
};

}  // namespace tpsim::scheduler
