#include "scheduler/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>

#include "kvcache/chunk_cache.h"
#include "kvcache/radix_cache.h"
#include "proto/base/ceil_div.h"

namespace tpsim::scheduler {
namespace {

kvcache::RadixCache::Options radix_options(const SchedulerConfig& config) {
  const ReleaseRules rules = config.sglang_release.rules;
  return {.page_size = config.page_size,
          .policy = config.radix_eviction_policy,
          .split_at_prompt_end = rules.split_at_prompt_end,
          .split_keeps_creation_time = rules.split_keeps_creation_time,
          .request_hits_node_once = rules.request_hits_node_once,
          .bigram_keys = config.speculation.has_head() && config.states.slots == 0,
          .window = config.sliding_window_size,
          .host = config.hicache.tier};
}

// The one place that knows which prefix caches there are.
std::unique_ptr<kvcache::PrefixCache> make_prefix_cache(
    const SchedulerConfig& config, kvcache::PageAllocator& allocator, kvcache::ReqToTokenPool& rows,
    kvcache::WindowPages* windows, kvcache::StateSlots* states, HiCacheController* hicache) {
  if (config.disable_radix_cache) {
    return std::make_unique<kvcache::ChunkCache>(config.page_size, config.sliding_window_size, &allocator,
                                                 &rows, windows);
  }
  auto cache = std::make_unique<kvcache::RadixCache>(radix_options(config), &allocator, &rows, windows,
                                                     states, hicache);
  if (hicache != nullptr) hicache->attach(*cache);
  return cache;
}

std::optional<kvcache::WindowPages> make_window_pages(const SchedulerConfig& config,
                                                      std::uint32_t addresses) {
  if (config.sliding_window_size == 0) return std::nullopt;
  return kvcache::WindowPages(static_cast<std::uint32_t>(config.swa_max_total_num_tokens / config.page_size),
                              addresses);
}

}  // namespace

KvPool::KvPool(const SchedulerConfig& config)
    : page_size_(config.page_size),
      capacity_(config.max_total_num_tokens / config.page_size * config.page_size),
      evict_shortfall_(config.sglang_release.rules.evict_shortfall),
      window_(config.sliding_window_size),
      allocator_(static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size), config.page_size,
                 kvcache::PageAllocator::with_slack(
                     static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size))),
      window_pages_(make_window_pages(config, allocator_.address_space())),
      state_slots_(config.states.slots > 0 ? std::optional<kvcache::StateSlots>(config.states.slots)
                                           : std::nullopt),
      hicache_(config.hicache.enabled()
                   ? std::make_unique<HiCacheController>(config.hicache, config.page_size)
                   : nullptr),
      cache_(make_prefix_cache(config, allocator_, rows_, window_pages_ ? &*window_pages_ : nullptr,
                               state_slots_ ? &*state_slots_ : nullptr, hicache_.get())) {
  if (state_slots_)
    states_.emplace(config.states, *state_slots_, *cache_,
                    [this](std::uint32_t states) { evict_states(states); });
}

std::uint64_t KvPool::available_size() const {
  return std::uint64_t{allocator_.available_pages()} * page_size_;
}

std::uint64_t KvPool::allocatable_size() const {
  return has_windows() ? std::min(available_size(), window_available_size()) : available_size();
}

std::uint64_t KvPool::window_available_size() const {
  return has_windows() ? std::uint64_t{window_pages_->available_pages()} * page_size_ : 0;
}

PoolUse KvPool::use(kvcache::Pool pool) const {
  std::uint64_t capacity = capacity_, free = 0;
  if (pool == kvcache::kKvPool) {
    free = available_size();
  } else if (pool == kvcache::kWindowPool) {
    capacity = has_windows() ? std::uint64_t{window_pages_->num_pages()} * page_size_ : 0;
    free = window_available_size();
  } else if (pool == kvcache::kHostPool) {
    capacity = hicache_ ? hicache_->pool().capacity() : 0;
    free = hicache_ ? hicache_->pool().available() : 0;
  } else {
    capacity = state_slots_ ? state_slots_->num_slots() : 0;
    free = state_slots_ ? state_slots_->available() : 0;
  }
  if (capacity == 0) return {};
  const std::uint64_t cached = cache_->kept(pool).evictable;
  return {.held = capacity - cached - free, .cached = cached, .free = free};
}

void KvPool::flush() {
  if (hicache_) {
    hicache_->clear();
  } else {
    cache_->evict(kvcache::kKvPool, evictable_size());
  }
}

void KvPool::evict_for(std::uint64_t num_tokens) {
  const std::uint64_t available = available_size();
  if (available < num_tokens)
    cache_->evict(kvcache::kKvPool, evict_shortfall_ ? num_tokens - available : num_tokens);
  if (has_windows() && window_available_size() < num_tokens) {
    cache_->evict(kvcache::kWindowPool, num_tokens - window_available_size());
  }
  evicted_tokens_ += available_size() - available;
}

// What loses its state may lose its tokens, too.
void KvPool::evict_states(std::uint32_t states) {
  const std::uint64_t available = available_size();
  evicted_states_ += cache_->evict(kvcache::kStatePool, states);
  evicted_tokens_ += available_size() - available;
}

bool KvPool::alloc_for_extend(Req& req) {
  const bool first = req.kv_committed_len == 0;
  const std::uint32_t prefix_pages = ceil_div(req.prefix_len, page_size_);
  const std::uint32_t new_pages = ceil_div(req.fill_len(), page_size_) - prefix_pages;
  if (allocator_.available_pages() < new_pages) return false;
  if (has_windows() && window_pages_->available_pages() < new_pages) return false;
  scratch_.clear();
  if (first) {
    req.cache.row = rows_.alloc_row();
    if (req.cache.row == kvcache::ReqToTokenPool::kNoRow) return false;
    cache_->collect_pages(req.cache.last_node, scratch_);
    // The match may end after the prefix that is used (a match never covers the whole prompt).
  }
  if (has_windows()) {
    fresh_.clear();
    allocator_.alloc(new_pages, fresh_);
    for (const kvcache::PageRun& run : fresh_) {
      window_pages_->alloc(run);
      append_run(scratch_, run);
    }
  } else {
    allocator_.alloc(new_pages, scratch_);
  }
  const std::uint32_t start = first ? 0 : prefix_pages;
  rows_.truncate(req.cache.row, start);
  for (const kvcache::PageRun& run : scratch_) rows_.append(req.cache.row, run);
  if (first || !scratch_.empty()) edits_.set(req.cache.row, start, scratch_);
  req.kv_committed_len = req.fill_len();
  return true;
}

bool KvPool::open_page(Req& req) {
  const std::uint32_t row = req.cache.row;
  const std::uint32_t last = rows_.last_page(row);
  if (has_windows() && window_pages_->available_pages() == 0) return false;
  const std::uint32_t page = allocator_.alloc_next(last);
  if (page == kvcache::PageAllocator::kNoPage) return false;
  const kvcache::PageRun run{page, 1};
  if (has_windows()) window_pages_->alloc(run);
  if (page == last + 1) [[likely]] {
    rows_.extend_last(row);
  } else {  // the ranks assume the page after the last one unless they are told otherwise
    edits_.set(row, rows_.num_pages(row), {&run, 1});
    rows_.append(row, run);
  }
  return true;
}

bool KvPool::alloc_until(Req& req, std::uint32_t length) {
  const std::uint32_t row = req.cache.row;
  const std::uint32_t held = rows_.num_pages(row);
  const std::uint32_t needed = ceil_div(length, page_size_);
  if (needed > held) {
    if (allocator_.available_pages() < needed - held) return false;
    if (has_windows() && window_pages_->available_pages() < needed - held) return false;
    scratch_.clear();
    std::uint32_t last = rows_.last_page(row);
    for (std::uint32_t i = held; i < needed; ++i) {
      const std::uint32_t page = allocator_.alloc_next(last);
      append_run(scratch_, {page, 1});
      last = page;
    }
    for (const kvcache::PageRun& run : scratch_) {
      if (has_windows()) window_pages_->alloc(run);
      rows_.append(row, run);
    }
    edits_.set(row, held, scratch_);
  }
  req.kv_allocated_len = std::max(req.kv_allocated_len, length);
  return true;
}

void KvPool::give_back(Req& req, std::uint32_t length) {
  const std::uint32_t row = req.cache.row;
  const std::uint32_t kept = ceil_div(length, page_size_);
  const std::uint32_t held = rows_.num_pages(row);
  req.kv_allocated_len = length;
  if (kept >= held) return;
  scratch_.clear();
  rows_.copy_out(row, kept, held - kept, scratch_);
  for (const kvcache::PageRun& run : scratch_) {
    if (has_windows()) window_pages_->free_rest(run);
    allocator_.free(run);
  }
  rows_.truncate(row, kept);
  edits_.set(row, kept, {});
}

// In a batch that decodes for the first time the pass before, the prefill, may still run; a pass between
// frees too little to be worth it.
void KvPool::free_behind_window(Req& req) {
  const std::int64_t pre_len = std::int64_t{req.full_len()} - 1;
  if (req.decodes == 0 ||
      pre_len - window_ < std::int64_t{req.cache.window_evicted_len} + kWindowEvictionInterval)
    return;
  cache_->free_out_of_window(req.cache, pre_len);
}

void KvPool::free_behind_prefill(Req& req, std::uint32_t in_flight) {
  if (req.kv_committed_len == 0) return;
  cache_->free_out_of_window(req.cache, std::int64_t{req.prefix_len} - in_flight);
}

void KvPool::release(Req& req, bool is_insert) {
  req.spell_out();
  if (states_ && is_insert) states_->offer_finished(req);
  if (hicache_) hicache_->on_release(req.full_len() - req.cached_tokens, req.output_len);
  req.kv_allocated_len = 0;
  cache_->cache_finished_req(req.cache, req.tokens, req.kv_committed_len, is_insert);
  if (states_) states_->release(req);
  rows_.free_row(req.cache.row);
  if (req.in_decode_set) {
    edits_.leave(req.cache.row);
    req.in_decode_set = false;
  }
  req.kv_committed_len = 0;
  req.extends = req.decodes = 0;
}

void KvPool::cache_unfinished(Req& req, bool chunked) {
  if (states_) states_->offer_unfinished(req);
  const std::uint32_t changed = cache_->cache_unfinished_req(req.cache, req.tokens, req.fill_len(), chunked);
  if (states_) states_->after_unfinished(req);
  const std::uint32_t row = req.cache.row;
  if (changed >= rows_.num_pages(row)) return;
  scratch_.clear();
  rows_.copy_out(row, changed, rows_.num_pages(row) - changed, scratch_);
  edits_.set(row, changed, scratch_);
}

bool KvPool::pre_alloc(Req& req, std::uint32_t tokens) {
  const std::uint32_t pages = ceil_div(tokens, page_size_) - req.prefix_len / page_size_;
  // What is short in every release (disaggregation/decode.py of 0.5.12, too), and not by evict_for()'s rule.
  if (const std::uint64_t available = available_size(); available < std::uint64_t{pages} * page_size_) {
    cache_->evict(kvcache::kKvPool, std::uint64_t{pages} * page_size_ - available);
    evicted_tokens_ += available_size() - available;
  }
  if (allocator_.available_pages() < pages) return false;
  req.cache.row = rows_.alloc_row();
  if (req.cache.row == kvcache::ReqToTokenPool::kNoRow) return false;
  scratch_.clear();
  if (req.prefix_len > 0) cache_->collect_pages(req.cache.last_node, scratch_);
  allocator_.alloc(pages, scratch_);
  rows_.truncate(req.cache.row, 0);
  for (const kvcache::PageRun& run : scratch_) rows_.append(req.cache.row, run);
  req.kv_committed_len = tokens;
  return true;
}

void KvPool::tell_arrived(const Req& req) {
  edits_.set(req.cache.row, 0, rows_.runs(req.cache.row));
  edits_.arrived(req.cache.row, req.kv_committed_len);
}

std::uint32_t KvPool::runs(const Req& req, std::uint32_t from, std::uint32_t to) {
  const std::uint32_t first = from / page_size_;
  scratch_.clear();
  rows_.copy_out(req.cache.row, first, ceil_div(to, page_size_) - first, scratch_);
  return static_cast<std::uint32_t>(scratch_.size());
}

std::uint64_t KvPool::new_tokens_required_next_decode(const std::vector<Req*>& reqs) const {
  if (page_size_ == 1) return reqs.size();
  std::uint64_t pages = 0;
  for (const Req* req : reqs) pages += opens_page(req->kv_committed_len) ? 1 : 0;
  return pages * page_size_;
}

void KvPool::check_invariants(const std::vector<const Req*>& live) const {
  cache_->check_invariants();
  // Pages that a request holds beyond what the cache took over.
  std::uint64_t held = 0;
  for (const Req* req : live) {
    if (req->kv_committed_len == 0) continue;
    const std::uint64_t pages = rows_.num_pages(req->cache.row);
    if (pages != ceil_div(req->allocated_len(), page_size_)) {
      throw std::logic_error(fmt::format("request {}: {} tokens in {} pages of {} tokens", req->id,
                                         req->allocated_len(), pages, page_size_));
    }
    held += pages * page_size_ - req->cache.cache_protected_len;
  }
  check_sum(kvcache::kKvPool, held);
  if (has_windows()) check_sum(kvcache::kWindowPool, checked_windows(live));
  if (hicache_) check_sum(kvcache::kHostPool, hicache_->pool().reserved());
  if (!states_) return;
  std::uint64_t states = 0;
  for (const Req* req : live) states += states_->held_by(*req);
  check_sum(kvcache::kStatePool, states);
}

void KvPool::check_sum(kvcache::Pool pool, std::uint64_t held) const {
  constexpr std::array<const char*, kvcache::kPools> kNames = {"KV pool, tokens", "window pool, tokens",
                                                               "state pool, states", "host pool, tokens"};
  const PoolUse now = use(pool);
  const std::uint64_t cached = cache_->kept(pool).total();
  if (held + cached + now.free != now.capacity()) {
    throw std::logic_error(fmt::format("{}: {} held by requests + {} cached + {} free = {}, capacity {}",
                                       kNames[pool], held, cached, now.free, held + cached + now.free,
                                       now.capacity()));
  }
}

std::uint64_t KvPool::checked_windows(const std::vector<const Req*>& live) const {
  std::uint64_t held = 0;
  std::vector<kvcache::PageRun> pages;
  for (const Req* req : live) {
    if (req->kv_committed_len == 0) continue;
    const std::uint32_t own = std::max(req->cache.cache_protected_len, req->cache.window_evicted_len);
    held += std::uint64_t{rows_.num_pages(req->cache.row)} * page_size_ - own;
    // Without a token after it, the next one is at kv_committed_len.
    const std::uint32_t from = req->kv_committed_len > window_ ? req->kv_committed_len - window_ : 0;
    pages.clear();
    rows_.copy_out(req->cache.row, from / page_size_, rows_.num_pages(req->cache.row), pages);
    for (const kvcache::PageRun& run : pages) {
      if (window_pages_->count(run) != run.count) {
        throw std::logic_error(
            fmt::format("request {}: its window from token {} on is not in the window pool", req->id, from));
      }
    }
  }
  return held;
}

}  // namespace tpsim::scheduler
