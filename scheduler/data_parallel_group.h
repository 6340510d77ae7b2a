// The schedulers of a deployment with attention data parallelism, in lockstep: SGLang's
// DataParallelController and, of each data-parallel rank's Scheduler, what --enable-dp-attention adds.
//
// A request is dispatched to one rank, whose scheduler, KV pool and radix cache serve it alone. All ranks run
// every pass together, because the experts see the tokens of all of them: a rank without a batch of its own
// runs an idle one, graphs are replayed only where no rank extends, and then all replay the same size
// (prepare_mlp_sync_batch of SGLang 0.5: managers/scheduler_dp_attn_mixin.py, in 0.5.23
// scheduler_components/dp_attn.py; CudaGraphRunner.can_run). With speculative decoding, ranks that prefill
// and ranks that verify do not share a pass: while one prefills, those that do not are idle
// (Scheduler.get_next_batch_to_run).
//
// With one rank this is that rank's Scheduler: same passes, same messages. A steady step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/forward.pb.h"
#include "proto/report.pb.h"
#include "scheduler/config.h"
#include "scheduler/executor.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

// One pass of all data-parallel ranks.
struct LockstepBatch {
  std::vector<ScheduleBatch*> of_rank;  // null: idle
  std::uint32_t micro_batch = 0;
  // EXTEND, DECODE or TARGET_VERIFY where no rank does another, else MIXED.
  proto::ForwardMode forward_mode = proto::IDLE;
  std::uint32_t capture_bucket = 0;  // largest of the ranks; 0 = eager
  // Of all ranks together.
  std::uint32_t extend_requests = 0;
  std::uint32_t extend_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t decode_requests = 0;
  std::uint32_t decode_tokens = 0;  // that they get, where that is known

  // Whether numeric execution sampled in it.
  bool computed() const;

  auto state() {
    return std::tie(of_rank, micro_batch, forward_mode, capture_bucket, extend_requests, extend_tokens,
                    cached_tokens, decode_requests, decode_tokens);
  }
};

class DataParallelGroup {
 public:
  // REQUIRES: config.data_parallel.size >= 1. `config` is that of one rank: its pool, its limits.
  DataParallelGroup(const SchedulerConfig& config, const Scheduler::OnRejected& on_rejected,
                    const Scheduler::OnInterToken& on_inter_token);

  std::size_t size() const { return ranks_.size(); }

  // Dispatches a request that arrives.
  void add_request(std::uint64_t id, RequestPtr source, double now);
  // The rank that has it, 0 where none does.
  std::size_t rank_of(std::uint64_t id) const;
  // As Scheduler's, where prefill and decode are split. Pages may be there before their request is.
  const char* refusal(const WorkloadRequest& source) const {
    return ranks_.front().scheduler->refusal(source);
  }
  void on_pages(std::uint64_t id, double time, std::uint32_t prefix);
  void forget_pages(std::uint64_t id) { early_pages_.erase(id); }
  void on_kv(std::uint64_t id, double time, const KvTransfer& prefilled);
  void on_prefill_refused(std::uint64_t id);
  void process_inflight_queue(double now, PassResult& result);
  void process_batch_result_prebuilt(double now, PassResult& result);
  // As Scheduler::serves() and cancel(), of the rank that has it.
  bool serves(std::uint64_t id) const;
  bool cancel(std::uint64_t id, std::uint32_t micro_batch = 0);
  // The next pass of `micro_batch`, or null where no rank has anything to run. Valid until
  // process_batch_result(); at most two are out at a time; with pipeline stages, one of each micro-batch.
  LockstepBatch* get_next_batch_to_run(double now, std::uint32_t micro_batch = 0);
  void write_forward_batch(const LockstepBatch& batch, std::uint64_t sequence_number,
                           proto::ForwardBatch& message);
  void take_sampled(LockstepBatch& batch, const StepOutcome& outcome);
  // Tokens that the answers of its decoding requests have, before process_batch_result().
  std::uint64_t answered_tokens(const LockstepBatch& batch) const;
  // Adds what the pass produced to `result`, rank by rank.
  void process_batch_result(LockstepBatch& batch, double now, PassResult& result);
  // As Scheduler's, of the rank where it is first.
  double next_transfer_time() const;
  // As Scheduler::on_idle(), of every rank. REQUIRES: no pass is out.
  bool on_idle(bool more_to_come);

  // As Scheduler::next_host_copy(), take_host_work() and finish_host_copies(), of all ranks.
  double next_host_copy() const;
  HostWork take_host_work();
  void finish_host_copies();
  // It is `now`: what is copied from now on begins then.
  void set_host_time(double now);

  void flush_cache();
  // What is neither finished nor rejected, by its position in the workload.
  std::vector<const Req*> unfinished() const;
  void check_invariants() const;

  // Of all ranks together.
  struct Totals {
    std::size_t waiting = 0;
    std::size_t running = 0;
    PoolUses pools;
  };
  Totals totals() const;
  Totals totals_of(std::size_t rank) const;
  const Scheduler& scheduler(std::size_t rank) const { return *ranks_[rank].scheduler; }
  Scheduler& scheduler(std::size_t rank) { return *ranks_[rank].scheduler; }
  // What a dispatcher balances: requests that run or wait, and the tokens that they hold or ask for.
  using Load = RoutedReplicas::Load;
  Load load() const;
  // The report of the pools of states.
  void write_states(proto::RunReport& report) const;
  // Of the host tiers, where there are any.
  void write_hicache(proto::RunReport& report) const;
  std::uint64_t retractions() const;
  std::uint64_t evicted_tokens() const;
  // Speculative decoding: entry i counts the steps of a request that kept i + 1 tokens.
  std::vector<std::uint64_t> accept_histogram() const;
  // What each rank did since the last reset_report(). Nothing for a single rank.
  void write_report(proto::RunReport& report) const;
  void reset_report();

  template <typename Archive>
  void serialize(Archive& archive) {
    for (Rank& rank : ranks_) archive(rank);
    archive.owned(batches_);
    archive(next_rank_, next_batch_, delayer_);
  }

 private:
  struct Rank {
    std::unique_ptr<Scheduler> scheduler;
    std::size_t in_flight = 0;  // passes of its own whose result is not processed yet
    std::uint64_t own_steps = 0, idle_steps = 0;
    std::uint64_t extend_tokens = 0, cached_tokens = 0, decode_tokens = 0;
    std::uint64_t requests = 0;
    double peak_usage = 0;
    std::uint64_t retractions_before = 0;

    auto state() {
      return std::tie(*scheduler, in_flight, own_steps, idle_steps, extend_tokens, cached_tokens,
                      decode_tokens, requests, peak_usage, retractions_before);
    }
  };

  static Load load_of(const Rank& rank);
  bool agree_on_prefill(double now, std::uint32_t micro_batch);
  std::size_t dispatch(std::uint64_t id);
  void synchronise(LockstepBatch& batch);
  void account(const LockstepBatch& batch);

  const SchedulerConfig config_;
  const bool prefills_apart_;
  PrefillDelayer delayer_;
  std::vector<PrefillBid> bids_;  // of the pass that is formed
  std::vector<Rank> ranks_;
  std::size_t next_rank_ = 0;                                                        // round robin
  std::unordered_map<std::uint64_t, std::pair<double, std::uint32_t>> early_pages_;  // time and prefix
  std::vector<LockstepBatch> batches_;
  std::size_t next_batch_ = 0;
};

}  // namespace tpsim::scheduler
