#include "scheduler/steady_decode.h"

#include <algorithm>
#include <cstdint>

#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

// Whether the next pass is the last one again, each of its requests one token longer. What would be done for
// them otherwise: filter_running(), leave_finishing() and get_new_batch_prefill() find nothing to do, there
// is room for a page each without eviction.
bool Scheduler::steady_goes_on() {
  if (steady_.batch == nullptr && !begin_steady()) return false;
  return steady_.formed < steady_.most_formed && steady_.processed < steady_.most_processed &&
         (waiting_.empty() || running_.batch_is_full) &&
         pool_.available_size() >= steady_.batch->reqs.size() * std::uint64_t{pool_.page_size()};
}

std::uint64_t Scheduler::tokens_of_a_page_each(const ScheduleBatch& batch) const {
  return batch.reqs.size() * std::uint64_t{pool_.page_size()};
}

bool Scheduler::begin_steady() {
  const bool simple = config_.defers_steady_decode && !computes_ && !shows_tokens_ &&
                      !config_.speculation.enabled() && pool_.states() == nullptr && !pool_.has_windows() &&
                      put_away_.size() == 1;
  if (!simple || last_batch_ == nullptr || last_batch_->forward_mode != proto::DECODE) return false;
  // Nobody has ended, joined or left since it was formed.
  const bool somebody_leaves =
      rules_.skip_finishing_decode && !config_.disable_overlap_schedule && running_may_finish_;
  if (running_may_have_finished_ || somebody_leaves || last_batch_->reqs.size() != running_.reqs.size())
    return false;
  if (chunked_req_ != nullptr || preempts() || !(waiting_.empty() || running_.batch_is_full)) return false;

  // Results until somebody is about to end: the token before the last one is a sign for others, too
  // (finishes_by_length). Few of them are not worth the look at everybody.
  std::uint32_t results = SteadyDecode::kMost + 1;
  for (const Req* req : last_batch_->reqs) {
    if (req->output_len + 2 + SteadyDecode::kFewest > req->end_len) return false;
    results = std::min(results, req->end_len - 2 - req->output_len);
  }
  std::uint32_t steps = std::min(results, SteadyDecode::kMost);
  steady_.opens.assign(std::min(pool_.page_size(), SteadyDecode::kMost), 0);
  steady_.groups.clear();
  for (const Req* req : last_batch_->reqs) {
    if (req->finished || req->retracted || req->to_finish) return false;
    steps = pool_.steps_in_place(*req, steps);
    if (steps == 0) return false;
    if (const std::uint32_t first = pool_.steps_to_page(*req); first < steady_.opens.size())
      ++steady_.opens[first];
    if (steady_.groups.empty() || steady_.groups.back().last_token_time != req->last_token_time) {
      steady_.groups.push_back({req->last_token_time, 1});
    } else {
      ++steady_.groups.back().count;
    }
  }
  steady_.batch = last_batch_;
  steady_.most_formed = steps;
  steady_.most_processed = results;
  steady_.formed = steady_.processed = 0;
  return true;
}

ScheduleBatch* Scheduler::repeat_decode() {
  const std::uint32_t step = steady_.formed % pool_.page_size();
  const std::uint32_t pages = step < steady_.opens.size() ? steady_.opens[step] : 0;
  // As check_decode_mem() and prepare_for_decode() ask, one after the other.
  pool_.evict_for(std::uint64_t{pages} * pool_.page_size());
  pool_.evict_for(tokens_of_a_page_each(*steady_.batch));
  pool_.promise(pages);
  ++steady_.formed;
  new_token_ratio_.decay_step();
  recycle();
  return steady_.batch;
}

bool Scheduler::defer_result(const ScheduleBatch& batch, double now) {
  if (steady_.batch != &batch || steady_.processed >= steady_.most_processed) return false;
  if (steady_.processed == 0) {
    for (const SteadyDecode::Group& group : steady_.groups) add_gap(now - group.last_token_time, group.count);
  } else {
    add_gap(now - steady_.last_time, static_cast<std::uint32_t>(batch.reqs.size()));
  }
  flush_inter_token();
  steady_.last_time = now;
  ++steady_.processed;
  return true;
}

// Tells the requests what was noted.
void Scheduler::settle() {
  if (steady_.batch == nullptr) return;
  for (Req* const req : steady_.batch->reqs) {
    pool_.take_promised(*req, steady_.formed);
    req->decodes += steady_.formed;
    req->in_flight += steady_.formed;
    req->in_flight -= steady_.processed;
    req->output_len += steady_.processed;
    if (steady_.processed > 0) req->last_token_time = steady_.last_time;
  }
  steady_.batch = nullptr;
}

}  // namespace tpsim::scheduler
