#include "scheduler/prefill_delayer.h"

#include <algorithm>

namespace tpsim::scheduler {

void PrefillSizes::add_to_recent(std::size_t requests) {
  recent_.push_back(requests);
  if (recent_.size() > kRecent) recent_.pop_front();
  largest_ = *std::ranges::max_element(recent_);
}

bool PrefillDelayer::allows(std::span<const PrefillBid> bids, double now) {
  const auto asks = std::ranges::count(bids, true, &PrefillBid::asked);
  if (asks == 0) return allow();
  const auto below_watermark = [this](const PrefillBid& bid) {
    return bid.asked && bid.token_usage < config_.token_usage_low_watermark.value_or(0);
  };
  if (std::ranges::any_of(bids, below_watermark)) return allow();
  const bool all = asks == std::ssize(bids);
  if (all && !wants_more(bids, now)) return allow();
  if (all && !skipped_first_) {
    skipped_first_ = true;
    return allow();
  }
  const bool waits_on = delayed_passes_ + 1 < config_.max_delay_passes;
  return waits_on || (all && !bounded_) ? delay(now) : allow();
}

// Of ranks that all ask: whether a prefill now would be smaller than it might be.
bool PrefillDelayer::wants_more(std::span<const PrefillBid> bids, double now) const {
  const std::size_t running = std::ranges::max_element(bids, {}, &PrefillBid::running)->running;
  const std::size_t largest = std::ranges::max_element(bids, {}, &PrefillBid::max_prefill_bs)->max_prefill_bs;
  if (max_running_requests_ < running + largest) return true;
  if (!config_.queue_min_ratio || running == 0) return false;
  const std::size_t waiting = std::ranges::max_element(bids, {}, &PrefillBid::waiting)->waiting;
  const auto share = static_cast<std::size_t>(static_cast<double>(running) * *config_.queue_min_ratio);
  const bool expired = delayed_passes_ > 0 && now - delayed_since_ >= config_.max_delay_seconds;
  return waiting < std::min(share, largest) && !expired;
}

bool PrefillDelayer::delay(double now) {
  if (delayed_passes_++ == 0) delayed_since_ = now;
  return false;
}

bool PrefillDelayer::allow() {
  delayed_passes_ = 0;
  return true;
}

}  // namespace tpsim::scheduler
