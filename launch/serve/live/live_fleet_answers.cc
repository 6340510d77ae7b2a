// What the replicas of a live server tell: tokens and ends on their way to clients, KV from one side of a
// pair to the other.
#include <algorithm>
#include <utility>

#include "launch/serve/live/live_fleet.h"

namespace tpsim::launch {

void LiveFleet::on_tokens(Worker& worker, const scheduler::PassResult& result) {
  auto completed = result.finished.begin();  // in the order of the tokens
  for (const scheduler::RequestTokens& tokens : result.tokens) {
    Open& open = open_.at(tokens.req->id);
    const scheduler::Req& req = *tokens.req;
    const bool ends = completed != result.finished.end() && *completed == &req;
    if (!open.started) {
      open.started = true;
      if (!ends) open.held_until = result.time + first_token_seconds_;
      Worker& prefiller = at(open.at.prefill);
      prefiller.lengths.pending -= open.length;
      worker.lengths.decoding += open.length;
      const auto scheduled = [&](ServerStatistics& of) {
        of.on_scheduled(req.first_scheduled_time - open.sent, req.input_len, req.cached_tokens);
      };
      count(worker, [&](ServerStatistics& of) {
        of.on_first_token(result.time - open.sent);
        scheduled(of);
      });
      if (&prefiller != &worker) scheduled(prefiller.statistics);
    }
    open.length += tokens.count;
    worker.lengths.decoding += tokens.count;
    TokenNews& news = deliveries_.add(std::max(result.time, open.held_until), open.listener);
    news.count = tokens.count;
    news.cached_tokens = req.cached_tokens;
    news.cached_host = req.cached_host;
    news.cached_storage = req.cached_storage;
    news.retractions = req.retractions;
    if (!req.output_ids.empty()) {
      const auto size = static_cast<std::ptrdiff_t>(req.output_len);
      news.ids.assign(req.output_ids.begin() + (size - tokens.count), req.output_ids.begin() + size);
    }
    // One event for the last token and the end.
    if (ends) {
      ++completed;
      open.told_end = true;
      news.end = req.cancelled ? scheduler::RequestState::kCancelled : scheduler::RequestState::kCompleted;
      news.latency = result.time - open.sent;
    }
  }
}

void LiveFleet::on_finished(Worker& worker, const scheduler::Req& req, scheduler::RequestState state,
                            const char* because, double time) {
  if (only_prefilled(worker, req, state, time)) return;
  const auto found = open_.find(req.id);
  if (found == open_.end()) return;
  const double latency = time - found->second.sent;
  const scheduler::Split chosen = found->second.at;
  (found->second.started ? worker.lengths.decoding : at(chosen.prefill).lengths.pending) -=
      found->second.length;
  count(worker, [&](ServerStatistics& of) { of.on_finished(req, state, latency); });
  const std::uint32_t session = found->second.session;
  in_flight_.remove(chosen.decode, session);
  if (chosen.prefill != chosen.decode) in_flight_.remove(chosen.prefill, session);
  if (!found->second.told_end) {
    TokenNews& news =
        deliveries_.add(std::max(time, found->second.held_until), std::move(found->second.listener));
    news.end = state;
    news.because = because == nullptr ? "" : because;
    news.latency = latency;
    news.cached_tokens = req.cached_tokens;
    news.cached_host = req.cached_host;
    news.cached_storage = req.cached_storage;
    news.retractions = req.retractions;
  }
  open_.erase(found);
  --open_requests_;
}

bool LiveFleet::only_prefilled(Worker& worker, const scheduler::Req& req, scheduler::RequestState state,
                               double time) {
  const auto found = of_pairs_.find(req.id);
  if (found == of_pairs_.end()) return false;
  OfPair& of = found->second;
  const bool prefilled = worker.number == of.at.prefill;
  (prefilled ? of.prefills : of.decodes) = false;
  const std::uint32_t decoder = of.at.decode;
  if (prefilled) worker.statistics.on_finished(req, state, time - of.sent);
  if (!of.prefills && !of.decodes) {
    of_pairs_.erase(found);
  } else if (prefilled && state == scheduler::RequestState::kRejected) {
    at(decoder).replica.prefill_refused(req.id, time);
    look_again(decoder);
  }
  return prefilled;
}

void LiveFleet::on_kv_message(const scheduler::KvMessage& message) {
  const auto found = of_pairs_.find(message.req->id);
  if (found == of_pairs_.end()) return;
  const OfPair& of = found->second;
  if (message.kind == scheduler::KvMessage::Kind::kPages && !of.prefills) return;  // nobody asks for them
  pairs_->hand_on(message, of.at, at(of.at.prefill).replica, at(of.at.decode).replica);
  look_again(of.at.told(message));
}

}  // namespace tpsim::launch
