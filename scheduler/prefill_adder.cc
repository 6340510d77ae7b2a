#include "scheduler/prefill_adder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tpsim::scheduler {
namespace {

std::int64_t remaining_new_tokens(const Req& req) {
  return static_cast<std::int64_t>(req.max_new_tokens) - req.output_len;
}

}  // namespace

PrefillAdder::PrefillAdder(KvPool& pool, const std::vector<Req*>& running, double new_token_ratio,
                           std::uint32_t max_prefill_tokens, std::optional<std::uint32_t> chunk_tokens,
                           std::uint32_t mixed_decode_tokens, bool radix_disabled)
    : pool_(pool),
      running_(running),
      rem_input_tokens_(std::int64_t{max_prefill_tokens} - mixed_decode_tokens),
      radix_disabled_(radix_disabled),
      total_offset_(mixed_decode_tokens),
      current_offset_(mixed_decode_tokens) {
  if (chunk_tokens) rem_chunk_tokens_ = std::int64_t{*chunk_tokens} - mixed_decode_tokens;
  for (const Req* req : running_) {
    total_offset_ +=
        static_cast<double>(std::min(remaining_new_tokens(*req), kClipMaxNewTokens)) * new_token_ratio;
  }
}

std::int64_t PrefillAdder::rem_total_tokens() const {
  const auto held = static_cast<double>(pool_.available_size() + pool_.evictable_size());
  return static_cast<std::int64_t>(std::ceil(held - total_offset_));
}

std::int64_t PrefillAdder::cur_rem_tokens() const {
  return static_cast<std::int64_t>(pool_.available_size() + pool_.evictable_size()) - current_offset_;
}

std::int64_t PrefillAdder::ceil_paged(std::int64_t tokens) const {
  const std::int64_t page = pool_.page_size();
  return (tokens + page - 1) / page * page;
}

// One page more than the tokens need: the paged allocator may open a page per request.
void PrefillAdder::charge(std::int64_t extend_tokens, std::int64_t max_new_tokens) {
  const std::int64_t paged = ceil_paged(extend_tokens);
  total_offset_ += static_cast<double>(paged + max_new_tokens + pool_.page_size());
  current_offset_ += paged + pool_.page_size();
  rem_input_tokens_ -= paged;
  if (rem_chunk_tokens_) *rem_chunk_tokens_ -= paged;
}

AddReqResult PrefillAdder::budget_state() const {
  if (rem_total_tokens() <= 0 || cur_rem_tokens() <= 0) return AddReqResult::kNoToken;
  if (rem_input_tokens_ <= 0) return AddReqResult::kOther;
  if (rem_chunk_tokens_ && *rem_chunk_tokens_ <= 0) return AddReqResult::kOther;
  return AddReqResult::kContinue;
}

void PrefillAdder::add_chunked_req(Req& req) {
  const std::int64_t left = std::int64_t{req.full_len()} - req.prefix_len;
  std::int64_t tokens = left;
  if (rem_chunk_tokens_) {
    const auto held = static_cast<double>(pool_.available_size() + pool_.evictable_size());
    tokens = std::min(*rem_chunk_tokens_, static_cast<std::int64_t>(held - total_offset_));
    // Its pages are held already; it goes on even where the estimate says the pool is spoken for.
    if (tokens <= 0) tokens = *rem_chunk_tokens_;
    // A batch whose chunk is taken up by mixed decode tokens still moves the chunk forward by a page.
    tokens = std::max<std::int64_t>(tokens, pool_.page_size());
  }
  const bool truncated = left > tokens;
  req.extend_len = static_cast<std::uint32_t>(std::min(left, tokens));
  can_run_list_.push_back(&req);
  const std::int64_t new_tokens =
      truncated ? 0 : std::min<std::int64_t>(req.max_new_tokens, kClipMaxNewTokens);
  charge(req.extend_len, new_tokens);
  has_chunked_ = truncated;
}

AddReqResult PrefillAdder::add_one_req(Req& req) {
  if (radix_disabled_) return add_one_req_ignore_eos(req);
  const std::int64_t extend_tokens = std::int64_t{req.full_len()} - req.prefix_len;
  const std::int64_t total_tokens =
      extend_tokens + std::clamp<std::int64_t>(remaining_new_tokens(req), 0, kClipMaxNewTokens) +
      pool_.page_size();
  if (total_tokens >= rem_total_tokens()) return AddReqResult::kNoToken;
  if (ceil_paged(extend_tokens) >= rem_input_tokens_ && !can_run_list_.empty()) return AddReqResult::kOther;

  // The lock takes the matched prefix out of what could be evicted for this very request.
  kvcache::RadixCache& radix = pool_.radix();
  radix.inc_lock_ref(req.cache.last_node);
  if (total_tokens >= rem_total_tokens()) {
    radix.dec_lock_ref(req.cache.last_node);
    return AddReqResult::kNoToken;
  }
  const AddReqResult result = admit(req, extend_tokens);
  if (can_run_list_.empty() || can_run_list_.back() != &req) radix.dec_lock_ref(req.cache.last_node);
  return result;
}

AddReqResult PrefillAdder::admit(Req& req, std::int64_t extend_tokens) {
  const std::int64_t new_tokens = std::min<std::int64_t>(req.max_new_tokens, kClipMaxNewTokens);
  const std::int64_t input_tokens = ceil_paged(extend_tokens);
  if (!rem_chunk_tokens_ || input_tokens <= *rem_chunk_tokens_) {
    req.extend_len = static_cast<std::uint32_t>(extend_tokens);
    can_run_list_.push_back(&req);
    charge(extend_tokens, new_tokens);
    return budget_state();
  }
  const std::int64_t page = pool_.page_size();
  const std::int64_t chunk = *rem_chunk_tokens_ / page * page;
  if (chunk <= 0 || has_chunked_) return AddReqResult::kOther;
  req.extend_len = static_cast<std::uint32_t>(chunk);
  can_run_list_.push_back(&req);
  has_chunked_ = true;
  charge(chunk, 0);
  return budget_state();
}

// Without a radix pool and with outputs that always run to max_new_tokens, SGLang plays the future through:
// admit only if, as requests end one after another, the pool never runs out.
bool PrefillAdder::runs_to_end(const Req& req) {
  constexpr std::int64_t kReserve = 1;  // tokens per request (IGNORE_EOS_RESERVE_TOKENS)
  std::vector<std::pair<std::int64_t, std::int64_t>> states;  // tokens left, tokens occupied
  const auto add = [&](const Req& r) {
    const std::int64_t left = remaining_new_tokens(r);
    if (left > 0) states.emplace_back(left, r.full_len());
  };
  add(req);
  for (const Req* r : running_) add(*r);
  for (const Req* r : can_run_list_) add(*r);
  std::stable_sort(states.begin(), states.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::int64_t paged_input =
      ceil_paged(std::int64_t{req.full_len()} - req.prefix_len) + pool_.page_size();
  const std::int64_t now = cur_rem_tokens() - paged_input;
  std::int64_t freed = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto bs = static_cast<std::int64_t>(states.size() - i);
    if (now + freed - states[i].first * bs <= kReserve * bs) return false;
    freed += states[i].second;
  }
  return true;
}

AddReqResult PrefillAdder::add_one_req_ignore_eos(Req& req) {
  const std::int64_t extend_tokens = std::int64_t{req.full_len()} - req.prefix_len;
  const std::int64_t paged_input = ceil_paged(extend_tokens) + pool_.page_size();
  if (paged_input > std::min(cur_rem_tokens(), rem_total_tokens())) return AddReqResult::kNoToken;
  if (!runs_to_end(req)) return AddReqResult::kNoToken;
  return admit(req, extend_tokens);
}

}  // namespace tpsim::scheduler
