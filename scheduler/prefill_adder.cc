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

// What it may still generate, for the room in its window.
std::int64_t window_new_tokens(const Req& req) {
  return std::clamp<std::int64_t>(remaining_new_tokens(req), 0, PrefillAdder::kClipMaxNewTokens);
}

std::int64_t clipped_new_tokens(const Req& req) {
  return std::min<std::int64_t>(req.max_new_tokens, PrefillAdder::kClipMaxNewTokens);
}

}  // namespace

PrefillAdder::PrefillAdder(KvPool& pool, const std::vector<Req*>& running, const Options& options,
                           const ReleaseRules& rules)
    : pool_(pool),
      running_(running),
      rules_(rules),
      steady_(options.steady),
      new_token_ratio_(options.new_token_ratio),
      rem_input_tokens_(std::int64_t{options.max_prefill_tokens} - options.mixed_decode_tokens),
      total_offset_(options.mixed_decode_tokens),
      mixed_decode_tokens_(options.mixed_decode_tokens),
      charges_((options.lists != nullptr ? *options.lists : own_lists_).charges),
      current_offset_(options.mixed_decode_tokens),
      can_run_list_((options.lists != nullptr ? *options.lists : own_lists_).can_run),
      admits_(options.admits) {
  charges_.clear();
  can_run_list_.clear();
  if (options.chunk_tokens) {
    rem_chunk_tokens_ = std::int64_t{*options.chunk_tokens} - options.mixed_decode_tokens;
  }
  if (steady_ != nullptr && steady_->sums_reserved()) {
    const SteadyDecode::Reserved reserved = steady_->reserved();
    total_offset_ +=
        static_cast<double>(reserved.whole) + static_cast<double>(reserved.shared) * new_token_ratio_;
    for (const Req* req : options.finished) total_offset_ += reserved_tokens(*req);
    // A sum of whole numbers is what it is.
    const auto whole = [this](const Req* req) { return reserves_whole(*req); };
    roughly_ = reserved.shared != 0 || !std::all_of(options.finished.begin(), options.finished.end(), whole);
  } else {
    total_offset_ += reserved_by_running();
  }
}

// Summed on its own, as in SGLang: the last bits decide ties.
double PrefillAdder::reserved_by_running() const {
  double reserved = 0;
  for (const Req* req : running_) reserved += reserved_tokens(*req);
  return reserved;
}

void PrefillAdder::sum_exactly() const {
  if (!roughly_) return;
  roughly_ = false;
  total_offset_ = mixed_decode_tokens_ + reserved_by_running();
  for (const double charge : charges_) total_offset_ += charge;
}

std::int64_t PrefillAdder::held_tokens() const {
  return static_cast<std::int64_t>(pool_.available_size() + pool_.evictable_size());
}

std::int64_t PrefillAdder::rem_swa_tokens() const {
  const PoolUse windows = pool_.use(kvcache::kWindowPool);
  return static_cast<std::int64_t>(windows.free + windows.cached) - swa_offset_;
}

// The most that a request takes of the window pool at a time.
std::int64_t PrefillAdder::swa_tokens(std::int64_t extend_tokens, std::int64_t max_new_tokens,
                                      std::optional<std::int64_t> chunk) const {
  const std::int64_t window = pool_.window();
  const std::int64_t allocated = chunk ? std::min(extend_tokens, *chunk) : extend_tokens;
  return std::max<std::int64_t>(allocated - window, 0) + std::min(extend_tokens + max_new_tokens, window) +
         pool_.page_size();
}

// Whether the window pool has room for `req`. A request that it could not hold even when empty gets a smaller
// `chunk`.
bool PrefillAdder::fits_windows(std::int64_t extend_tokens, const Req& req,
                                std::optional<std::int64_t>& chunk) const {
  if (!pool_.has_windows()) return true;
  const std::int64_t page = pool_.page_size();
  const std::int64_t needed = swa_tokens(ceil_paged(extend_tokens), window_new_tokens(req), chunk);
  if (needed < rem_swa_tokens()) return true;
  if (!chunk || needed < static_cast<std::int64_t>(pool_.use(kvcache::kWindowPool).capacity())) return false;
  const std::int64_t room = rem_swa_tokens() - swa_tokens(0, window_new_tokens(req), std::nullopt);
  const std::int64_t most = room / page * page;
  if (most <= 0) return false;
  chunk = std::min(*chunk, most);
  return true;
}

double PrefillAdder::rem_total_tokens() const {
  sum_exactly();
  return static_cast<double>(held_tokens()) - total_offset_;
}

// rem_total_tokens() - tokens, with the right sign.
double PrefillAdder::total_beyond(double tokens) const {
  const double beyond = static_cast<double>(held_tokens()) - total_offset_ - tokens;
  return roughly_ && std::abs(beyond) <= kRoughly ? rem_total_tokens() - tokens : beyond;
}

std::int64_t PrefillAdder::cur_rem_tokens() const { return held_tokens() - current_offset_; }

std::int64_t PrefillAdder::ceil_paged(std::int64_t tokens) const {
  const std::int64_t page = pool_.page_size();
  return (tokens + page - 1) / page * page;
}

// One page more than the tokens need: the paged allocator may open a page per request.
void PrefillAdder::charge(std::int64_t extend_tokens, std::int64_t max_new_tokens) {
  const std::int64_t paged = ceil_paged(extend_tokens);
  const auto tokens = static_cast<double>(paged + max_new_tokens + pool_.page_size());
  total_offset_ += tokens;
  if (roughly_) charges_.push_back(tokens);
  current_offset_ += paged + pool_.page_size();
  if (pool_.has_windows()) swa_offset_ += swa_tokens(paged, max_new_tokens, rem_chunk_tokens_);
  rem_input_tokens_ -= paged;
  if (rem_chunk_tokens_) *rem_chunk_tokens_ -= paged;
}

AddReqResult PrefillAdder::budget_state() const {
  if (total_beyond(0) <= 0 || cur_rem_tokens() <= 0) return AddReqResult::kNoToken;
  if (pool_.has_windows() && rem_swa_tokens() <= 0) return AddReqResult::kNoToken;
  if (rem_input_tokens_ <= 0) return AddReqResult::kOther;
  if (rem_chunk_tokens_ && *rem_chunk_tokens_ <= 0) return AddReqResult::kOther;
  return AddReqResult::kContinue;
}

bool PrefillAdder::add_chunked_req(Req& req) {
  const std::int64_t left = std::int64_t{req.full_len()} - req.prefix_len;
  std::int64_t tokens = left;
  if (rem_chunk_tokens_) {
    tokens = *rem_chunk_tokens_;
    if (total_beyond(static_cast<double>(tokens) + 1) <= 0)
      tokens = total_beyond(1) < 0 ? 0 : std::min(tokens, static_cast<std::int64_t>(rem_total_tokens()));
    if (pool_.has_windows()) {
      tokens = std::min(tokens, rem_swa_tokens() - pool_.page_size());
      if (tokens <= 0) return false;
    }
    // Its pages are held already; it goes on even where the estimate says the pool is spoken for.
    if (tokens <= 0) tokens = *rem_chunk_tokens_;
    // Mixed decode tokens that use the chunk up leave a page for it; SGLang makes no sound batch of that.
    if (tokens <= 0) tokens = pool_.page_size();
  }
  const bool truncated = left > tokens;
  req.extend_len = static_cast<std::uint32_t>(std::min(left, tokens));
  can_run_list_.push_back(&req);
  charge(req.extend_len, truncated ? 0 : clipped_new_tokens(req));
  has_chunk_ = truncated;
  return true;
}

// Admits `req` with the first `extend_tokens` of what it has to compute.
AddReqResult PrefillAdder::take(Req& req, std::int64_t extend_tokens, bool whole) {
  req.extend_len = static_cast<std::uint32_t>(extend_tokens);
  can_run_list_.push_back(&req);
  charge(extend_tokens, whole ? clipped_new_tokens(req) : 0);
  has_chunk_ = has_chunk_ || !whole;
  return budget_state();
}

AddReqResult PrefillAdder::add_one_req(Req& req) {
  if (!rules_.prefill_delays_are_bounded && !may_admit()) return AddReqResult::kOther;
  if (!pool_.prefix_cache().keeps_prefixes() && req.source->sampling.ignore_eos)
    return add_one_req_ignore_eos(req);
  std::int64_t extend_tokens = std::int64_t{req.full_len()} - req.prefix_len;
  std::int64_t input_tokens = ceil_paged(extend_tokens - req.host_hit_len);
  const auto total_tokens = static_cast<double>(
      extend_tokens + std::clamp<std::int64_t>(remaining_new_tokens(req), 0, kClipMaxNewTokens) +
      pool_.page_size());
  const bool may_cap =
      (!rem_chunk_tokens_ || !rules_.chunks_ignore_max_prefill_tokens) && !can_run_list_.empty();
  const bool capped = may_cap && input_tokens >= rem_input_tokens_;
  if (total_beyond(total_tokens) <= 0) return AddReqResult::kNoToken;
  if (capped && !rules_.prefix_lock_precedes_input_cap) return AddReqResult::kOther;

  // The lock takes the matched prefix out of what could be evicted for this very request.
  kvcache::PrefixCache& cache = pool_.prefix_cache();
  req.cache.lock = cache.inc_lock_ref(req.cache.last_node);
  const auto refuse = [&](AddReqResult why) {
    cache.dec_lock_ref(req.cache.last_node, req.cache.lock);
    return why;
  };
  if (total_beyond(total_tokens) <= 0) return refuse(AddReqResult::kNoToken);
  std::optional<std::int64_t> limit = rem_chunk_tokens_;
  if (!fits_windows(extend_tokens, req, limit)) return refuse(AddReqResult::kNoToken);
  if (capped) return refuse(AddReqResult::kOther);
  if (req.host_hit_len > 0) {
    const bool too_long = limit && input_tokens > *limit;
    const bool no_chunk = too_long && (*limit < pool_.page_size() || has_chunk_);
    if (rules_.loads_what_it_admits && no_chunk) return refuse(AddReqResult::kOther);
    if (!may_admit()) return refuse(AddReqResult::kOther);
    load_back(req);
    extend_tokens = std::int64_t{req.full_len()} - req.prefix_len;
    input_tokens = ceil_paged(extend_tokens);
    if (may_cap && input_tokens >= rem_input_tokens_) return refuse(AddReqResult::kOther);
  }
  const auto admit = [&](std::int64_t tokens, bool whole) {
    return may_admit() ? take(req, tokens, whole) : refuse(AddReqResult::kOther);
  };
  if (!limit || input_tokens <= *limit) return admit(extend_tokens, true);
  // A chunk ends at the end of a page; the prefix does already.
  const std::int64_t chunk = *limit / pool_.page_size() * pool_.page_size();
  if (chunk <= 0 || has_chunk_) return refuse(AddReqResult::kOther);
  return admit(chunk, false);
}

// What the device has lost of the prefix of `req` is loaded where it can be, and the lock goes with it.
void PrefillAdder::load_back(Req& req) {
  kvcache::PrefixCache& cache = pool_.prefix_cache();
  req.loaded_len = pool_.hicache()->load_back(req.host_node);
  if (req.loaded_len == 0) return;
  cache.dec_lock_ref(req.cache.last_node, req.cache.lock);
  req.cache.last_node = req.host_node;
  req.cache.lock = cache.inc_lock_ref(req.host_node);
  req.cache.cache_protected_len += req.loaded_len;
  req.prefix_len += req.loaded_len;
}

// Without a prefix cache and with outputs that always run to max_new_tokens, SGLang plays the future through:
// admit only if, as requests end one after another, the pool never runs out.
bool PrefillAdder::runs_to_end(const Req& req, std::int64_t paged_input) {
  constexpr std::int64_t kReserve = 1;  // tokens per request (IGNORE_EOS_RESERVE_TOKENS)
  const auto state_of = [&](const Req& r) {
    const double share = r.source->sampling.ignore_eos ? 1.0 : new_token_ratio_;
    const std::uint32_t output = output_len(r);
    return std::pair(static_cast<double>(r.max_new_tokens) * share - output,
                     std::int64_t{r.input_len} + output);
  };
  if (!req_states_) {
    auto& states = req_states_.emplace();
    const auto add = [&](const Req& r) {
      if (const auto state = state_of(r); state.first > 0) states.push_back(state);
    };
    add(req);
    for (const Req* r : running_) add(*r);
    for (const Req* r : can_run_list_) add(*r);
    std::ranges::stable_sort(states, {}, &std::pair<double, std::int64_t>::first);
  } else if (const auto state = state_of(req); state.first > 0) {
    // SGLang's search ends on the last state, so that one with more tokens left goes before it.
    auto at = std::find_if(req_states_->begin(), req_states_->end(),
                           [&](const auto& other) { return state.first <= other.first; });
    if (at == req_states_->end() && at != req_states_->begin()) --at;
    req_states_->insert(at, state);
  }
  const auto now = static_cast<double>(cur_rem_tokens() - paged_input);
  double freed = 0;
  for (std::size_t i = 0; i < req_states_->size(); ++i) {
    const auto bs = static_cast<double>(req_states_->size() - i);
    const auto& [left, occupied] = (*req_states_)[i];
    if (now + freed - left * bs <= kReserve * bs) return false;
    freed += static_cast<double>(occupied);
  }
  return true;
}

AddReqResult PrefillAdder::add_one_req_ignore_eos(Req& req) {
  const std::int64_t extend_tokens = std::int64_t{req.full_len()} - req.prefix_len;
  const std::int64_t paged_input =
      ceil_paged(extend_tokens) + (rules_.no_radix_reserves_page ? pool_.page_size() : 0);
  const double room = std::min(static_cast<double>(cur_rem_tokens()), rem_total_tokens());
  if (static_cast<double>(paged_input) > room) return AddReqResult::kNoToken;
  if (pool_.has_windows()) {
    // What ends when says little of windows: SGLang only asks for room.
    if (swa_tokens(extend_tokens, window_new_tokens(req), rem_chunk_tokens_) > rem_swa_tokens())
      return AddReqResult::kNoToken;
  } else if (!runs_to_end(req, paged_input)) {
    return AddReqResult::kNoToken;
  }
  if (!may_admit()) return AddReqResult::kOther;
  // Nothing will be found by its pages, so chunks need not end with one.
  if (!rem_chunk_tokens_ || extend_tokens <= *rem_chunk_tokens_) return take(req, extend_tokens, true);
  if (*rem_chunk_tokens_ <= 0 || has_chunk_) return AddReqResult::kOther;
  return take(req, *rem_chunk_tokens_, false);
}

double PrefillAdder::missing_tokens(const Req& req) const {
  return static_cast<double>(std::int64_t{req.known_extend_len} + clipped_new_tokens(req)) -
         rem_total_tokens();
}

}  // namespace tpsim::scheduler
