#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tpsim::scheduler {
namespace {

// SGLang keeps room for the sampled tokens after the longest prompt it accepts (scheduler.py, tp_worker.py).
constexpr std::uint32_t kInputHeadroom = 5;  // tokens

std::uint32_t clip32(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, OnRejected on_rejected, OnInterToken on_inter_token)
    : config_(config),
      rules_(config.sglang_release.rules),
      on_rejected_(std::move(on_rejected)),
      on_inter_token_(std::move(on_inter_token)),
      pool_(config),
      policy_(config, pool_.prefix_cache()),
      new_token_ratio_(config.schedule_conservativeness),
      batches_(std::size_t{2} * config.pipeline.micro_batches()),
      put_away_(config.pipeline.micro_batches()),
      steady_(pool_, PrefillAdder::kClipMaxNewTokens, leaves_early()) {
  const std::uint64_t longest = std::min<std::uint64_t>(config.context_length, pool_.capacity());
  max_req_len_ = longest > 0 ? clip32(longest - 1) : 0;
  max_req_input_len_ = max_req_len_ > kInputHeadroom ? max_req_len_ - kInputHeadroom : 0;
  if (config.disaggregation.mode != DisaggregationMode::kNull)
    queues_ = std::make_unique<DisaggregationQueues>();
}

const char* Scheduler::refusal(const WorkloadRequest& source) const {
  if (clip32(source.prompt.size()) >= max_req_input_len_)
    return "its prompt is longer than the context length or the KV pool allows";
  if (priority_of(source) && !config_.priority.enable_scheduling && config_.priority.abort_when_disabled)
    return "it has a priority, and --abort-on-priority-when-disabled is set without priority scheduling";
  return queues_ == nullptr ? nullptr : refusal_of_side(source.prompt.size());
}

void Scheduler::add_request(std::uint64_t id, RequestPtr request, double now) {
  const WorkloadRequest& source = *request;
  Req* req;
  if (free_reqs_.empty()) {
    arena_.push_back(std::make_unique<Req>());
    req = arena_.back().get();
  } else {
    req = free_reqs_.back();
    free_reqs_.pop_back();
    kvcache::TokenSequence recycled = std::move(req->tokens);
    *req = Req{};
    req->tokens = std::move(recycled);
  }
  req->live = true;
  req->id = id;
  req->source = std::move(request);
  req->arrival_time = now;
  req->may_stop = !source.sampling.ignore_eos;
  req->tokens = source.prompt;
  req->input_len = clip32(source.prompt.size());
  req->output_base = next_output_base_;
  next_output_base_ += source.max_new_tokens + config_.speculation.num_draft_tokens;
  req->cache.extra_key = source.extra_key;
  req->cache.prompt_len = req->input_len;
  if (const char* because = refusal(source)) {
    req->max_new_tokens = source.max_new_tokens;
    reject(*req, because);
    return;
  }
  // Prompt, output and a page of slack must stay below the pool, or admission would wait for ever
  // (init_req_max_new_tokens).
  const std::int64_t page = pool_.page_size();
  const std::int64_t paged_input = (req->input_len + page - 1) / page * page;
  const std::int64_t room = std::min(std::int64_t{max_req_len_} - req->input_len - 1,
                                     static_cast<std::int64_t>(pool_.capacity()) - paged_input - page - 1);
  req->max_new_tokens = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(source.max_new_tokens, 0, std::max<std::int64_t>(room, 0)));
  const bool ends_earlier = req->may_stop && !source.output.empty();
  req->end_len =
      ends_earlier ? std::min(req->max_new_tokens, clip32(source.output.size())) : req->max_new_tokens;
  set_priority(*req);
  if (queues_ != nullptr) {
    enqueue_on_side(*req);
  } else {
    enqueue(*req);
  }
}

// Of all that are here: a cancelled one is looked for once in its life.
Req* Scheduler::find(std::uint64_t id) const {
  const auto found = std::find_if(arena_.begin(), arena_.end(), [id](const std::unique_ptr<Req>& req) {
    return req->live && !req->finished && !req->cancelled && req->id == id;
  });
  return found == arena_.end() ? nullptr : found->get();
}

bool Scheduler::cancel(std::uint64_t id, std::uint32_t micro_batch) {
  Req* const found = find(id);
  if (found == nullptr) return false;
  Req& req = *found;
  settle();
  select(micro_batch);
  req.cancelled = true;
  if (std::find(waiting_.begin(), waiting_.end(), &req) != waiting_.end()) {
    waiting_.remove(1, [&req](const Req* other) { return other == &req; });
    idle_retried_ = false;  // the one that is first now may be admitted
    if (decodes_only()) give_pages_back(req);
    reject(req, nullptr);
  } else if (leave_side(req, nullptr)) {
  } else if (&req == chunked_req_ && rules_.abort_ends_chunks) {
    chunked_req_ = nullptr;
    pool_.release(req, /*is_insert=*/false);
    --active_;
    reject(req, nullptr);
  } else {
    req.to_finish = abort_reaches(req);
    if (req.to_finish) req.end_len = 0;  // whatever comes next is the last
  }
  return true;
}

// Older releases look for it in two batches: the running one of the micro-batch whose turn it is, and the one
// that was launched last.
bool Scheduler::abort_reaches(const Req& req) const {
  const auto names = [&req](const std::vector<Req*>& reqs) {
    return std::find(reqs.begin(), reqs.end(), &req) != reqs.end();
  };
  return rules_.abort_reaches_micro_batches || names(running_.reqs) ||
         (formed_last_ != nullptr && names(formed_last_->reqs));
}

std::optional<std::int32_t> Scheduler::priority_of(const WorkloadRequest& source) const {
  return source.priority ? source.priority : config_.priority.default_value;
}

// SGLang's _set_or_validate_priority, of a request that refusal() lets pass.
void Scheduler::set_priority(Req& req) {
  const PriorityConfig& priority = config_.priority;
  if (const std::optional<std::int32_t> named = priority_of(*req.source)) {
    req.priority = req.cache.priority = *named;
  } else if (priority.enable_scheduling) {
    using Limit = std::numeric_limits<std::int64_t>;
    req.priority = req.cache.priority = priority.low_values_first ? Limit::max() : Limit::min();
  }
}

void Scheduler::prefetch(Req& req) {
  HiCacheController* const hicache = pool_.hicache();
  if (hicache == nullptr || !hicache->has_storage()) return;
  match_prefix_for_admission(req);
  hicache->prefetch(req.id, req.host_node, req.tokens, req.cache.extra_key,
                    req.prefix_len + req.host_hit_len);
}

void Scheduler::enqueue(Req& req) {
  if (!prefills_only()) prefetch(req);
  req.queue_entry = ++queue_entries_;
  waiting_.push_back(&req);
}

// Requests of other micro-batches are none of its concern: SGLang looks at one running batch at a time.
void Scheduler::select(std::uint32_t micro_batch) {
  if (micro_batch == selected_) return;
  for (const std::uint32_t which : {selected_, micro_batch}) {
    MicroBatch& other = put_away_[which];
    std::swap(running_, other.running);
    std::swap(running_may_have_finished_, other.running_may_have_finished);
    std::swap(running_may_finish_, other.running_may_finish);
    std::swap(last_batch_, other.last_batch);
    std::swap(next_batch_, other.next_batch);
  }
  selected_ = micro_batch;
}

// Whether it may prefill.
bool Scheduler::open_pass(double now, std::uint32_t micro_batch) {
  pass_time_ = now;
  if (pool_.hicache() != nullptr) pool_.hicache()->set_time(now);
  select(micro_batch);
  if (decodes_only()) {
    process_decode_queue();
    return false;
  }
  if (prefills_only()) {
    pop_bootstrapped();
    process_prefill_chunk();
  } else {
    merge_last_extend();
  }
  if (rules_.finished_leave_before_admission && filter_running()) running_.batch_is_full = false;
  return true;
}

// Prefill first, as SGLang: decoding goes on when no prefill can be formed.
ScheduleBatch* Scheduler::begin_pass(double now, std::uint32_t micro_batch) {
  return open_pass(now, micro_batch) ? get_new_batch_prefill(now) : nullptr;
}

ScheduleBatch* Scheduler::end_pass(ScheduleBatch* prefill, bool may_decode) {
  ScheduleBatch* batch = prefill;
  if (batch == nullptr && may_decode && !running_.reqs.empty()) batch = update_running_batch();
  last_batch_ = batch;
  formed_last_ = batch;
  if (batch != nullptr) {
    idle_retried_ = false;
    if (batch->steady_pass == SteadyDecode::kNoPass) {
      for (Req* req : batch->reqs) ++req->in_flight;
    }
  }
  recycle();
  return batch;
}

// Requests whose prefill was launched by the last batch go on to decode; an unfinished chunk's KV is made
// available to others and the request stays out.
void Scheduler::merge_last_extend() {
  if (chunked_req_ != nullptr && chunked_req_->extend_len > 0) {
    pool_.cache_unfinished(*chunked_req_, /*chunked=*/true);
  }
  if (last_batch_ == nullptr || last_batch_->num_extend == 0) return;
  const bool replaced = running_.reqs.empty();
  std::size_t merged = 0;
  for (Req* req : last_batch_->reqs) {
    if (req->finished || req->retracted || req == last_batch_->chunked_req) continue;
    running_.reqs.push_back(req);
    req->in_running = true;
    ++merged;
    if (!req->in_decode_set) {
      req->in_decode_set = true;
      pool_.edits().join(req->cache.row);
    }
    running_may_finish_ = running_may_finish_ || finishes_by_length(*req);
    if (steady_.active()) join_steady(*req);
  }
  // An empty running batch is replaced by the last one, whose flag was never set.
  const bool shrunk = merged < last_batch_->reqs.size();
  if (shrunk || (replaced && merged > 0)) running_.batch_is_full = false;
}

void Scheduler::finish(Req& req) {
  if (req.steady != Req::kNotSteady) steady_.settle_ended(req);
  pool_.release(req, /*is_insert=*/pool_.states() == nullptr || pool_.states()->can_cache(req));
  --active_;
  req.finished = true;
  running_may_have_finished_ = true;
  if (req.in_running) ended_running_.push_back(&req);
  retired_.push_back(&req);
}

void Scheduler::reject(Req& req, const char* because) {
  if (pool_.hicache() != nullptr && pool_.hicache()->has_storage()) pool_.hicache()->forget_prefetch(req.id);
  req.finished = true;
  on_rejected_(req, because);
  retired_.push_back(&req);
}

// A request is forgotten when no pass in flight and no list names it any more.
void Scheduler::recycle() {
  std::erase_if(retired_, [this](Req* req) {
    if (req->in_flight > 0 || req->in_running) return false;
    req->live = false;
    req->source.reset();
    free_reqs_.push_back(req);
    return true;
  });
}

ScheduleBatch& Scheduler::take_batch() {
  ScheduleBatch& batch = batches_[std::size_t{2} * selected_ + next_batch_];
  next_batch_ ^= 1;
  batch.micro_batch = selected_;
  batch.reqs.clear();
  batch.num_extend = 0;
  batch.chunked_req = nullptr;
  batch.steady_pass = SteadyDecode::kNoPass;
  batch.accept_lens.clear();
  batch.next_token_ids.clear();
  batch.first_token.clear();
  batch.extend_logits.clear();
  batch.extend_tokens = batch.cached_tokens = batch.capture_bucket = 0;
  return batch;
}

bool Scheduler::on_idle(bool more_to_come) {
  settle();
  if (queues_ != nullptr) {
    if (const std::optional<bool> again = on_idle_side()) return *again;
  }
  if (waiting_.empty() && chunked_req_ == nullptr) {
    new_token_ratio_.on_idle();
    return false;
  }
  if (!idle_retried_) {
    idle_retried_ = true;
    return true;
  }
  if (Req* const parked = std::exchange(chunked_req_, nullptr); parked != nullptr) {
    give_up(*parked, 0);
    reject(*parked, "its prompt's next chunk needs more of the window pool than there is beside its own");
    return true;
  }
  // What is being copied is locked, and will be free.
  if (pool_.next_host_copy() < HiCacheController::kNever) return false;
  // What others leave in the cache may make a prefix that takes less of the window pool.
  if (more_to_come && pool_.has_windows()) return false;
  Req* req = *waiting_.begin();
  waiting_.remove(1, [](const Req*) { return true; });
  reject(*req, "prompt and output together do not fit the KV pool");
  return true;
}

std::size_t Scheduler::num_waiting() const {
  if (queues_ == nullptr) return waiting_.size();
  return waiting_.size() + queues_->bootstrap.size() + queues_->prealloc.size() + queues_->retracted.size();
}

RoutedReplicas::Load Scheduler::waiting() const {
  RoutedReplicas::Load load{num_waiting(), 0};
  for (const Req* req : waiting_) load.tokens += req->full_len();
  if (queues_ == nullptr) return load;
  for (const std::vector<Req*>* queue : {&queues_->bootstrap, &queues_->prealloc, &queues_->retracted}) {
    for (const Req* req : *queue) load.tokens += req->full_len();
  }
  return load;
}

std::vector<const Req*> Scheduler::unfinished() {
  settle();
  std::vector<const Req*> live;
  for (const auto& req : arena_) {
    if (req->live && !req->finished) live.push_back(req.get());
  }
  return live;
}

void Scheduler::check_invariants() { pool_.check_invariants(unfinished()); }

}  // namespace tpsim::scheduler
