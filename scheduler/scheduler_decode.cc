// Scheduler: the running batch: room for its next step, and which give up their place where there is none.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "proto/base/ceil_div.h"
#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

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
  batch.capture_bucket = config_.capture_bucket(running_.reqs.size());
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
    if (decodes_only())
      queues_->thread_seconds += config_.disaggregation.offload_token_seconds * req->kv_committed_len;
    give_up(*req, kept.size());
    ++req->retractions;
    ++retractions_;
    retracted_input_tokens_ += req->input_len;
    retracted_output_tokens_ += req->output_len;
    if (decodes_only()) {
      queues_->retracted.push_back(req);
    } else {
      enqueue(*req);
    }
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

}  // namespace tpsim::scheduler
