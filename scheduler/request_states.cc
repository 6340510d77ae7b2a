#include "scheduler/request_states.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace tpsim::scheduler {

using kvcache::PrefixCache;

RequestStates::RequestStates(const StateConfig& config, kvcache::StateSlots& slots, PrefixCache& cache,
                             std::function<void(std::uint32_t)> evict)
    : config_(config), slots_(slots), cache_(cache), evict_(std::move(evict)) {}

std::uint32_t RequestStates::alloc_or_evict() {
  std::uint32_t slot = slots_.alloc();
  if (slot == HeldStates::kNone) {
    evict_(1);
    slot = slots_.alloc();
  }
  if (slot == HeldStates::kNone)
    throw std::logic_error(fmt::format("all {} states are held by running requests", slots_.num_slots()));
  return slot;
}

void RequestStates::copy(std::uint32_t from, std::uint32_t to) {
  copies_from_.push_back(from);
  copies_to_.push_back(to);
}

void RequestStates::take_snapshot(Req& req, std::uint32_t tokens, std::uint32_t slot) {
  snapshot_rows_.push_back(req.cache.row);
  snapshot_lens_.push_back(tokens);
  snapshot_slots_.push_back(slot);
}

// ---- admission ----

void RequestStates::on_match(Req& req, const PrefixCache::MatchResult& match) {
  HeldStates& held = req.states;
  const std::uint32_t whole = match.full_matched_tokens / config_.chunk * config_.chunk;
  held.branching_len = whole > match.matched_tokens ? whole : 0;
  held.missed_len = match.full_matched_tokens - match.matched_tokens;
  if (match.last_node == PrefixCache::kRoot) return;
  held.slot = slots_.alloc();
  if (held.slot == HeldStates::kNone) {
    // The state that it goes on from must not be the one that makes room.
    const kvcache::TreeLock lock = cache_.inc_lock_ref(match.last_node);
    held.slot = alloc_or_evict();
    cache_.dec_lock_ref(match.last_node, lock);
  }
  held.copied_from = cache_.state_slot(match.last_node);
}

void RequestStates::on_refused(Req& req) {
  if (req.states.slot != HeldStates::kNone) slots_.free(req.states.slot);
  req.states.slot = req.states.copied_from = HeldStates::kNone;
}

std::uint32_t RequestStates::held_by(const Req& req) const {
  std::uint32_t held = req.states.slot != HeldStates::kNone ? 1 : 0;
  for (const std::uint32_t slot : req.states.tracking) held += slot != HeldStates::kNone ? 1 : 0;
  return held;
}

void RequestStates::make_room(const std::vector<Req*>& reqs) {
  std::uint32_t needed = 0;
  for (const Req* req : reqs) needed += 1 + config_.tracking_slots - held_by(*req);
  if (const std::uint32_t available = slots_.available(); available < needed) evict_(needed - available);
}

void RequestStates::bind(Req& req) {
  HeldStates& held = req.states;
  if (held.slot == HeldStates::kNone) {
    held.slot = alloc_or_evict();
    copy(HeldStates::kNone, held.slot);
  } else if (held.copied_from != HeldStates::kNone) {
    copy(held.copied_from, held.slot);
    ++counts_.hits;
  }
  counts_.missed_tokens += std::exchange(held.missed_len, 0);
  held.copied_from = HeldStates::kNone;
  if (!tracks() || held.tracking[0] != HeldStates::kNone) return;
  for (std::uint32_t i = 0; i < config_.tracking_slots; ++i) held.tracking[i] = alloc_or_evict();
  held.next = held.last = held.in_flight = 0;
  held.tracked_len = held.previous_len = 0;
}

// ---- snapshots ----

void RequestStates::plan_extend(Req& req) {
  if (!tracks() || req.extend_len < config_.chunk) return;
  HeldStates& held = req.states;
  std::uint32_t tokens = req.prefix_len + req.extend_len / config_.chunk * config_.chunk;
  const std::uint32_t branching = held.branching_len;
  if (branching > req.prefix_len && branching < tokens && (branching - req.prefix_len) % config_.chunk == 0)
    tokens = branching;
  held.last = held.next;
  if (config_.tracking_slots == 2) held.next ^= 1U;
  held.tracked_len = tokens;
  take_snapshot(req, tokens, held.tracking[held.last]);
}

void RequestStates::plan_decode(Req& req) {
  if (!tracks() || req.kv_committed_len % config_.track_interval != 0) return;
  HeldStates& held = req.states;
  held.in_flight = held.next;
  if (config_.tracking_slots == 2) held.next ^= 1U;
  take_snapshot(req, req.kv_committed_len, held.tracking[held.in_flight]);
}

void RequestStates::on_decoded(Req& req, std::uint32_t seq_len) {
  if (!tracks() || seq_len % config_.track_interval != 0) return;
  req.states.last = req.states.in_flight;
  req.states.tracked_len = seq_len;
}

void RequestStates::plan_verify(Req& req) { req.states.in_flight = req.states.next; }

void RequestStates::on_verified(Req& req, std::uint32_t before, std::uint32_t after) {
  const std::uint32_t interval = config_.track_interval;
  if (!tracks() || before / interval == after / interval) return;
  HeldStates& held = req.states;
  held.previous_len = config_.tracking_slots == 2 ? held.tracked_len : 0;
  held.last = held.in_flight;
  held.tracked_len = after / interval * interval;
  if (config_.tracking_slots == 2) held.next = held.last ^ 1U;
  take_snapshot(req, held.tracked_len, held.tracking[held.last]);
}

bool RequestStates::can_cache(const Req& req) const { return tracks() || !req.states.overshot; }

// ---- the tree's share ----

void RequestStates::offer_unfinished(Req& req) {
  HeldStates& held = req.states;
  PrefixCache::StateOffer& offer = req.cache.offer;
  offer = {};
  if (!tracks()) {
    offer = {alloc_or_evict(), req.fill_len()};
    copy(held.slot, offer.slot);
  } else if (held.tracked_len > 0) {
    const std::uint32_t fresh = alloc_or_evict();
    offer = {std::exchange(held.tracking[held.last], fresh), held.tracked_len};
  }
}

void RequestStates::after_unfinished(Req& req) {
  PrefixCache::StateOffer& offer = req.cache.offer;
  if (offer.slot != HeldStates::kNone) slots_.free(offer.slot);  // the tree had one
  offer = {};
  req.states.tracked_len = req.states.previous_len = 0;
}

void RequestStates::offer_finished(Req& req) {
  HeldStates& held = req.states;
  req.cache.offer = {};
  if (!tracks()) {
    req.cache.offer = {std::exchange(held.slot, HeldStates::kNone), req.kv_committed_len};
    return;
  }
  if (held.tracked_len > req.kv_committed_len) {  // after tokens that nobody got
    held.tracked_len = held.previous_len;
    held.last ^= 1U;
  }
  if (held.tracked_len > 0) {
    req.cache.offer = {std::exchange(held.tracking[held.last], HeldStates::kNone), held.tracked_len};
  }
}

void RequestStates::release(Req& req) {
  const auto give_back = [this](std::uint32_t slot) {
    if (slot != HeldStates::kNone) slots_.free(slot);
  };
  give_back(req.cache.offer.slot);
  give_back(req.states.slot);
  for (const std::uint32_t slot : req.states.tracking) give_back(slot);
  req.cache.offer = {};
  req.states = {};
}

void RequestStates::flush(const std::vector<Req*>& reqs, std::size_t num_extend, proto::ForwardBatch& batch) {
  for (std::size_t i = 0; i < num_extend; ++i) batch.add_extend_state_slots(reqs[i]->states.slot);
  const auto move = [](std::vector<std::uint32_t>& from, auto* to) {
    to->Add(from.begin(), from.end());
    from.clear();
  };
  move(copies_from_, batch.mutable_state_copy_from());
  move(copies_to_, batch.mutable_state_copy_to());
  move(snapshot_rows_, batch.mutable_state_snapshot_rows());
  move(snapshot_lens_, batch.mutable_state_snapshot_lens());
  move(snapshot_slots_, batch.mutable_state_snapshot_slots());
}

}  // namespace tpsim::scheduler
