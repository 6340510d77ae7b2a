// Scheduler: which requests are admitted, on which pages, and what a pass that prefills is made of.
#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

void Scheduler::match_prefix_for_admission(Req& req) {
  req.spell_out();
  // A match never covers the whole sequence: the last token must be computed to sample the next one.
  const auto match = pool_.prefix_cache().match_prefix(req.tokens, req.full_len() - 1, req.cache.extra_key,
                                                       req.admission_cursor);
  req.num_matched_prefix_tokens = match.matched_tokens;
  req.cache.last_node = match.last_node;
  const bool branches = match.full_matched_tokens > match.matched_tokens && pool_.hicache() == nullptr;
  req.cache.branching_len = branches ? match.full_matched_tokens : 0;
  req.cache.cache_protected_len = match.matched_tokens;
  req.prefix_len = match.matched_tokens;
  if (pool_.states() != nullptr) pool_.states()->on_match(req, match);
  if (pool_.hicache() != nullptr) {
    req.host_node = match.full_node;
    req.host_hit_len = match.full_matched_tokens - match.matched_tokens;
    req.loaded_len = 0;
  }
  req.known_fill_len = req.full_len();
  req.known_extend_len = req.full_len() - req.prefix_len;
}

// Requests that may be admitted, where `held_rows` of those admitted so far have their row already.
std::size_t Scheduler::num_allocatable_reqs(std::size_t held_rows) const {
  const std::size_t running = running_.reqs.size();
  const std::size_t most = config_.max_running_requests;
  const std::size_t rows = (most > active_ ? most - active_ : 0) + held_rows;
  const std::size_t of_micro_batch = config_.pipeline.requests_of_micro_batch(config_.max_running_requests);
  return std::min(of_micro_batch > running ? of_micro_batch - running : 0, rows);
}

bool Scheduler::preempts() const {
  return config_.priority.enable_scheduling && !config_.priority.disable_preemption;
}

ScheduleBatch* Scheduler::get_new_batch_prefill(double now) {
  if (pool_.hicache() != nullptr) pool_.hicache()->check_events();
  const bool nothing_runs = running_.reqs.empty() && rules_.empty_batch_is_never_full;
  // Windows move on, so that there may be room again although nobody left.
  if (preempts() || nothing_runs || pool_.has_windows()) running_.batch_is_full = false;
  if ((running_.batch_is_full || waiting_.empty()) && chunked_req_ == nullptr) return nullptr;
  if (num_allocatable_reqs(0) == 0 && chunked_req_ == nullptr && !preempts()) {
    running_.batch_is_full = true;
    return nullptr;
  }
  if (!std::exchange(sorted_, false)) policy_.calc_priority(waiting_.all());

  const bool mixed = config_.enable_mixed_chunk && config_.chunked_prefill_size > 0;
  PrefillAdder::Options options;
  options.new_token_ratio = new_token_ratio_.current();
  options.max_prefill_tokens = config_.max_prefill_tokens;
  if (config_.chunked_prefill_size > 0) options.chunk_tokens = config_.chunked_prefill_size;
  options.mixed_decode_tokens = mixed ? static_cast<std::uint32_t>(running_.reqs.size()) : 0;
  options.steady = steady_.active() ? &steady_ : nullptr;
  options.finished = ended_running_;
  options.lists = &adder_lists_;
  options.admits = admits_;
  PrefillAdder adder(pool_, running_.reqs, options, rules_);
  if (chunked_req_ != nullptr) {
    chunked_req_->prefix_len = chunked_req_->fill_len();
    if (!adder.add_chunked_req(*chunked_req_)) chunked_req_->extend_len = 0;
  }
  admit_waiting(adder);
  asked_ = adder.asked();
  if (adder.can_run_list().empty()) {
    return_preempted(/*admitted=*/false);
    return nullptr;
  }
  if (pool_.hicache() != nullptr) pool_.hicache()->start_loading();
  ScheduleBatch& batch = take_batch();
  fill_prefill(batch, adder, now);
  return_preempted(/*admitted=*/true);
  if (batch.reqs.empty()) {
    next_batch_ ^= 1;  // the other one may be in flight and must not be taken next
    return nullptr;
  }
  if (mixed) mix_with_running(batch);
  return &batch;
}

// A chunk goes on whatever is agreed. Else admission is tried up to where a request asks, which changes
// nothing but the order of the queue.
PrefillBid Scheduler::bid_for_prefill(double now, std::uint32_t micro_batch) {
  asked_ = false;
  if (open_pass(now, micro_batch)) {
    if (chunked_req_ == nullptr) {
      admits_ = false;
      get_new_batch_prefill(now);
      admits_ = true;
      sorted_ = asked_;
    } else if (rules_.prefill_delays_are_bounded) {
      asked_ = true;
    } else {  // a request beside it
      const bool opens = pool_.has_windows() || (running_.reqs.empty() && rules_.empty_batch_is_never_full);
      asked_ = !waiting_.empty() && (opens || !running_.batch_is_full) && num_allocatable_reqs(0) > 1;
    }
  }
  PrefillBid bid;
  if (!asked_) return bid;
  bid.asked = true;
  for (const kvcache::Pool pool : {kvcache::kKvPool, kvcache::kWindowPool, kvcache::kStatePool})
    bid.token_usage = std::max(bid.token_usage, pool_.use(pool).usage());
  bid.running = running_.reqs.size();
  bid.waiting = waiting_.size();
  bid.max_prefill_bs = prefill_sizes_.largest();
  return bid;
}

ScheduleBatch* Scheduler::prefill_as_agreed(double now, const PrefillBid& bid, bool allowed) {
  ScheduleBatch* batch = nullptr;
  if (chunked_req_ != nullptr || (bid.asked && allowed)) {
    admits_ = allowed;
    batch = get_new_batch_prefill(now);
    admits_ = true;
  }
  sorted_ = false;
  if (!rules_.prefill_delays_are_bounded) {
    prefill_sizes_.add_to_all(batch != nullptr ? batch->num_extend : 0);
  } else if (batch != nullptr) {
    prefill_sizes_.add_to_recent(batch->reqs.size());
  } else if (bid.asked) {
    const std::size_t most = config_.max_running_requests;
    const std::size_t free = most > bid.running ? most - bid.running : 1;
    prefill_sizes_.add_to_recent(std::min(std::max<std::size_t>(bid.waiting, 1), free));
  }
  return batch;
}

void Scheduler::admit_waiting(PrefillAdder& adder) {
  const bool continues = chunked_req_ != nullptr;
  for (Req* req : waiting_) {
    if (rules_.spent_budget_ends_admission && adder.budget_state() == AddReqResult::kOther) break;
    const std::size_t held_rows = continues && rules_.chunked_request_counts_once ? 1 : 0;
    if (adder.can_run_list().size() >= num_allocatable_reqs(held_rows)) running_.batch_is_full = true;
    if (running_.batch_is_full && !(preempts() && preempt_to_schedule(*req, adder))) break;
    if (HiCacheController* const hicache = pool_.hicache(); hicache != nullptr && hicache->has_storage()) {
      if (!hicache->prefetched(req->id, req->storage_hit_len)) continue;
    }
    match_prefix_for_admission(*req);
    const AddReqResult result = adder.add_one_req(*req);
    if (result == AddReqResult::kContinue) continue;
    const bool added = !adder.can_run_list().empty() && adder.can_run_list().back() == req;
    if (pool_.states() != nullptr && !added) pool_.states()->on_refused(*req);
    if (result == AddReqResult::kNoToken) {
      const bool others = !adder.can_run_list().empty() || !running_.reqs.empty();
      running_.batch_is_full = others || !(rules_.full_needs_requests || pool_.hicache() != nullptr);
    }
    break;
  }
}

// SGLang's preempt_to_schedule: running requests of a lower priority, the lowest and youngest first, give
// their place and pages to `req` where that is enough for it. Returns whether they did.
bool Scheduler::preempt_to_schedule(const Req& req, PrefillAdder& adder) {
  const bool low_first = config_.priority.low_values_first;
  std::vector<Req*> candidates;
  for (Req* r : running_.reqs) {
    if (!r->finished) candidates.push_back(r);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](const Req* a, const Req* b) {
    if (a->priority != b->priority) return (a->priority > b->priority) == low_first;
    return a->queue_entry > b->queue_entry;
  });
  double missing = adder.missing_tokens(req);
  std::size_t chosen = 0;
  for (; chosen < candidates.size(); ++chosen) {
    const Req& other = *candidates[chosen];
    const double higher = static_cast<double>(req.priority) - static_cast<double>(other.priority);
    if ((low_first ? -higher : higher) <= config_.priority.preemption_threshold) break;
    missing -= adder.reserved_tokens(other);
    if (missing <= 0) {
      ++chosen;
      break;
    }
  }
  if (chosen == 0 || missing > 0) return false;
  candidates.resize(chosen);
  const auto preempted = [&](const Req* r) {
    return std::find(candidates.begin(), candidates.end(), r) != candidates.end();
  };
  std::size_t released = 0;
  for (Req* r : running_.reqs) {
    if (!preempted(r)) continue;
    adder.give_back(*r);
    ++released;
    give_up(*r, running_.reqs.size() - released);
  }
  std::erase_if(running_.reqs, preempted);
  preempted_.insert(preempted_.end(), candidates.begin(), candidates.end());
  return true;
}

// Preempted requests wait again, after all others. Where none was admitted in their place, older releases
// forget them: their clients wait for ever.
void Scheduler::return_preempted(bool admitted) {
  for (Req* req : preempted_) {
    if (admitted || rules_.preempted_return_without_admission) {
      enqueue(*req);
    } else {
      reject(*req, "it was preempted and, as in SGLang before 0.5.23, never came back to the queue");
    }
  }
  preempted_.clear();
}

// Without a prefix cache nothing else frees what further chunks of a prompt leave behind their window. With
// overlap scheduling the chunk before may still run.
void Scheduler::free_behind_chunks(const std::vector<Req*>& admitted) {
  for (Req* req : admitted) {
    if (config_.disable_overlap_schedule) {
      pool_.free_behind_prefill(*req, 0);
    } else if (req->extends >= 2) {
      pool_.free_behind_prefill(*req, config_.chunked_prefill_size);
    }
  }
}

// Gives every admitted request its pages. Where the pool's pages do not suffice after all (admission counts
// tokens, paged allocation may need a page more), the rest goes back to the head of the queue.
void Scheduler::fill_prefill(ScheduleBatch& batch, const PrefillAdder& adder, double now) {
  const std::vector<Req*>& admitted = adder.can_run_list();
  std::uint64_t extend_tokens = 0;
  for (const Req* req : admitted) extend_tokens += req->extend_len;
  if (pool_.has_windows() && !pool_.prefix_cache().keeps_prefixes()) free_behind_chunks(admitted);
  RequestStates* const states = pool_.states();
  if (states != nullptr) states->make_room(admitted);
  const std::uint64_t page = pool_.page_size();
  pool_.evict_for(page == 1 ? extend_tokens : extend_tokens + admitted.size() * page);

  Req* unfinished = nullptr;
  if (std::find(admitted.begin(), admitted.end(), chunked_req_) == admitted.end()) unfinished = chunked_req_;
  bool out_of_pages = false;
  std::size_t entered = 0;
  for (Req* req : admitted) {
    const bool first = req->kv_committed_len == 0;
    out_of_pages = out_of_pages || !pool_.alloc_for_extend(*req);
    if (out_of_pages) {
      req->extend_len = 0;
      if (!first) {
        unfinished = req;  // its next chunk waits for pages
      } else {
        pool_.prefix_cache().dec_lock_ref(req->cache.last_node, req->cache.lock);
        if (states != nullptr) states->on_refused(*req);
      }
      continue;
    }
    if (states != nullptr) {
      states->bind(*req);
      states->plan_extend(*req);
    }
    ++req->extends;
    batch.reqs.push_back(req);
    batch.extend_tokens += req->extend_len;
    if (req->fill_len() < req->full_len()) unfinished = batch.chunked_req = req;
    if (!first) continue;
    ++entered;
    ++active_;
    batch.cached_tokens += req->prefix_len;
    if (!req->admitted_once) {
      req->admitted_once = true;
      req->first_scheduled_time = now;
      req->cached_tokens = std::min(req->prefix_len, req->input_len);
      req->cached_host = std::min(req->loaded_len, req->cached_tokens);
      req->cached_storage = std::min(req->storage_hit_len, req->cached_host);
      req->cached_host -= req->cached_storage;
    } else if (!req->interruptions.empty()) {
      req->interruptions.back().readmitted = now;
    }
  }
  chunked_req_ = unfinished;
  waiting_.remove(entered, [](const Req* req) { return req->kv_committed_len > 0; });
  batch.num_extend = batch.reqs.size();
  batch.forward_mode = proto::EXTEND;
}

void Scheduler::mix_with_running(ScheduleBatch& batch) {
  if (running_.reqs.empty()) return;
  filter_running();
  if (leave_finishing()) running_.batch_is_full = false;
  if (running_.reqs.empty() || !decode_fits(running_.reqs)) return;
  if (config_.speculation.enabled()) {
    reserve_for_drafts(running_.reqs);  // and none are drafted: each decodes a token
  } else {
    prepare_for_decode(running_.reqs);
  }
  batch.forward_mode = proto::MIXED;
  batch.reqs.insert(batch.reqs.end(), running_.reqs.begin(), running_.reqs.end());
  for (Req* req : running_.reqs) {
    req->in_running = false;
    req->known_fill_len = req->full_len();
  }
  running_.reqs.clear();
}

}  // namespace tpsim::scheduler
