#include "scheduler/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace tpsim::scheduler {
namespace {

std::uint32_t pages_for(std::uint32_t tokens, std::uint32_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

kvcache::RadixCache::Options radix_options(const SchedulerConfig& config) {
  const ReleaseRules rules = rules_of(config.sglang_release);
  return {.page_size = config.page_size,
          .policy = config.radix_eviction_policy,
          .disable = config.disable_radix_cache,
          .split_at_prompt_end = rules.split_at_prompt_end,
          .split_keeps_creation_time = rules.split_keeps_creation_time,
          .request_hits_node_once = rules.request_hits_node_once};
}

}  // namespace

KvPool::KvPool(const SchedulerConfig& config)
    : page_size_(config.page_size),
      capacity_(config.max_total_num_tokens / config.page_size * config.page_size),
      evict_shortfall_(rules_of(config.sglang_release).evict_shortfall),
      allocator_(static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size), config.page_size,
                 kvcache::PageAllocator::with_slack(
                     static_cast<std::uint32_t>(config.max_total_num_tokens / config.page_size))),
      radix_(radix_options(config), &allocator_, &rows_) {}

std::uint64_t KvPool::available_size() const {
  return std::uint64_t{allocator_.available_pages()} * page_size_;
}

double KvPool::usage() const {
  const std::uint64_t used = capacity_ - available_size() - evictable_size();
  return static_cast<double>(used) / static_cast<double>(capacity_);
}

void KvPool::evict_for(std::uint64_t num_tokens) {
  const std::uint64_t available = available_size();
  if (available >= num_tokens) return;
  evicted_tokens_ += radix_.evict(evict_shortfall_ ? num_tokens - available : num_tokens);
}

bool KvPool::alloc_for_extend(Req& req) {
  const bool first = req.kv_committed_len == 0;
  const std::uint32_t prefix_pages = pages_for(req.prefix_len, page_size_);
  const std::uint32_t new_pages = pages_for(req.fill_len(), page_size_) - prefix_pages;
  if (allocator_.available_pages() < new_pages) return false;
  scratch_.clear();
  if (first) {
    req.cache.row = rows_.alloc_row();
    if (req.cache.row == kvcache::ReqToTokenPool::kNoRow) return false;
    radix_.collect_pages(req.cache.last_node, scratch_);
    // The match may end behind the prefix that is used (a match never covers the whole prompt).
  }
  allocator_.alloc(new_pages, scratch_);
  const std::uint32_t start = first ? 0 : prefix_pages;
  rows_.truncate(req.cache.row, start);
  for (const kvcache::PageRun& run : scratch_) rows_.append(req.cache.row, run);
  if (first || !scratch_.empty()) edits_.set(req.cache.row, start, scratch_);
  req.kv_committed_len = req.fill_len();
  return true;
}

bool KvPool::alloc_for_decode(Req& req) {
  if (req.kv_committed_len % page_size_ == 0) {
    const std::uint32_t last = rows_.last_page(req.cache.row);
    const std::uint32_t page = allocator_.alloc_next(last);
    if (page == kvcache::PageAllocator::kNoPage) return false;
    const kvcache::PageRun run{page, 1};
    // The ranks assume the page after the last one unless they are told otherwise.
    if (page != last + 1) edits_.set(req.cache.row, rows_.num_pages(req.cache.row), {&run, 1});
    rows_.append(req.cache.row, run);
  }
  ++req.kv_committed_len;
  return true;
}

bool KvPool::alloc_until(Req& req, std::uint32_t length) {
  const std::uint32_t row = req.cache.row;
  const std::uint32_t held = rows_.num_pages(row);
  const std::uint32_t needed = pages_for(length, page_size_);
  if (needed > held) {
    if (allocator_.available_pages() < needed - held) return false;
    scratch_.clear();
    std::uint32_t last = rows_.last_page(row);
    for (std::uint32_t i = held; i < needed; ++i) {
      const std::uint32_t page = allocator_.alloc_next(last);
      if (!scratch_.empty() && page == last + 1) {
        ++scratch_.back().count;
      } else {
        scratch_.push_back({page, 1});
      }
      last = page;
    }
    for (const kvcache::PageRun& run : scratch_) rows_.append(row, run);
    edits_.set(row, held, scratch_);
  }
  req.kv_allocated_len = std::max(req.kv_allocated_len, length);
  return true;
}

void KvPool::give_back(Req& req, std::uint32_t length) {
  const std::uint32_t row = req.cache.row;
  const std::uint32_t kept = pages_for(length, page_size_);
  const std::uint32_t held = rows_.num_pages(row);
  req.kv_allocated_len = length;
  if (kept >= held) return;
  scratch_.clear();
  rows_.copy_out(row, kept, held - kept, scratch_);
  for (const kvcache::PageRun& run : scratch_) allocator_.free(run);
  rows_.truncate(row, kept);
  edits_.set(row, kept, {});
}

void KvPool::release(Req& req, bool is_insert) {
  req.spell_out();
  req.kv_allocated_len = 0;
  radix_.cache_finished_req(req.cache, req.tokens, req.kv_committed_len, is_insert);
  rows_.free_row(req.cache.row);
  if (req.in_decode_set) {
    edits_.leave(req.cache.row);
    req.in_decode_set = false;
  }
  req.kv_committed_len = 0;
}

void KvPool::cache_unfinished(Req& req, bool chunked) {
  const std::uint32_t changed = radix_.cache_unfinished_req(req.cache, req.tokens, req.fill_len(), chunked);
  const std::uint32_t row = req.cache.row;
  if (changed >= rows_.num_pages(row)) return;
  scratch_.clear();
  rows_.copy_out(row, changed, rows_.num_pages(row) - changed, scratch_);
  edits_.set(row, changed, scratch_);
}

std::uint64_t KvPool::new_tokens_required_next_decode(const std::vector<Req*>& reqs) const {
  if (page_size_ == 1) return reqs.size();
  std::uint64_t pages = 0;
  for (const Req* req : reqs) pages += req->kv_committed_len % page_size_ == 0 ? 1 : 0;
  return pages * page_size_;
}

void KvPool::check_invariants(const std::vector<const Req*>& live) const {
  radix_.check_invariants();
  // Pages that a request holds beyond what the radix pool took over.
  std::uint64_t held = 0;
  for (const Req* req : live) {
    if (req->kv_committed_len == 0) continue;
    const std::uint64_t pages = rows_.num_pages(req->cache.row);
    if (pages != pages_for(req->allocated_len(), page_size_)) {
      throw std::logic_error(fmt::format("request {}: {} tokens in {} pages of {} tokens", req->id,
                                         req->allocated_len(), pages, page_size_));
    }
    held += pages * page_size_ - req->cache.cache_protected_len;
  }
  const std::uint64_t cached = radix_.evictable_size() + radix_.protected_size();
  const std::uint64_t free = available_size();
  if (held + cached + free != capacity_) {
    throw std::logic_error(
        fmt::format("KV pool: {} tokens held by requests + {} cached + {} free = {}, capacity {}", held,
                    cached, free, held + cached + free, capacity_));
  }
}

}  // namespace tpsim::scheduler
