// The memory that the scheduler hands out: KV pages, rows of the request-to-page table, and what the prefix
// cache keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/pools/page_allocator.h"
#include "kvcache/pools/page_run.h"
#include "kvcache/pools/pool.h"
#include "kvcache/pools/state_slots.h"
#include "kvcache/pools/window_pages.h"
#include "kvcache/prefix_cache.h"
#include "kvcache/req_to_token_pool.h"
#include "proto/forward.pb.h"
#include "scheduler/config.h"
#include "scheduler/hicache/hicache_controller.h"
#include "scheduler/records.h"
#include "scheduler/req.h"
#include "scheduler/request_states.h"

namespace tpsim::scheduler {

// Edits of the request-to-page table since the last batch, in the order the ranks must apply them, and the
// changes of the decode set. They ride on the next ForwardBatch.
class TableEdits {
 public:
  // Row `row` is cut to `start_page` pages and continues with `runs`.
  void set(std::uint32_t row, std::uint32_t start_page, std::span<const kvcache::PageRun> runs) {
    rows_.push_back(row);
    starts_.push_back(start_page);
    counts_.push_back(static_cast<std::uint32_t>(runs.size()));
    runs_.insert(runs_.end(), runs.begin(), runs.end());
  }
  // A join that is not sent yet is taken back instead: ranks apply leaves before joins.
  void leave(std::uint32_t row) {
    const auto joined = std::find(joins_.begin(), joins_.end(), row);
    if (joined != joins_.end()) {
      joins_.erase(joined);
    } else {
      leaves_.push_back(row);
    }
  }
  void join(std::uint32_t row) { joins_.push_back(row); }
  // `row` has the KV of so many tokens, which no pass of these ranks computed.
  void arrived(std::uint32_t row, std::uint32_t tokens) {
    arrived_.push_back(row);
    arrived_lens_.push_back(tokens);
  }

  // Moves everything into `batch`. Keeps capacity.
  void flush(proto::ForwardBatch& batch) {
    const auto move = [](std::vector<std::uint32_t>& from, auto* to) {
      to->Add(from.begin(), from.end());
      from.clear();
    };
    move(rows_, batch.mutable_table_req());
    move(starts_, batch.mutable_table_start_page());
    move(counts_, batch.mutable_table_num_runs());
    for (const kvcache::PageRun& run : runs_) {
      batch.add_run_first_page(run.first);
      batch.add_run_num_pages(run.count);
    }
    runs_.clear();
    move(leaves_, batch.mutable_decode_leave());
    move(joins_, batch.mutable_decode_join());
    move(arrived_, batch.mutable_arrived_rows());
    move(arrived_lens_, batch.mutable_arrived_lens());
  }

  auto state() { return std::tie(rows_, starts_, counts_, leaves_, joins_, runs_); }

 private:
  std::vector<std::uint32_t> rows_, starts_, counts_, leaves_, joins_;
  std::vector<kvcache::PageRun> runs_;
  std::vector<std::uint32_t> arrived_, arrived_lens_;
};

// All sizes in tokens, as SGLang counts them (a page counts page_size tokens). Where sliding-window layers
// have a pool of their own, what is allocated is allocated in both; the sizes are the KV pool's unless they
// say so.
class KvPool {
 public:
  // Tokens that must have left a decoding request's window before they are freed: SGLang's
  // SGLANG_SWA_EVICTION_INTERVAL.
  static constexpr std::uint32_t kWindowEvictionInterval = 128;

  explicit KvPool(const SchedulerConfig& config);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  std::uint32_t page_size() const { return page_size_; }
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t available_size() const;
  std::uint64_t evictable_size() const { return cache_->kept(kvcache::kKvPool).evictable; }
  // What can be allocated now: the lesser of the two pools.
  std::uint64_t allocatable_size() const;
  // The pool of window layers.
  bool has_windows() const { return window_pages_.has_value(); }
  std::uint32_t window() const { return window_; }  // tokens
  std::uint64_t window_available_size() const;
  // The pool of states; null where there is none.
  RequestStates* states() { return states_ ? &*states_ : nullptr; }
  const RequestStates* states() const { return states_ ? &*states_ : nullptr; }
  // The host tier; null where there is none.
  HiCacheController* hicache() { return hicache_.get(); }
  const HiCacheController* hicache() const { return hicache_.get(); }
  // When a copy of the host tier is done whose pages can be had then; kNever.
  double next_host_copy() const { return hicache_ ? hicache_->next_event() : HiCacheController::kNever; }
  std::uint64_t peak_states() const { return state_slots_ ? state_slots_->peak_held() : 0; }
  std::uint64_t evicted_states() const { return evicted_states_; }
  std::uint64_t evicted_tokens() const { return evicted_tokens_; }
  PoolUse use(kvcache::Pool pool) const;

  kvcache::PrefixCache& prefix_cache() { return *cache_; }
  const kvcache::ReqToTokenPool& rows() const { return rows_; }
  TableEdits& edits() { return edits_; }
  // Moves what ranks are to be told into `batch`.
  void flush_edits(proto::ForwardBatch& batch) {
    edits_.flush(batch);
    if (hicache_) hicache_->flush_copies(batch);
  }

  // Evicts cached tokens if fewer than `num_tokens` are free: what is short, or in older releases
  // `num_tokens` (SGLang's evict_from_tree_cache).
  void evict_for(std::uint64_t num_tokens);

  // Empties the cache but for what requests hold.
  void flush();

  // Gives `req` a row with its matched prefix and pages for its extend. False and nothing changed where
  // pages do not suffice even after eviction.
  bool alloc_for_extend(Req& req);
  // One more token for `req`. False where no page is left. No heap allocation.
  bool alloc_for_decode(Req& req) {
    if (opens_page(req.kv_committed_len)) {
      const auto take = [this](std::uint32_t page) { return allocator_.take_page(page); };
      const bool next = !has_windows() && rows_.extend_last_if(req.cache.row, take);
      if (!next && !open_page(req)) return false;
    }
    ++req.kv_committed_len;
    return true;
  }
  // The same in steps, without windows (steady_decode.h). The page after the request's last one; takes that
  // very page where it is free; names so many pages after its last one, that were taken, in its row.
  std::uint32_t page_behind(const Req& req) const { return rows_.last_page(req.cache.row) + 1; }
  bool take_page(std::uint32_t page) { return allocator_.take_page(page); }
  void name_pages(const Req& req, std::uint32_t pages) { rows_.extend_last(req.cache.row, pages); }
  // Takes the page after its last one or another and names it. False where none is left.
  bool open_page(Req& req);

  // Before a decode step of `req`, or a further extend of it where no cache does: frees what no window
  // reaches any more (SGLang's maybe_evict_swa). `in_flight`: tokens at the end of the prefix whose pass may
  // still run.
  void free_behind_window(Req& req);
  void free_behind_prefill(Req& req, std::uint32_t in_flight);

  // Speculative decoding. Pages for the first `length` tokens of `req`, whatever it has of them. False and
  // nothing changed where pages do not suffice.
  bool alloc_until(Req& req, std::uint32_t length);
  // Gives back the pages after those of `length` tokens: drafts that were not kept.
  void give_back(Req& req, std::uint32_t length);

  // SGLang's release_kv_cache: into the prefix cache (is_insert) or back to the free pages.
  void release(Req& req, bool is_insert);
  // After a prefill, or between its chunks.
  void cache_unfinished(Req& req, bool chunked = false);

  // Decode server: a row and pages for the KV of `tokens`, of which another server computes those behind
  // req.prefix_len; these are of its node in the prefix cache, which it has locked. Evicts where it must.
  // False and nothing else changed where pages do not suffice. Ranks hear of them when the KV is there.
  bool pre_alloc(Req& req, std::uint32_t tokens);
  void tell_arrived(const Req& req);
  // Runs of contiguous pages that hold its tokens [from, to), both at most kv_committed_len.
  std::uint32_t runs(const Req& req, std::uint32_t from, std::uint32_t to);

  // Tokens that the next decode step of these requests must find free.
  std::uint64_t new_tokens_required_next_decode(const std::vector<Req*>& reqs) const;

  // Throws std::logic_error unless allocated + free + cached = capacity, in both pools, and every request has
  // what its next step looks back at.
  void check_invariants(const std::vector<const Req*>& live) const;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(allocator_, rows_, edits_, evicted_tokens_, evicted_states_);
    if constexpr (Archive::kReads) {
      cache_->load(archive);
    } else {
      cache_->save(archive);
    }
    if (window_pages_) archive(*window_pages_);
    if (state_slots_) archive(*state_slots_);
    if (states_) archive(*states_);
    if (hicache_) archive(*hicache_);
  }

 private:
  // Whether the token after so many begins a page.
  bool opens_page(std::uint32_t tokens) const { return tokens % page_size_ == 0; }
  // Tokens of windows that `live` hold beyond what the cache took over.
  std::uint64_t checked_windows(const std::vector<const Req*>& live) const;
  void check_sum(kvcache::Pool pool, std::uint64_t held) const;
  void evict_states(std::uint32_t states);

  std::uint32_t page_size_;
  std::uint64_t capacity_;
  bool evict_shortfall_;
  std::uint32_t window_;
  kvcache::PageAllocator allocator_;
  std::optional<kvcache::WindowPages> window_pages_;
  std::optional<kvcache::StateSlots> state_slots_;
  kvcache::ReqToTokenPool rows_;
  std::unique_ptr<HiCacheController> hicache_;
  std::unique_ptr<kvcache::PrefixCache> cache_;
  std::optional<RequestStates> states_;
  TableEdits edits_;
  std::vector<kvcache::PageRun> scratch_;
  std::vector<kvcache::PageRun> fresh_;
  std::uint64_t evicted_tokens_ = 0;
  std::uint64_t evicted_states_ = 0;
};

}  // namespace tpsim::scheduler
