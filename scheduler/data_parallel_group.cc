#include "scheduler/data_parallel_group.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "proto/base/random.h"
#include "proto/versions.h"

namespace tpsim::scheduler {
namespace {

// That its decoding requests get, where that is known.
std::uint32_t decode_tokens_of(const ScheduleBatch& batch) {
  if (batch.accept_lens.empty()) return static_cast<std::uint32_t>(batch.reqs.size() - batch.num_extend);
  return std::accumulate(batch.accept_lens.begin(), batch.accept_lens.end(), 0U);
}

}  // namespace

bool LockstepBatch::computed() const {
  return std::any_of(of_rank.begin(), of_rank.end(),
                     [](const ScheduleBatch* batch) { return batch && !batch->next_token_ids.empty(); });
}

DataParallelGroup::DataParallelGroup(const SchedulerConfig& config, const Scheduler::OnRejected& on_rejected,
                                     const Scheduler::OnInterToken& on_inter_token)
    : config_(config),
      prefills_apart_(config.speculation.enabled() && config.data_parallel.size > 1),
      delayer_(config.prefill_delayer, config.max_running_requests,
               config.sglang_release.rules.prefill_delays_are_bounded),
      batches_(std::size_t{2} * config.pipeline.micro_batches()) {
  if (config_.data_parallel.size == 0) throw std::invalid_argument("DataParallelGroup: no rank");
  ranks_.resize(config_.data_parallel.size);
  for (Rank& rank : ranks_) rank.scheduler = std::make_unique<Scheduler>(config, on_rejected, on_inter_token);
  for (LockstepBatch& batch : batches_) batch.of_rank.resize(ranks_.size());
}

// SGLang's load-balance methods (managers/data_parallel_controller.py). Its loads are snapshots that the
// schedulers publish, plus what was dispatched since; here they are what the schedulers hold.
std::size_t DataParallelGroup::dispatch(std::uint64_t id) {
  if (ranks_.size() == 1) return 0;
  // A request's bootstrap room, drawn by the router.
  if (config_.data_parallel.load_balance == LoadBalanceMethod::kFollowBootstrapRoom)
    return mix64(id) % ranks_.size();
  if (config_.data_parallel.load_balance == LoadBalanceMethod::kRoundRobin)
    return std::exchange(next_rank_, (next_rank_ + 1) % ranks_.size());
  const bool by_tokens = config_.data_parallel.load_balance == LoadBalanceMethod::kTotalTokens;
  const auto least = std::ranges::min_element(ranks_, {}, [by_tokens](const Rank& rank) {
    const Load load = load_of(rank);
    return std::pair(by_tokens ? load.tokens : 0, load.requests);
  });
  return static_cast<std::size_t>(least - ranks_.begin());
}

DataParallelGroup::Load DataParallelGroup::load_of(const Rank& rank) {
  Load load = rank.scheduler->waiting();
  load.requests += rank.scheduler->num_running();
  load.tokens += rank.scheduler->pool().use(kvcache::kKvPool).held;
  return load;
}

DataParallelGroup::Load DataParallelGroup::load() const {
  Load sum;
  for (const Rank& rank : ranks_) {
    const Load load = load_of(rank);
    sum.requests += load.requests;
    sum.tokens += load.tokens;
  }
  return sum;
}

void DataParallelGroup::add_request(std::uint64_t id, RequestPtr source, double now) {
  Rank& rank = ranks_[dispatch(id)];
  ++rank.requests;
  rank.scheduler->add_request(id, std::move(source), now);
  if (const auto early = early_pages_.extract(id))
    rank.scheduler->on_pages(id, early.mapped().first, early.mapped().second);
}

std::size_t DataParallelGroup::rank_of(std::uint64_t id) const {
  std::size_t rank = ranks_.size() - 1;
  while (rank > 0 && !ranks_[rank].scheduler->serves(id)) --rank;
  return rank;
}

void DataParallelGroup::on_pages(std::uint64_t id, double time, std::uint32_t prefix) {
  const auto waits = [&](Rank& rank) { return rank.scheduler->on_pages(id, time, prefix); };
  if (std::ranges::none_of(ranks_, waits)) early_pages_[id] = {time, prefix};
}

void DataParallelGroup::on_kv(std::uint64_t id, double time, const KvTransfer& prefilled) {
  for (Rank& rank : ranks_) rank.scheduler->on_kv(id, time, prefilled);
}

void DataParallelGroup::on_prefill_refused(std::uint64_t id) {
  for (Rank& rank : ranks_) rank.scheduler->on_prefill_refused(id);
}

void DataParallelGroup::process_inflight_queue(double now, PassResult& result) {
  for (Rank& rank : ranks_) rank.scheduler->process_inflight_queue(now, result);
}

void DataParallelGroup::process_batch_result_prebuilt(double now, PassResult& result) {
  for (Rank& rank : ranks_) rank.scheduler->process_batch_result_prebuilt(now, result);
}

bool DataParallelGroup::serves(std::uint64_t id) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [id](const Rank& rank) { return rank.scheduler->serves(id); });
}

bool DataParallelGroup::cancel(std::uint64_t id, std::uint32_t micro_batch) {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](Rank& rank) { return rank.scheduler->cancel(id, micro_batch); });
}

// Whether the pass may begin prefills. Where nothing else is to be done SGLang's loop asks again and again,
// in no time.
bool DataParallelGroup::agree_on_prefill(double now, std::uint32_t micro_batch) {
  bool idle = true;
  bids_.clear();
  for (Rank& rank : ranks_) {
    bids_.push_back(rank.scheduler->bid_for_prefill(now, micro_batch));
    idle = idle && rank.in_flight == 0 && rank.scheduler->num_running() == 0 && !rank.scheduler->may_decode();
  }
  bool allowed = delayer_.allows(bids_, now);
  while (idle && !allowed) allowed = delayer_.allows(bids_, now);
  return allowed;
}

LockstepBatch* DataParallelGroup::get_next_batch_to_run(double now, std::uint32_t micro_batch) {
  LockstepBatch& batch = batches_[next_batch_];
  batch.micro_batch = micro_batch;
  bool any = false, prefills = false;
  const bool delays =
      config_.prefill_delayer.enabled && config_.disaggregation.mode != DisaggregationMode::kDecode;
  const bool allowed = !delays || agree_on_prefill(now, micro_batch);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Scheduler& scheduler = *ranks_[i].scheduler;
    batch.of_rank[i] =
        delays ? scheduler.prefill_as_agreed(now, bids_[i], allowed) : scheduler.begin_pass(now, micro_batch);
    prefills = prefills || batch.of_rank[i] != nullptr;
  }
  const bool may_decode = !prefills_apart_ || !prefills;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    batch.of_rank[i] = ranks_[i].scheduler->end_pass(batch.of_rank[i], may_decode);
    any = any || batch.of_rank[i] != nullptr;
  }
  if (!any) return nullptr;
  next_batch_ = (next_batch_ + 1) % batches_.size();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (batch.of_rank[i] != nullptr) {
      ++rank.in_flight;
    } else if (rank.in_flight == 0 && may_decode && allowed && !rank.scheduler->waiting_queue().empty()) {
      // Others run, so this rank's scheduler never comes to SGLang's on_idle(); but a request that it will
      // never admit must not wait for the end of all others.
      rank.scheduler->on_idle(/*more_to_come=*/true);
    }
  }
  synchronise(batch);
  if (ranks_.size() > 1) account(batch);
  return &batch;
}

// SGLang's prepare_mlp_sync_batch.
void DataParallelGroup::synchronise(LockstepBatch& batch) {
  batch.extend_requests = batch.extend_tokens = batch.cached_tokens = batch.decode_requests = 0;
  batch.decode_tokens = 0;
  bool decodes = false, extends = false, verifies = false;
  std::size_t most = 0;
  for (const ScheduleBatch* of : batch.of_rank) {
    if (of == nullptr) continue;
    decodes = decodes || of->forward_mode != proto::EXTEND;
    extends = extends || of->num_extend > 0;
    verifies = verifies || of->forward_mode == proto::TARGET_VERIFY;
    batch.extend_requests += static_cast<std::uint32_t>(of->num_extend);
    batch.extend_tokens += of->extend_tokens;
    batch.cached_tokens += of->cached_tokens;
    batch.decode_requests += static_cast<std::uint32_t>(of->reqs.size() - of->num_extend);
    batch.decode_tokens += decode_tokens_of(*of);
    most = std::max(most, of->reqs.size());
  }
  batch.forward_mode = decodes && extends ? proto::MIXED
                       : extends          ? proto::EXTEND
                       : verifies         ? proto::TARGET_VERIFY
                                          : proto::DECODE;
  if (ranks_.size() == 1) {
    batch.forward_mode = batch.of_rank.front()->forward_mode;
    batch.capture_bucket = batch.of_rank.front()->capture_bucket;
    return;
  }
  batch.capture_bucket = extends ? 0 : config_.capture_bucket(most);
  for (ScheduleBatch* of : batch.of_rank) {
    if (of == nullptr) continue;
    // Where no layer gathers, each rank replays a graph of its own size.
    const bool own = !config_.data_parallel.gathers_mlp && batch.capture_bucket > 0;
    of->capture_bucket = own ? config_.capture_bucket(of->reqs.size()) : batch.capture_bucket;
  }
}

void DataParallelGroup::account(const LockstepBatch& batch) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const ScheduleBatch* const of = batch.of_rank[i];
    if (of == nullptr) {
      ++rank.idle_steps;
      continue;
    }
    ++rank.own_steps;
    rank.extend_tokens += of->extend_tokens;
    rank.cached_tokens += of->cached_tokens;
    rank.decode_tokens += decode_tokens_of(*of);
    rank.peak_usage = std::max(rank.peak_usage, rank.scheduler->pool().use(kvcache::kKvPool).usage());
  }
}

void DataParallelGroup::write_forward_batch(const LockstepBatch& batch, std::uint64_t sequence_number,
                                            proto::ForwardBatch& message) {
  if (ranks_.size() == 1) {
    ranks_.front().scheduler->write_forward_batch(*batch.of_rank.front(), message);
    message.set_sequence_number(sequence_number);
    return;
  }
  // Elements keep their memory: the message is cleared member by member.
  if (message.dp_batches_size() == 0) message.mutable_dp_batches()->Reserve(static_cast<int>(ranks_.size()));
  while (message.dp_batches_size() < static_cast<int>(ranks_.size())) message.add_dp_batches();
  message.set_version(kForwardBatchVersion);
  message.set_sequence_number(sequence_number);
  message.set_forward_mode(batch.forward_mode);
  message.set_capture_bucket(batch.capture_bucket);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    proto::ForwardBatch& of_rank = *message.mutable_dp_batches(static_cast<int>(i));
    Scheduler& scheduler = *ranks_[i].scheduler;
    if (batch.of_rank[i] != nullptr) {
      scheduler.write_forward_batch(*batch.of_rank[i], of_rank);
    } else {
      scheduler.write_idle_batch(config_.data_parallel.gathers_mlp || batch.capture_bucket == 0
                                     ? batch.capture_bucket
                                     : config_.capture_bucket(0),
                                 of_rank);
    }
    of_rank.set_sequence_number(sequence_number);
  }
}

void DataParallelGroup::take_sampled(LockstepBatch& batch, const StepOutcome& outcome) {
  if (outcome.next_token_ids.empty()) return;
  if (ranks_.size() == 1) {
    ranks_.front().scheduler->take_sampled(*batch.of_rank.front(), outcome);
    return;
  }
  if (outcome.requests_of_dp_rank.size() != ranks_.size())
    throw std::logic_error("the executor does not say which tokens belong to which data-parallel rank");
  std::size_t extends = 0;
  for (const ScheduleBatch* of : batch.of_rank) extends += of != nullptr ? of->num_extend : 0;
  const std::size_t vocabulary = extends > 0 ? outcome.extend_logits.size() / extends : 0;
  std::size_t first = 0, first_logit = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::size_t count = outcome.requests_of_dp_rank[i];
    if (batch.of_rank[i] == nullptr) continue;
    StepOutcome part;
    part.next_token_ids = outcome.next_token_ids.subspan(first, count);
    part.next_token_rows = outcome.next_token_rows.subspan(first, count);
    const std::size_t logits = batch.of_rank[i]->num_extend * vocabulary;
    part.extend_logits = outcome.extend_logits.subspan(first_logit, logits);
    ranks_[i].scheduler->take_sampled(*batch.of_rank[i], part);
    first += count;
    first_logit += logits;
  }
}

std::uint64_t DataParallelGroup::answered_tokens(const LockstepBatch& batch) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (batch.of_rank[i] != nullptr) sum += ranks_[i].scheduler->answered_tokens(*batch.of_rank[i]);
  return sum;
}

void DataParallelGroup::process_batch_result(LockstepBatch& batch, double now, PassResult& result) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (batch.of_rank[i] == nullptr) continue;
    --ranks_[i].in_flight;
    ranks_[i].scheduler->process_batch_result(*batch.of_rank[i], now, result);
  }
}

double DataParallelGroup::next_transfer_time() const {
  double next = RequestSource::kNever;
  for (const Rank& rank : ranks_) next = std::min(next, rank.scheduler->next_transfer_time());
  return next;
}

bool DataParallelGroup::on_idle(bool more_to_come) {
  bool again = false;
  for (Rank& rank : ranks_) again = rank.scheduler->on_idle(more_to_come) || again;
  return again;
}

double DataParallelGroup::next_host_copy() const {
  double next = HiCacheController::kNever;
  for (const Rank& rank : ranks_) next = std::min(next, rank.scheduler->next_host_copy());
  return next;
}

HostWork DataParallelGroup::take_host_work() {
  HostWork work;
  for (Rank& rank : ranks_) work.join(rank.scheduler->take_host_work());
  return work;
}

void DataParallelGroup::set_host_time(double now) {
  for (Rank& rank : ranks_) rank.scheduler->set_host_time(now);
}

void DataParallelGroup::finish_host_copies() {
  for (Rank& rank : ranks_) rank.scheduler->finish_host_copies();
}

void DataParallelGroup::flush_cache() {
  for (Rank& rank : ranks_) rank.scheduler->flush_cache();
}

std::vector<const Req*> DataParallelGroup::unfinished() const {
  std::vector<const Req*> all;
  for (const Rank& rank : ranks_) {
    const std::vector<const Req*> own = rank.scheduler->unfinished();
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all, {}, &Req::id);
  return all;
}

void DataParallelGroup::check_invariants() const {
  for (const Rank& rank : ranks_) rank.scheduler->check_invariants();
}

void DataParallelGroup::write_states(proto::RunReport& report) const {
  for (const Rank& rank : ranks_) {
    const KvPool& pool = rank.scheduler->pool();
    if (pool.states() == nullptr) continue;
    const RequestStates::Counts& counts = pool.states()->counts();
    report.set_state_pool_slots(report.state_pool_slots() + pool.use(kvcache::kStatePool).capacity());
    report.set_peak_states(report.peak_states() + pool.peak_states());
    report.set_state_hits(report.state_hits() + counts.hits);
    report.set_state_missed_tokens(report.state_missed_tokens() + counts.missed_tokens);
    report.set_evicted_states(report.evicted_states() + pool.evicted_states());
  }
}

void DataParallelGroup::write_hicache(proto::RunReport& report) const {
  for (const Rank& rank : ranks_) {
    const HiCacheController* const hicache = rank.scheduler->pool().hicache();
    if (hicache == nullptr) return;
    const HiCacheController::Counts& counts = hicache->counts();
    report.set_host_pool_tokens(report.host_pool_tokens() + hicache->pool().capacity());
    report.set_host_loads(report.host_loads() + counts.loads);
    report.set_host_loaded_tokens(report.host_loaded_tokens() + counts.loaded_tokens);
    report.set_host_written_tokens(report.host_written_tokens() + counts.written_tokens);
    report.set_host_cpu_seconds(report.host_cpu_seconds() + counts.cpu_seconds);
  }
}

DataParallelGroup::Totals DataParallelGroup::totals_of(std::size_t rank) const {
  const Scheduler& scheduler = *ranks_[rank].scheduler;
  Totals totals = {scheduler.num_waiting(), scheduler.num_running(), {}};
  for (std::size_t i = 0; i < kvcache::kPools; ++i)
    totals.pools[i] = scheduler.pool().use(static_cast<kvcache::Pool>(i));
  return totals;
}

DataParallelGroup::Totals DataParallelGroup::totals() const {
  Totals sum = totals_of(0);
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    const Totals more = totals_of(rank);
    sum.waiting += more.waiting;
    sum.running += more.running;
    for (std::size_t i = 0; i < kvcache::kPools; ++i) {
      sum.pools[i].held += more.pools[i].held;
      sum.pools[i].cached += more.pools[i].cached;
      sum.pools[i].free += more.pools[i].free;
    }
  }
  return sum;
}

std::uint64_t DataParallelGroup::retractions() const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.scheduler->retractions();
  return sum;
}

std::uint64_t DataParallelGroup::evicted_tokens() const {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.scheduler->pool().evicted_tokens();
  return sum;
}

std::vector<std::uint64_t> DataParallelGroup::accept_histogram() const {
  std::vector<std::uint64_t> sum;
  for (const Rank& rank : ranks_) {
    const std::vector<std::uint64_t>& own = rank.scheduler->accept_histogram();
    if (own.size() > sum.size()) sum.resize(own.size(), 0);
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  return sum;
}

void DataParallelGroup::write_report(proto::RunReport& report) const {
  if (ranks_.size() == 1) return;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    proto::DataParallelRank& out = *report.add_data_parallel_ranks();
    out.set_dp_rank(static_cast<std::uint32_t>(i));
    out.set_requests(rank.requests);
    out.set_steps(rank.own_steps);
    out.set_idle_steps(rank.idle_steps);
    out.set_prefill_tokens(rank.extend_tokens);
    out.set_cached_tokens(rank.cached_tokens);
    out.set_decode_tokens(rank.decode_tokens);
    out.set_kv_pool_tokens(rank.scheduler->pool().capacity());
    out.set_peak_kv_usage(rank.peak_usage);
    out.set_retractions(rank.scheduler->retractions() - rank.retractions_before);
  }
}

void DataParallelGroup::reset_report() {
  for (Rank& rank : ranks_) {
    rank.own_steps = rank.idle_steps = rank.requests = 0;
    rank.extend_tokens = rank.cached_tokens = rank.decode_tokens = 0;
    rank.peak_usage = 0;
    rank.retractions_before = rank.scheduler->retractions();
    rank.scheduler->clear_accept_histogram();
    rank.scheduler->clear_host_counts();
  }
}

}  // namespace tpsim::scheduler
