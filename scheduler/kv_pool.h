// The memory that the scheduler hands out: KV pages, rows of the request-to-page table, and the radix pool.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/page_allocator.h"
#include "kvcache/page_run.h"
#include "kvcache/radix_cache.h"
#include "kvcache/req_to_token_pool.h"
#include "scheduler/config.h"
#include "scheduler/req.h"
#include "scheduler/table_edits.h"

namespace tpsim::scheduler {

// All sizes in tokens, as SGLang counts them (a page counts page_size tokens).
class KvPool {
 public:
  explicit KvPool(const SchedulerConfig& config);

  std::uint32_t page_size() const { return page_size_; }
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t available_size() const;
  std::uint64_t evictable_size() const { return radix_.evictable_size(); }
  std::uint64_t evicted_tokens() const { return evicted_tokens_; }
  // Held by requests and not evictable, over capacity: SGLang's token_usage.
  double usage() const;

  kvcache::RadixCache& radix() { return radix_; }
  const kvcache::ReqToTokenPool& rows() const { return rows_; }
  TableEdits& edits() { return edits_; }

  // Evicts cached tokens if fewer than `num_tokens` are free: what is short, or in older releases
  // `num_tokens` (SGLang's evict_from_tree_cache).
  void evict_for(std::uint64_t num_tokens);

  // Empties the cache but for what requests hold.
  void flush() { radix_.evict(radix_.evictable_size()); }

  // Gives `req` a row with its matched prefix and pages for its extend. False and nothing changed where
  // pages do not suffice even after eviction.
  bool alloc_for_extend(Req& req);
  // One more token for `req`. False where no page is left. No heap allocation.
  bool alloc_for_decode(Req& req);

  // Speculative decoding. Pages for the first `length` tokens of `req`, whatever it has of them. False and
  // nothing changed where pages do not suffice.
  bool alloc_until(Req& req, std::uint32_t length);
  // Gives back the pages behind those of `length` tokens: drafts that were not kept.
  void give_back(Req& req, std::uint32_t length);

  // SGLang's release_kv_cache: into the radix pool (is_insert) or back to the free pages.
  void release(Req& req, bool is_insert);
  // After a prefill, or between its chunks.
  void cache_unfinished(Req& req, bool chunked = false);

  // Tokens that the next decode step of these requests must find free.
  std::uint64_t new_tokens_required_next_decode(const std::vector<Req*>& reqs) const;

  // Throws std::logic_error unless allocated + free + cached = capacity.
  void check_invariants(const std::vector<const Req*>& live) const;

 private:
  std::uint32_t page_size_;
  std::uint64_t capacity_;
  bool evict_shortfall_;
  kvcache::PageAllocator allocator_;
  kvcache::ReqToTokenPool rows_;
  kvcache::RadixCache radix_;
  TableEdits edits_;
  std::vector<kvcache::PageRun> scratch_;
  std::uint64_t evicted_tokens_ = 0;
};

}  // namespace tpsim::scheduler
