// Scheduler of a decode server: SGLang's disaggregation/decode.py. A request gets pages for its prompt, first
// come, first served, where every request that decodes or is on its way keeps room for
// --num-reserved-decode-tokens; waits for its KV; and enters the running batch with its first token. What is
// retracted goes to the host's memory and comes back before anything else is looked at. With
// --disaggregation-decode-enable-radix-cache prompts and answers are kept as elsewhere, and what of a prompt
// is there already is not sent; what comes back from the host is not looked for.
#include <algorithm>
#include <cstdint>

#include "proto/base/ceil_div.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

void Scheduler::process_decode_queue() {
  resume_retracted_reqs();
  if (queues_->retracted.empty()) {
    pop_preallocated();
    pop_transferred();
  }
  get_new_prebuilt_batch();
}

// SGLang's _allocatable_token_budgets; `need_for_single`: tokens that one running request may still need when
// all others are retracted.
std::int64_t Scheduler::allocatable_tokens(std::int64_t need_for_single) const {
  const std::size_t active = running_.reqs.size() + queues_->transfer.size() + waiting_.size();
  const std::int64_t reserved =
      static_cast<std::int64_t>(active) * config_.disaggregation.num_reserved_decode_tokens;
  return static_cast<std::int64_t>(pool_.available_size() + pool_.evictable_size()) -
         std::max(reserved, need_for_single);
}

void Scheduler::match_on_decode_side(Req& req, std::uint32_t limit) {
  kvcache::PrefixCache& cache = pool_.prefix_cache();
  if (!cache.keeps_prefixes()) return;
  req.spell_out();
  const auto match = cache.match_prefix(req.tokens, limit, req.cache.extra_key, req.admission_cursor);
  req.cache.last_node = match.last_node;
  req.cache.cache_protected_len = req.prefix_len = match.matched_tokens;
  req.cache.inserted_len = 0;
  req.cache.lock = cache.inc_lock_ref(match.last_node);
}

void Scheduler::unmatch_on_decode_side(Req& req) {
  if (!pool_.prefix_cache().keeps_prefixes()) return;
  pool_.prefix_cache().dec_lock_ref(req.cache.last_node, req.cache.lock);
  req.cache.cache_protected_len = req.prefix_len = 0;
}

// Pages for all tokens but the last, which has no KV yet.
bool Scheduler::pre_alloc(Req& req) {
  if (active_ >= std::size_t{config_.max_running_requests} + config_.disaggregation.extra_rows) return false;
  if (!pool_.pre_alloc(req, req.output_len > 0 ? req.full_len() - 1 : req.input_len)) return false;
  ++active_;
  return true;
}

void Scheduler::resume_retracted_reqs() {
  if (queues_->retracted.empty()) return;
  std::int64_t allocatable = allocatable_tokens(0);
  std::size_t resumed = 0;
  for (Req* req : queues_->retracted) {
    const std::int64_t kv_tokens = std::int64_t{req->full_len()} - 1;
    const std::int64_t required = kv_tokens + config_.disaggregation.num_reserved_decode_tokens;
    if (required > allocatable) break;
    match_on_decode_side(*req, /*limit=*/0);
    if (!pre_alloc(*req)) {
      unmatch_on_decode_side(*req);
      break;
    }
    allocatable -= required;
    queues_->thread_seconds += config_.disaggregation.load_token_seconds * static_cast<double>(kv_tokens);
    enqueue(*req);
    ++resumed;
  }
  queues_->retracted.erase(queues_->retracted.begin(),
                           queues_->retracted.begin() + static_cast<std::ptrdiff_t>(resumed));
}

void Scheduler::pop_preallocated() {
  std::vector<Req*>& queue = queues_->prealloc;
  if (queue.empty()) return;
  if (config_.priority.enable_scheduling) {
    const bool low_first = config_.priority.low_values_first;
    std::ranges::stable_sort(queue, [low_first](const Req* a, const Req* b) {
      return a->priority != b->priority && (a->priority < b->priority) == low_first;
    });
  }
  const auto most_of = [](const Req& req) {
    return std::min<std::int64_t>(req.max_new_tokens, PrefillAdder::kClipMaxNewTokens) + req.input_len;
  };
  std::int64_t retractable = 0, most_of_one = 0;
  for (const Req* req : running_.reqs) {
    retractable += req->input_len + (steady_.active() ? steady_.output_len(*req) : req->output_len);
    most_of_one = std::max(most_of_one, most_of(*req));
  }
  std::size_t taken = 0;
  for (Req* req : queue) {
    match_on_decode_side(*req, req->input_len);  // takes it out of what could be evicted
    const std::int64_t allocatable = allocatable_tokens(most_of_one - retractable);
    const std::uint32_t prompt =
        rules_.preallocation_counts_pages ? ceil_align(req->input_len, pool_.page_size()) : req->input_len;
    const std::int64_t required =
        std::max(std::int64_t{prompt} - req->prefix_len + config_.disaggregation.num_reserved_decode_tokens,
                 most_of(*req) - req->prefix_len - retractable);
    if (required > allocatable || !pre_alloc(*req)) {
      unmatch_on_decode_side(*req);
      break;
    }
    const DisaggregationConfig& costs = config_.disaggregation;
    spend_on_prompt(*req, costs.preallocate_seconds, costs.preallocate_token_seconds);
    queues_->transfer.push_back(req);
    queues_->messages.push_back({.kind = KvMessage::Kind::kPages,
                                 .req = req,
                                 .time = pass_time_ + queues_->thread_seconds,
                                 .tokens = req->input_len - req->prefix_len,
                                 .runs = pool_.runs(*req, req->prefix_len, req->input_len)});
    ++taken;
  }
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
}

void Scheduler::on_kv(std::uint64_t id, double time, const KvTransfer& prefilled) {
  for (std::vector<Req*>* queue : {&queues_->inflight, &queues_->transfer}) {
    const auto found = std::ranges::find(*queue, id, &Req::id);
    if (found == queue->end()) continue;
    (*found)->transfer = prefilled;
    (*found)->transfer.time = time;
  }
}

void Scheduler::on_prefill_refused(std::uint64_t id) {
  for (const std::vector<Req*>* queue : {&queues_->prealloc, &queues_->transfer}) {
    const auto found = std::ranges::find(*queue, id, &Req::id);
    if (found == queue->end()) continue;
    leave_side(**found, "the prefill server refused it");
    return;
  }
}

void Scheduler::pop_transferred() {
  std::erase_if(queues_->transfer, [this](Req* req) {
    if (req->transfer.time > pass_time_) return false;
    req->admitted_once = true;
    req->cached_tokens = std::max(req->transfer.cached_tokens, req->prefix_len);
    req->cached_host = req->transfer.cached_host;
    req->cached_storage = req->transfer.cached_storage;
    req->first_scheduled_time = req->transfer.first_scheduled_time;
    enqueue(*req);
    return true;
  });
}

// What has arrived is there for others.
void Scheduler::keep_arrived(Req& req) {
  if (!pool_.prefix_cache().keeps_prefixes()) return;
  req.spell_out();
  req.extend_len = req.kv_committed_len - req.prefix_len;
  pool_.cache_unfinished(req);
  req.extend_len = 0;
}

// SGLang's get_new_prebuilt_batch and process_prebuilt, and the batch's merge with the running one.
void Scheduler::get_new_prebuilt_batch() {
  if (waiting_.empty()) return;
  const std::size_t most = config_.max_running_requests, running = running_.reqs.size();
  if (config_.priority.enable_scheduling) policy_.calc_priority(waiting_.all());
  std::size_t entered = 0;
  for (Req* req : waiting_) {
    if (entered + running >= most) break;
    ++entered;
    spend_on_prompt(*req, config_.disaggregation.prebuilt_seconds,
                    config_.disaggregation.prebuilt_token_seconds);
    if (req->output_len == 0) {
      req->output_len = 1;
      queues_->prebuilt.push_back(req);
      if (is_finished(*req)) continue;  // with the first token
    } else {
      req->interruptions.back().readmitted = pass_time_;
    }
    running_.reqs.push_back(req);
    req->in_running = req->in_decode_set = true;
    pool_.tell_arrived(*req);
    keep_arrived(*req);
    pool_.edits().join(req->cache.row);
    running_may_finish_ = running_may_finish_ || finishes_by_length(*req);
    if (steady_.active()) join_steady(*req);
  }
  waiting_.remove(entered, [this](const Req* req) {
    return req->in_running || (req->output_len > 0 && is_finished(*req));
  });
}

void Scheduler::process_batch_result_prebuilt(double now, PassResult& result) {
  for (Req* req : queues_->prebuilt) {
    req->first_token_time = req->last_token_time = now;
    if (result.wants_tokens) result.tokens.push_back({req, 1});
    if (!is_finished(*req)) continue;  // it may be retracted already
    finish(*req);
    result.finished.push_back(req);
  }
  queues_->prebuilt.clear();
}

}  // namespace tpsim::scheduler
