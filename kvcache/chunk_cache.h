// Without a prefix cache (--disable-radix-cache): no request finds anything, and all that one leaves is free
// at once. SGLang's ChunkCache and SWAChunkCache (mem_cache/chunk_cache.py).
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/prefix_cache.h"
#include "kvcache/request_pages.h"

namespace tpsim::kvcache {

class ChunkCache final : public PrefixCache {
 public:
  // window: tokens that sliding-window layers look back, where these have a pool of their own; 0: they have
  // none, and `window_pages` may be null. The pools must outlive the cache.
  ChunkCache(std::uint32_t page_size, std::uint32_t window, PageAllocator* allocator, ReqToTokenPool* rows,
             WindowPages* window_pages)
      : window_(window), rows_(rows), request_pages_(page_size, allocator, rows, window_pages) {}

  bool keeps_prefixes() const override { return false; }
  MatchResult match_prefix(const TokenSequence&, std::uint32_t, std::uint32_t, MatchCursor&) override {
    return {};
  }
  void collect_pages(NodeId, std::vector<PageRun>&) const override {}
  std::uint32_t state_slot(NodeId) const override { return StateSlots::kNone; }
  TreeLock inc_lock_ref(NodeId) override { return {}; }
  void dec_lock_ref(NodeId, const TreeLock&) override {}
  Kept kept(Pool) const override { return {}; }
  std::uint64_t evict(Pool, std::uint64_t) override { return 0; }
  void cache_finished_req(RequestState& req, const TokenSequence&, std::uint32_t, bool) override {
    request_pages_.free(req.row, 0, rows_->num_pages(req.row));
    req.window_evicted_len = 0;
  }
  std::uint32_t cache_unfinished_req(RequestState& req, const TokenSequence&, std::uint32_t fill_len,
                                     bool) override {
    req.prefix_len = fill_len;
    return rows_->num_pages(req.row);
  }
  void free_out_of_window(RequestState& req, std::int64_t pre_len) override {
    if (pre_len - window_ > req.window_evicted_len) request_pages_.free_windows(req, pre_len, window_);
  }
  NodeId parent(NodeId) const override { return kRoot; }
  std::vector<NodeId> children(NodeId) const override { return {}; }
  void save(StateWriter&) override {}
  void load(StateReader&) override {}
  void check_invariants() const override {}

 private:
  std::int64_t window_;
  ReqToTokenPool* rows_;
  RequestPages request_pages_;
};

}  // namespace tpsim::kvcache
