// Scheduler: what a pass has computed becomes output, and its requests' end.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "scheduler/scheduler.h"

namespace tpsim::scheduler {

void Scheduler::take_sampled(ScheduleBatch& batch, const StepOutcome& outcome) {
  struct Sampled {
    std::uint32_t first = 0;  // of next_token_ids
    std::uint32_t count = 0;
  };
  if (outcome.next_token_ids.empty()) return;
  computes_ = true;
  const bool verified = batch.forward_mode == proto::TARGET_VERIFY;
  std::unordered_map<std::uint32_t, Sampled> of_row;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < outcome.next_token_rows.size(); ++i) {
    const Sampled sampled{first, verified ? outcome.accept_lens[i] : 1};
    of_row[outcome.next_token_rows[i]] = sampled;
    first += sampled.count;
  }
  for (const Req* req : batch.reqs) {
    const Sampled sampled = of_row[req->cache.row];
    if (sampled.count == 0) {
      throw std::logic_error(fmt::format("request {}: the executor {}", req->id,
                                         verified ? "verified no token of it" : "sampled no token for it"));
    }
    if (verified) {
      batch.accept_lens.push_back(sampled.count);
      batch.first_token.push_back(sampled.first);
    } else {
      batch.next_token_ids.push_back(outcome.next_token_ids[sampled.first]);
    }
  }
  if (verified) {
    batch.next_token_ids.assign(outcome.next_token_ids.begin(), outcome.next_token_ids.end());
  } else {
    batch.extend_logits.assign(outcome.extend_logits.begin(), outcome.extend_logits.end());
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

// Whether decode passes can be counted: every request gets a token that nobody looks at, and nothing but
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

std::uint64_t Scheduler::answered_tokens(const ScheduleBatch& batch) const {
  std::uint64_t sum = 0;
  for (std::size_t i = batch.num_extend; i < batch.reqs.size(); ++i) {
    const Req& req = *batch.reqs[i];
    if (!req.finished) sum += steady_.active() ? steady_.output_len(req) : req.output_len;
  }
  return sum;
}

void Scheduler::process_batch_result(ScheduleBatch& batch, double now, PassResult& result) {
  select(batch.micro_batch);
  if (pool_.hicache() != nullptr) pool_.hicache()->set_time(now);
  shows_tokens_ = result.wants_tokens;
  if (!counts_decodes()) settle();
  if (steady_.covers(batch.steady_pass)) {
    process_steady(now, result);
    return;
  }
  for (std::size_t i = 0; i < batch.reqs.size(); ++i) {
    Req& req = *batch.reqs[i];
    --req.in_flight;
    if (req.finished || req.retracted) {
      if (req.in_flight == 0) req.retracted = false;
      continue;
    }
    if (prefills_only()) {
      process_prefilled(req, /*goes_on=*/&req == batch.chunked_req, now);
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
// have KV; in spec v1 the step has given back what came after the last.
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

}  // namespace tpsim::scheduler
