#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "proto/base/align.h"
#include "proto/versions.h"

namespace tpsim::scheduler {
namespace {

// SGLang keeps room for the sampled tokens behind the longest prompt it accepts (scheduler.py, tp_worker.py).
constexpr std::uint32_t kInputHeadroom = 5;  // tokens

std::uint32_t clip32(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

// Positions [prefix_len, prefix_len + extend_len) of the sequence of every request of the extend part.
void write_tokens(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  bool greedy = true;
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    greedy = greedy && req.source->sampling.temperature == 0;
    std::uint64_t begin = 0;  // of the run, in the sequence
    for (const kvcache::TokenRun& run : req.tokens.runs()) {
      const std::uint64_t from = std::max<std::uint64_t>(begin, req.prefix_len);
      const std::uint64_t to = std::min<std::uint64_t>(begin + run.length, req.fill_len());
      if (from < to) {
        message.add_input_run_first(run.first + (from - begin));
        message.add_input_run_length(static_cast<std::uint32_t>(to - from));
      }
      begin += run.length;
    }
  }
  if (greedy) return;
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const SamplingParams& sampling = batch.reqs[i]->source->sampling;
    proto::SamplingParams& out = *message.add_extend_sampling();
    out.set_temperature(sampling.temperature);
    out.set_top_k(sampling.top_k);
    out.set_top_p(sampling.top_p);
    out.set_seed(sampling.seed);
  }
}

// The request whose prompt goes on in a later chunk, and the token that follows.
void write_next_token(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    std::uint64_t begin = 0;
    for (const kvcache::TokenRun& run : req.tokens.runs()) {
      if (req.fill_len() >= begin && req.fill_len() < begin + run.length) {
        message.set_chunked_request(static_cast<std::uint32_t>(i));
        message.set_chunked_next_token(run.first + (req.fill_len() - begin));
      }
      begin += run.length;
    }
  }
}

// The images of which the pass computes a token: it needs their embeddings.
void write_images(const Req& req, proto::ForwardBatch& message) {
  std::uint32_t count = 0;
  for (const ImageInput& image : req.source->images) {
    if (image.position + image.tokens <= req.prefix_len || image.position >= req.fill_len()) continue;
    ++count;
    message.add_image_width(image.width);
    message.add_image_height(image.height);
    message.add_image_content(image.content);
  }
  if (count > 0) message.add_images_of_request(count);
}

// For execution that computes: all images up to the pass' end, of the `index`-th request of the extend part.
void write_prompt_images(const Req& req, std::size_t index, proto::ForwardBatch& message) {
  for (const ImageInput& image : req.source->images) {
    if (image.position >= req.fill_len()) break;
    proto::PromptImage& out = *message.add_prompt_images();
    out.set_request(static_cast<std::uint32_t>(index));
    out.set_position(image.position);
    out.set_tokens(image.tokens);
    out.set_width(image.width);
    out.set_height(image.height);
    out.set_content(image.content);
  }
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, OnRejected on_rejected, OnInterToken on_inter_token)
    : config_(config),
      rules_(rules_of(config.sglang_release)),
      on_rejected_(std::move(on_rejected)),
      on_inter_token_(std::move(on_inter_token)),
      pool_(config),
      policy_(config, pool_.prefix_cache()),
      new_token_ratio_(config.schedule_conservativeness),
      batches_(std::size_t{2} * config.pipeline.micro_batches()),
      put_away_(config.pipeline.micro_batches()),
      steady_(pool_, PrefillAdder::kClipMaxNewTokens, leaves_early()) {
  const std::uint64_t longest = std::min<std::uint64_t>(config.context_length, pool_.capacity());
  limits_.max_req_len = longest > 0 ? clip32(longest - 1) : 0;
  limits_.max_req_input_len = limits_.max_req_len > kInputHeadroom ? limits_.max_req_len - kInputHeadroom : 0;
}

Scheduler::~Scheduler() = default;

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
  if (req->input_len >= limits_.max_req_input_len) {
    req->max_new_tokens = source.max_new_tokens;
    reject(*req, "its prompt is longer than the context length or the KV pool allows");
    return;
  }
  // Prompt, output and a page of slack must stay below the pool, or admission would wait for ever
  // (init_req_max_new_tokens).
  const std::int64_t page = pool_.page_size();
  const std::int64_t paged_input = (req->input_len + page - 1) / page * page;
  const std::int64_t room = std::min(std::int64_t{limits_.max_req_len} - req->input_len - 1,
                                     static_cast<std::int64_t>(pool_.capacity()) - paged_input - page - 1);
  req->max_new_tokens = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(source.max_new_tokens, 0, std::max<std::int64_t>(room, 0)));
  const bool ends_earlier = req->may_stop && !source.output.empty();
  req->end_len =
      ends_earlier ? std::min(req->max_new_tokens, clip32(source.output.size())) : req->max_new_tokens;
  if (!set_priority(*req)) {
    reject(*req,
           "it has a priority, and --abort-on-priority-when-disabled is set without priority scheduling");
    return;
  }
  enqueue(*req);
}

// Of all that are here: whoever is cancelled is looked for once in its life.
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
    idle_retried_ = false;  // whoever is first now may be admitted
    reject(req, nullptr);
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

// SGLang's _set_or_validate_priority. Returns false for a request to be refused.
bool Scheduler::set_priority(Req& req) {
  const PriorityConfig& priority = config_.priority;
  const std::optional<std::int32_t> named =
      req.source->priority ? req.source->priority : priority.default_value;
  if (named) {
    req.priority = req.cache.priority = *named;
    return priority.enable_scheduling || !priority.abort_when_disabled;
  }
  if (!priority.enable_scheduling) return true;
  using Limit = std::numeric_limits<std::int64_t>;
  req.priority = req.cache.priority = priority.low_values_first ? Limit::max() : Limit::min();
  return true;
}

void Scheduler::enqueue(Req& req) {
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

ScheduleBatch* Scheduler::get_next_batch_to_run(double now, std::uint32_t micro_batch) {
  return end_pass(begin_pass(now, micro_batch), /*may_decode=*/true);
}

ScheduleBatch* Scheduler::begin_pass(double now, std::uint32_t micro_batch) {
  pass_time_ = now;
  select(micro_batch);
  merge_last_extend();
  if (rules_.finished_leave_before_admission && filter_running()) running_.batch_is_full = false;
  // Prefill first, as SGLang: decoding goes on when no prefill can be formed.
  return get_new_batch_prefill(now);
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

void Scheduler::match_prefix_for_admission(Req& req) {
  req.spell_out();
  // A match never covers the whole sequence: the last token must be computed to sample the next one.
  const auto match = pool_.prefix_cache().match_prefix(req.tokens, req.full_len() - 1, req.cache.extra_key,
                                                       req.admission_cursor);
  req.num_matched_prefix_tokens = match.matched_tokens;
  req.cache.last_node = match.last_node;
  req.cache.branching_len = match.full_matched_tokens > match.matched_tokens ? match.full_matched_tokens : 0;
  req.cache.cache_protected_len = match.matched_tokens;
  req.prefix_len = match.matched_tokens;
  if (pool_.states() != nullptr) pool_.states()->on_match(req, match);
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
  const bool nothing_runs = running_.reqs.empty() && rules_.empty_batch_is_never_full;
  // Windows move on, so that there may be room again although nobody left.
  if (preempts() || nothing_runs || pool_.has_windows()) running_.batch_is_full = false;
  if ((running_.batch_is_full || waiting_.empty()) && chunked_req_ == nullptr) return nullptr;
  if (num_allocatable_reqs(0) == 0 && chunked_req_ == nullptr && !preempts()) {
    running_.batch_is_full = true;
    return nullptr;
  }
  policy_.calc_priority(waiting_.all());

  const bool mixed = config_.enable_mixed_chunk && config_.chunked_prefill_size > 0;
  PrefillAdder::Options options;
  options.new_token_ratio = new_token_ratio_.current();
  options.max_prefill_tokens = config_.max_prefill_tokens;
  if (config_.chunked_prefill_size > 0) options.chunk_tokens = config_.chunked_prefill_size;
  options.mixed_decode_tokens = mixed ? static_cast<std::uint32_t>(running_.reqs.size()) : 0;
  options.steady = steady_.active() ? &steady_ : nullptr;
  options.finished = ended_running_;
  options.lists = &adder_lists_;
  PrefillAdder adder(pool_, running_.reqs, options, rules_);
  if (chunked_req_ != nullptr) {
    chunked_req_->prefix_len = chunked_req_->fill_len();
    if (!adder.add_chunked_req(*chunked_req_)) chunked_req_->extend_len = 0;
  }
  admit_waiting(adder);
  if (adder.can_run_list().empty()) {
    return_preempted(/*admitted=*/false);
    return nullptr;
  }
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

void Scheduler::admit_waiting(PrefillAdder& adder) {
  const bool continues = chunked_req_ != nullptr;
  for (Req* req : waiting_) {
    if (rules_.spent_budget_ends_admission && adder.budget_state() == AddReqResult::kOther) break;
    const std::size_t held_rows = continues && rules_.chunked_request_counts_once ? 1 : 0;
    if (adder.can_run_list().size() >= num_allocatable_reqs(held_rows)) running_.batch_is_full = true;
    if (running_.batch_is_full && !(preempts() && preempt_to_schedule(*req, adder))) break;
    match_prefix_for_admission(*req);
    const AddReqResult result = adder.add_one_req(*req);
    if (result == AddReqResult::kContinue) continue;
    const bool added = !adder.can_run_list().empty() && adder.can_run_list().back() == req;
    if (pool_.states() != nullptr && !added) pool_.states()->on_refused(*req);
    if (result == AddReqResult::kNoToken) {
      const bool others = !adder.can_run_list().empty() || !running_.reqs.empty();
      running_.batch_is_full = others || !rules_.full_needs_requests;
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

// Preempted requests wait again, behind everybody. Where nobody was admitted in their place, older releases
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

// Takes what has finished out of the running batch; returns whether anything had.
bool Scheduler::filter_running() {
  if (!running_may_have_finished_) return false;
  running_may_have_finished_ = false;
  if (put_away_.size() > 1) {
    ended_running_.clear();
    return std::erase_if(running_.reqs, [](Req* req) {
             if (req->finished) req->in_running = false;
             return req->finished;
           }) > 0;
  }
  const bool any = !ended_running_.empty();
  for (Req* req : ended_running_) {
    const auto at = std::find(running_.reqs.begin(), running_.reqs.end(), req);
    if (at != running_.reqs.end()) running_.reqs.erase(at);
    req->in_running = false;
  }
  ended_running_.clear();
  return any;
}

// Takes out what the pass in flight finishes, as far as lengths tell; returns whether there was any. It keeps
// its row and pages until its token is processed.
bool Scheduler::leave_finishing() {
  if (!leaves_early()) return false;
  if (steady_.active()) {
    const std::vector<Req*>& finishing = steady_.about_to_end();
    auto behind = running_.reqs.begin();
    for (Req* req : finishing) {
      steady_.leave(*req);
      req->in_running = false;
      req->in_decode_set = false;
      pool_.edits().leave(req->cache.row);
      behind = running_.reqs.erase(std::find(behind, running_.reqs.end(), req));
    }
    return !finishing.empty();
  }
  if (!running_may_finish_) return false;
  running_may_finish_ = false;
  return std::erase_if(running_.reqs, [this](Req* req) {
           if (!finishes_by_length(*req)) return false;
           if (req->in_flight == 0) {
             running_may_finish_ = true;
             return false;
           }
           req->in_running = false;
           req->in_decode_set = false;
           pool_.edits().leave(req->cache.row);
           return true;
         }) > 0;
}

// Tokens that pages are held for while the next step of `req` verifies its drafts.
std::uint32_t Scheduler::speculative_reach(const Req& req) const {
  const SpeculationConfig& speculation = config_.speculation;
  const std::uint32_t page = pool_.page_size();
  if (!speculation.v2) return req.kv_committed_len + speculation.num_draft_tokens;
  const std::uint32_t reach = req.kv_committed_len + 2 * speculation.alloc_len_per_decode(page);
  return std::max(req.allocated_len(),
                  rules_.speculation_reserves_whole_pages ? ceil_align(reach, page) : reach);
}

std::uint64_t Scheduler::new_tokens_required_next_decode(const std::vector<Req*>& reqs) const {
  const SpeculationConfig& speculation = config_.speculation;
  if (steady_.active()) return steady_.pages_to_open() * std::uint64_t{pool_.page_size()};
  if (!speculation.enabled()) return pool_.new_tokens_required_next_decode(reqs);
  const std::uint32_t page = pool_.page_size();
  if (!speculation.v2) return reqs.size() * speculation.tokens_of_step_v1(page);
  std::uint64_t tokens = 0;
  for (const Req* req : reqs)
    tokens += ceil_align(speculative_reach(*req), page) - ceil_align(req->allocated_len(), page);
  return tokens;
}

bool Scheduler::check_decode_mem(const std::vector<Req*>& reqs) {
  const std::uint64_t tokens = new_tokens_required_next_decode(reqs);
  pool_.evict_for(tokens);
  return pool_.allocatable_size() >= tokens;
}

// Whether a mixed step has room for them. Older releases do not ask, and fail where it has not.
bool Scheduler::decode_fits(const std::vector<Req*>& reqs) {
  if (rules_.mixed_step_checks_memory) return check_decode_mem(reqs);
  const std::uint64_t tokens = pool_.new_tokens_required_next_decode(reqs);
  return pool_.available_size() + pool_.evictable_size() >= tokens;
}

ScheduleBatch* Scheduler::update_running_batch() {
  const std::size_t before = running_.reqs.size();
  filter_running();
  const bool finishing = leave_finishing();
  if (running_.reqs.empty()) {
    running_.batch_is_full = false;
    return nullptr;
  }
  begin_steady();
  if (check_decode_mem(running_.reqs)) {
    new_token_ratio_.decay_step();
  } else if (finishing) {
    // What is about to finish makes room; nobody is retracted for it.
    running_.batch_is_full = false;
    return nullptr;
  } else {
    retract_decode();
  }
  if (running_.reqs.size() < before) running_.batch_is_full = false;
  if (running_.reqs.empty()) return nullptr;

  ScheduleBatch& batch = take_batch();
  batch.forward_mode = proto::DECODE;
  batch.reqs.assign(running_.reqs.begin(), running_.reqs.end());
  batch.capture_bucket = capture_bucket(running_.reqs.size());
  if (config_.speculation.enabled()) {
    prepare_for_verify(batch);
  } else if (begin_steady(); steady_.active()) {
    pool_.evict_for(running_.reqs.size() * std::uint64_t{pool_.page_size()});
    batch.steady_pass = steady_.form();
  } else {
    prepare_for_decode(running_.reqs);
    for (std::size_t i = 0; pool_.states() != nullptr && i < batch.reqs.size(); ++i)
      pool_.states()->plan_decode(*batch.reqs[i]);
  }
  return &batch;
}

constexpr std::size_t kRetractDecodeSteps = 20;  // SGLANG_RETRACT_DECODE_STEPS

// A running request gives its pages back and starts again later; what it generated is kept. `remaining`
// requests go on and get room for their next steps.
void Scheduler::give_up(Req& req, std::size_t remaining) {
  pool_.release(req, /*is_insert=*/false);
  --active_;
  req.in_running = false;
  pool_.evict_for(remaining * kRetractDecodeSteps);
  req.prefix_len = req.extend_len = 0;
  req.admission_cursor = req.queue_cursor = {};
  req.in_batch_prefix_known = false;
  req.known_extend_len = rules_.preemption_counts_known_tokens ? req.known_fill_len : 0;
  req.retracted = req.in_flight > 0;
  req.interruptions.push_back({.retracted = pass_time_});
}

// Gives up requests, those with the fewest generated tokens first (ties: the longest prompt), until the next
// decode step fits.
void Scheduler::retract_decode() {
  settle();
  std::vector<Req*> kept = running_.reqs;
  const bool by_priority = config_.retraction_policy == RetractionPolicy::kPriority;
  const bool low_first = config_.priority.low_values_first;
  const bool in_order = config_.speculation.enabled() && !config_.speculation.retracts_longest_first;
  if (!in_order)
    std::stable_sort(kept.begin(), kept.end(), [&](const Req* a, const Req* b) {
      if (by_priority && a->priority != b->priority) return (a->priority < b->priority) == low_first;
      return std::pair(a->output_len, b->input_len) > std::pair(b->output_len, a->input_len);
    });
  for (bool first = true; first || !check_decode_mem(kept); first = false) {
    if (kept.size() == 1) break;  // one always stays
    Req* req = kept.back();
    kept.pop_back();
    give_up(*req, kept.size());
    ++req->retractions;
    ++retractions_;
    retracted_input_tokens_ += req->input_len;
    retracted_output_tokens_ += req->output_len;
    enqueue(*req);
  }
  if (kept.size() == 1 && !check_decode_mem(kept)) {
    Req* req = kept.back();
    kept.pop_back();
    give_up(*req, 0);
    reject(*req, config_.pipeline.staged()
                     ? "other micro-batches have the KV pool, and its own has nobody left to retract"
                     : "the KV pool is too small even for this request alone");
  }
  running_.reqs = kept;  // in this order, as SGLang's filter_batch leaves it

  double decoded = 0;
  double wanted = 0;
  for (const Req* req : running_.reqs) {
    decoded += req->output_len;
    wanted += req->max_new_tokens;
  }
  const double steps = static_cast<double>(kRetractDecodeSteps * running_.reqs.size());
  new_token_ratio_.on_retract(std::min(1.0, (decoded + steps) / (wanted + 1)));
}

// REQUIRES: check_decode_mem(reqs).
void Scheduler::prepare_for_decode(std::vector<Req*>& reqs) {
  const std::uint64_t page = pool_.page_size();
  if (pool_.has_windows()) {
    for (Req* req : reqs) pool_.free_behind_window(*req);
  }
  pool_.evict_for(reqs.size() * page);
  for (Req* req : reqs) {
    ++req->decodes;
    if (!pool_.alloc_for_decode(*req)) {
      throw std::logic_error(
          fmt::format("request {}: no page left although the decode step was checked", req->id));
    }
  }
}

// eagle_prepare_for_decode of SGLang 0.5.23's speculative/eagle_utils.py, prepare_for_decode of 0.5.12's
// eagle_info_v2.py; in spec v1, _draft_preprocess_decode of eagle_worker.py, whose slots are given back
// before prepare_for_verify of eagle_info.py and ngram_info.py takes its own. REQUIRES:
// check_decode_mem(reqs).
void Scheduler::reserve_for_drafts(const std::vector<Req*>& reqs) {
  if (pool_.has_windows()) {
    for (Req* req : reqs) pool_.free_behind_window(*req);
  }
  const SpeculationConfig& speculation = config_.speculation;
  const std::uint32_t page = pool_.page_size();
  const std::uint64_t partial_pages = page == 1 ? 0 : reqs.size() * std::uint64_t{page};
  std::uint64_t drafted = 0, tokens = 0;
  for (const Req* req : reqs) {
    if (!speculation.v2) drafted += speculation.drafted_tokens_v1(req->kv_committed_len, page);
    tokens += speculative_reach(*req) - req->allocated_len();
  }
  if (drafted > 0) pool_.evict_for(drafted + partial_pages);
  if (tokens > 0 || !rules_.speculation_reserves_whole_pages) pool_.evict_for(tokens + partial_pages);
  for (Req* req : reqs) {
    ++req->decodes;
    if (!pool_.alloc_until(*req, speculative_reach(*req))) {
      throw std::logic_error(fmt::format("request {}: no page left although the step was checked", req->id));
    }
    if (claims_bonus()) ++req->kv_committed_len;
  }
}

void Scheduler::prepare_for_verify(ScheduleBatch& batch) {
  const SpeculationConfig& speculation = config_.speculation;
  batch.forward_mode = proto::TARGET_VERIFY;
  reserve_for_drafts(batch.reqs);
  for (Req* req : batch.reqs) {
    if (pool_.states() != nullptr) pool_.states()->plan_verify(*req);
    const std::vector<std::uint32_t>& named = req->source->accept_lens;
    if (speculation.computed) {
      // take_sampled() will say.
    } else if (!named.empty()) {
      batch.accept_lens.push_back(named[std::min<std::size_t>(req->verify_ct, named.size() - 1)]);
    } else {
      const AcceptLengths& lengths = speculation.accepted.at(req->verify_ct);
      batch.accept_lens.push_back(lengths.draw(config_.random_seed, req->id, req->verify_ct));
    }
    ++req->verify_ct;
  }
}

void Scheduler::write_forward_batch(const ScheduleBatch& batch, proto::ForwardBatch& message) {
  message.Clear();
  message.set_version(kForwardBatchVersion);
  message.set_forward_mode(batch.forward_mode);
  message.set_capture_bucket(batch.capture_bucket);
  message.set_micro_batch(batch.micro_batch);
  for (std::size_t i = 0; i < batch.num_extend; ++i) {
    const Req& req = *batch.reqs[i];
    message.add_extend_req_pool_indices(req.cache.row);
    message.add_extend_prefix_lens(req.prefix_len);
    message.add_extend_lens(req.extend_len);
    if (req.source->images.empty()) continue;
    message.set_image_prompts(true);
    write_images(req, message);
    if (config_.send_tokens) write_prompt_images(req, i, message);
  }
  if (batch.forward_mode == proto::TARGET_VERIFY) {
    message.set_num_draft_tokens(config_.speculation.num_draft_tokens);
    for (std::size_t i = 0; i < batch.accept_lens.size(); ++i) {
      message.add_accept_req_pool_indices(batch.reqs[i]->cache.row);
      message.add_accept_lens(batch.accept_lens[i]);
    }
  }
  if (config_.send_tokens) write_tokens(batch, message);
  if (config_.speculation.computed && config_.speculation.has_draft_model()) write_next_token(batch, message);
  if (pool_.states() != nullptr) pool_.states()->flush(batch.reqs, batch.num_extend, message);
  pool_.edits().flush(message);
}

void Scheduler::write_idle_batch(std::uint32_t capture_bucket, proto::ForwardBatch& message) {
  message.Clear();
  message.set_version(kForwardBatchVersion);
  message.set_forward_mode(proto::IDLE);
  message.set_capture_bucket(capture_bucket);
  pool_.edits().flush(message);
}

void Scheduler::take_sampled(ScheduleBatch& batch, const StepOutcome& outcome) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  if (outcome.next_token_ids.empty()) return;
  computes_ = true;
  if (batch.forward_mode == proto::TARGET_VERIFY) {
    take_verified(batch, outcome);
    return;
  }
  std::fill(token_of_row_.begin(), token_of_row_.end(), kNone);
  for (std::size_t i = 0; i < outcome.next_token_rows.size(); ++i) {
    const std::size_t row = outcome.next_token_rows[i];
    if (row >= token_of_row_.size()) token_of_row_.resize(row + 1, kNone);
    token_of_row_[row] = outcome.next_token_ids[i];
  }
  for (const Req* req : batch.reqs) {
    const std::size_t row = req->cache.row;
    if (row >= token_of_row_.size() || token_of_row_[row] == kNone) {
      throw std::logic_error(fmt::format("request {}: the executor sampled no token for it", req->id));
    }
    batch.next_token_ids.push_back(token_of_row_[row]);
  }
  batch.extend_logits.assign(outcome.extend_logits.begin(), outcome.extend_logits.end());
}

// Of a pass that verified: the tokens of each request, and how many.
void Scheduler::take_verified(ScheduleBatch& batch, const StepOutcome& outcome) {
  std::fill(count_of_row_.begin(), count_of_row_.end(), 0U);
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < outcome.next_token_rows.size(); ++i) {
    const std::size_t row = outcome.next_token_rows[i];
    if (row >= count_of_row_.size()) count_of_row_.resize(row + 1, 0);
    if (row >= token_of_row_.size()) token_of_row_.resize(row + 1, 0);
    count_of_row_[row] = outcome.accept_lens[i];
    token_of_row_[row] = first;
    first += outcome.accept_lens[i];
  }
  batch.next_token_ids.assign(outcome.next_token_ids.begin(), outcome.next_token_ids.end());
  for (const Req* req : batch.reqs) {
    const std::size_t row = req->cache.row;
    if (row >= count_of_row_.size() || count_of_row_[row] == 0)
      throw std::logic_error(fmt::format("request {}: the executor verified no token of it", req->id));
    batch.accept_lens.push_back(count_of_row_[row]);
    batch.first_token.push_back(token_of_row_[row]);
  }
}

void Scheduler::keep_sampled(Req& req, const ScheduleBatch& batch, std::size_t position) {
  if (batch.next_token_ids.empty()) return;
  req.output_ids.push_back(batch.next_token_ids[position]);
  if (req.output_len > 0 || position >= batch.num_extend || batch.extend_logits.empty()) return;
  const std::size_t vocabulary = batch.extend_logits.size() / batch.num_extend;
  const auto first = batch.extend_logits.begin() + static_cast<std::ptrdiff_t>(position * vocabulary);
  req.prompt_logits.assign(first, first + static_cast<std::ptrdiff_t>(vocabulary));
}

// Requests that decode together get their tokens at the same times: gaps are reported in groups. Tokens that
// come at once share the time since the ones before, as in SGLang's serving benchmark.
inline void Scheduler::tokens_arrived(Req& req, std::uint32_t count, double now, PassResult& result) {
  req.output_len += count;
  if (req.steady != Req::kNotSteady) steady_.got_token(req);
  if (result.wants_tokens) result.tokens.push_back({&req, count});
  if (req.output_len == count) {
    req.first_token_time = now;
    result.kv_ready.push_back(&req);
  } else {
    add_gap(count == 1 ? now - req.last_token_time : (now - req.last_token_time) / count, count);
  }
  req.last_token_time = now;
}

bool Scheduler::is_finished(const Req& req) const {
  if (req.to_finish) return true;
  if (req.output_ids.empty()) return req.output_len >= req.end_len;
  if (req.output_len >= req.max_new_tokens) return true;
  if (!req.may_stop) return false;
  const auto& eos = config_.eos_token_ids;
  return std::find(eos.begin(), eos.end(), req.output_ids.back()) != eos.end();
}

// A priced decode pass, which is most of what a run is made of. As process_batch_result(), without what such
// a pass has not: everybody had a first token before, and nobody keeps what was sampled.
void Scheduler::process_decoded(ScheduleBatch& batch, double now, PassResult& result) {
  const bool wants_tokens = result.wants_tokens;
  bool may_finish = false;
  double last_time = 0;  // of a group of requests that got their last token at once
  std::uint32_t count = 0;
  for (Req* const decoded : batch.reqs) {
    Req& req = *decoded;
    --req.in_flight;
    if (req.finished || req.retracted) [[unlikely]] {
      if (req.in_flight == 0) req.retracted = false;
      continue;
    }
    if (req.last_token_time != last_time) {
      if (count > 0) add_gap(now - last_time, count);
      last_time = req.last_token_time;
      count = 0;
    }
    ++count;
    req.last_token_time = now;
    const std::uint32_t output_len = ++req.output_len;
    if (req.steady != Req::kNotSteady) steady_.got_token(req);
    if (wants_tokens) [[unlikely]]
      result.tokens.push_back({&req, 1});
    if (output_len >= req.end_len) [[unlikely]] {
      finish(req);
      result.finished.push_back(&req);
    } else {
      may_finish |= output_len + 1 >= req.max_new_tokens;
    }
  }
  if (count > 0) add_gap(now - last_time, count);
  running_may_finish_ = running_may_finish_ || may_finish;
  flush_inter_token();
}

// Whether decode passes can be counted: everybody of them gets a token that nobody looks at, and nothing but
// its length ends a request.
bool Scheduler::counts_decodes() const {
  return config_.defers_steady_decode && !computes_ && !shows_tokens_ && !config_.speculation.enabled() &&
         !config_.enable_mixed_chunk && pool_.states() == nullptr && !pool_.has_windows() &&
         put_away_.size() == 1 && !preempts();
}

void Scheduler::begin_steady() {
  if (steady_.active() || !counts_decodes()) return;
  for (const Req* req : running_.reqs) {
    if (!SteadyDecode::can_join(*req)) return;
  }
  steady_.begin();
  for (Req* req : running_.reqs) join_steady(*req);
}

void Scheduler::join_steady(Req& req) {
  if (SteadyDecode::can_join(req)) {
    steady_.join(req, /*whole=*/rules_.ignore_eos_reserves_all && !req.may_stop);
  } else {
    settle();
  }
}

// Requests are told what was counted.
void Scheduler::settle() {
  if (!steady_.active()) return;
  steady_.end();
  running_may_finish_ = true;
}

void Scheduler::process_steady(double now, PassResult& result) {
  steady_.process(now, [&](double last_time, std::uint32_t count) { add_gap(now - last_time, count); });
  while (Req* const req = steady_.next_ended()) {
    finish(*req);
    result.finished.push_back(req);
  }
  flush_inter_token();
}

void Scheduler::process_batch_result(ScheduleBatch& batch, double now, PassResult& result) {
  select(batch.micro_batch);
  shows_tokens_ = result.wants_tokens;
  if (!counts_decodes()) settle();
  if (steady_.covers(batch.steady_pass)) {
    process_steady(now, result);
    return;
  }
  if (batch.forward_mode == proto::DECODE && pool_.states() == nullptr && batch.next_token_ids.empty()) {
    process_decoded(batch, now, result);
    return;
  }
  for (std::size_t i = 0; i < batch.reqs.size(); ++i) {
    Req& req = *batch.reqs[i];
    --req.in_flight;
    if (req.finished || req.retracted) {
      if (req.in_flight == 0) req.retracted = false;
      continue;
    }
    if (&req == batch.chunked_req) continue;
    if (pool_.states() != nullptr && batch.forward_mode == proto::DECODE)
      pool_.states()->on_decoded(req, req.kv_committed_len - req.in_flight);
    if (batch.forward_mode == proto::TARGET_VERIFY) {
      if (pool_.states() != nullptr)
        pool_.states()->on_verified(req, req.kv_committed_len, req.kv_committed_len + batch.accept_lens[i]);
      tokens_arrived(req, keep_accepted(req, batch, i, batch.accept_lens[i]), now, result);
    } else {
      keep_sampled(req, batch, i);
      tokens_arrived(req, 1, now, result);
    }
    if (is_finished(req)) {
      finish(req);
      result.finished.push_back(&req);
      continue;
    }
    running_may_finish_ = running_may_finish_ || finishes_by_length(req);
    if (i < batch.num_extend) {
      const bool steady = req.steady != Req::kNotSteady;
      if (steady) steady_.write_pages(req);
      pool_.cache_unfinished(req);
      if (steady) steady_.look_at_pages(req);
    } else if (config_.speculation.enabled() && batch.forward_mode == proto::MIXED) {
      ++req.kv_committed_len;
    }
  }
  flush_inter_token();
}

// Whether a step, when it is formed, counts the KV of the token that it begins with, as a decode step does.
bool Scheduler::claims_bonus() const {
  return config_.speculation.v2 && !rules_.speculation_counts_what_arrived;
}

// Of `count` tokens that a step accepted, those up to the request's last: they become output. All of them
// have KV; in spec v1 the step has given back what came behind the last.
std::uint32_t Scheduler::keep_accepted(Req& req, const ScheduleBatch& batch, std::size_t position,
                                       std::uint32_t count) {
  if (count > accept_histogram_.size()) accept_histogram_.resize(count, 0);
  ++accept_histogram_[count - 1];
  std::uint32_t last = req.max_new_tokens;
  // Nobody sees what an aborted request gets: spec v2 keeps it all, spec v1 stops at the first.
  if (req.to_finish) last = req.output_len + (config_.speculation.v2 ? count : 1);
  // Spec v1 looks at token by token.
  const bool length_wins = config_.speculation.v2 && !rules_.end_of_sequence_beats_length &&
                           req.output_len + count >= req.max_new_tokens;
  const bool may_stop = req.may_stop && !length_wins && !req.to_finish;
  const bool ends_earlier = may_stop && !req.source->output.empty() && batch.next_token_ids.empty();
  if (ends_earlier) last = std::min(last, static_cast<std::uint32_t>(req.source->output.size()));
  std::uint32_t kept = std::min(count, last - req.output_len);
  if (!batch.next_token_ids.empty()) {  // computed: an end of sequence may lie among them
    const auto first = batch.next_token_ids.begin() + batch.first_token[position];
    const auto& eos = config_.eos_token_ids;
    const auto end =
        may_stop ? std::find_first_of(first, first + kept, eos.begin(), eos.end()) : first + kept;
    if (end != first + kept) kept = static_cast<std::uint32_t>(end - first) + 1;
    req.output_ids.insert(req.output_ids.end(), first, first + kept);
  }
  if (!config_.speculation.v2) {
    req.kv_committed_len += kept;
    pool_.give_back(req, req.kv_committed_len);
    return kept;
  }
  const std::uint32_t computed = req.kv_committed_len + count - (claims_bonus() ? 1 : 0);
  if (rules_.speculation_caches_to_the_stop) {  // SGLang's owned_kv_len
    req.kv_committed_len = std::min(computed, req.full_len() + kept);
    req.states.overshot = computed > req.kv_committed_len;
    return kept;
  }
  req.kv_committed_len = computed;
  req.accepted_behind_end = count - kept;
  if (!batch.next_token_ids.empty()) {
    const auto first = batch.next_token_ids.begin() + batch.first_token[position];
    req.ids_behind_end.assign(first + kept, first + count);
  }
  return kept;
}

void Scheduler::flush_inter_token() {
  if (gap_count_ > 0) on_inter_token_(gap_, gap_count_);
  gap_count_ = 0;
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

std::uint32_t Scheduler::capture_bucket(std::size_t bs) const {
  const auto bucket = std::lower_bound(config_.cuda_graph_bs.begin(), config_.cuda_graph_bs.end(), bs);
  return bucket == config_.cuda_graph_bs.end() ? 0 : *bucket;
}

bool Scheduler::on_idle(bool more_to_come) {
  settle();
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
  // What others leave in the cache may make a prefix that takes less of the window pool.
  if (more_to_come && pool_.has_windows()) return false;
  Req* req = *waiting_.begin();
  waiting_.remove(1, [](const Req*) { return true; });
  reject(*req, "prompt and output together do not fit the KV pool");
  return true;
}

void Scheduler::visit_unfinished(const std::function<void(const Req&)>& visit) {
  settle();
  std::vector<const Req*> live;
  for (const auto& req : arena_) {
    if (req->live && !req->finished) live.push_back(req.get());
  }
  std::sort(live.begin(), live.end(), [](const Req* a, const Req* b) { return a->id < b->id; });
  for (const Req* req : live) visit(*req);
}

void Scheduler::check_invariants() {
  settle();
  std::vector<const Req*> live;
  for (const auto& req : arena_) {
    if (req->live && !req->finished) live.push_back(req.get());
  }
  pool_.check_invariants(live);
}

}  // namespace tpsim::scheduler
