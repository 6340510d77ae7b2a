// The prefix cache: what stays of the KV of requests for others that begin with the same tokens (SGLang's
// BasePrefixCache).
//
// The scheduler asks this interface and knows no implementation: ChunkCache (chunk_cache.h) keeps nothing,
// RadixCache (radix_cache.h) a tree of prefixes. Where a matched prefix ends is a node; a request locks the
// nodes of its prefix while it uses them, and the others can be evicted. What the cache takes over from a
// request, and what it already had of it, it says by cache_protected_len and the request's row.
//
// Beside the pages of the KV pool a cache may keep their parts in the pool of sliding-window layers
// (window_pages.h) and states of layers with a recurrence (state_slots.h).
//
// Invariants: what requests hold beyond cache_protected_len, what the cache keeps and what is free make up
// each pool.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kvcache/pools/page_run.h"
#include "kvcache/pools/pool.h"
#include "kvcache/pools/state_slots.h"
#include "kvcache/req_to_token_pool.h"
#include "kvcache/token_runs.h"

namespace tpsim {
class StateReader;
class StateWriter;
}  // namespace tpsim

namespace tpsim::kvcache {

// A lock on a node, to be undone with it: what was locked in each pool beside the KV pool.
struct TreeLock {
  std::array<std::uint32_t, kPools> receipts = {};
};

class PrefixCache {
 public:
  using NodeId = std::uint32_t;
  static constexpr NodeId kRoot = 0;  // the end of the empty prefix

  struct MatchResult {
    std::uint32_t matched_tokens = 0;  // a multiple of the page size
    NodeId last_node = kRoot;
    std::uint32_t full_matched_tokens = 0;  // what would have matched without windows, states and host tier
    NodeId full_node = kRoot;               // where that ends; of a cache with one of these
  };
  // Where the last match of a key ended. Valid for the same key, limit and namespace only.
  struct MatchCursor {
    NodeId node = kRoot;
    std::uint32_t matched_tokens = 0;
    std::uint32_t version = 0;    // of the node and its children; 0 = no match yet
    std::uint32_t next_hash = 0;  // of the child that would match more; 0: not known
  };
  // A state that a request hands over with its next insertion, taken after its first `length` tokens. An
  // insertion that takes it clears `slot`.
  struct StateOffer {
    std::uint32_t slot = StateSlots::kNone;
    std::uint32_t length = 0;
  };
  // What SGLang's Req carries for the cache.
  struct RequestState {
    std::uint32_t row = ReqToTokenPool::kNoRow;
    NodeId last_node = kRoot;
    std::uint32_t cache_protected_len = 0;  // leading tokens whose pages the cache owns
    std::uint32_t extra_key = 0;            // namespace
    std::int64_t priority = 0;
    std::uint32_t prefix_len = 0;    // tokens with KV after cache_unfinished_req
    std::uint32_t prompt_len = 0;    // tokens
    std::uint32_t inserted_len = 0;  // leading tokens that this request has inserted already
    TreeLock lock;                   // on last_node
    // Window layers: leading tokens whose pages have no window part, of those that are the request's own.
    std::uint32_t window_evicted_len = 0;
    // Where another request's prefix went on but could not be used (SGLang's swa_branching_seqlen): the next
    // insertion ends there, so that a prefix that can be used does. 0: nowhere.
    std::uint32_t branching_len = 0;
    // Where the pool keeps states: what is inserted ends with this one; without one nothing is inserted.
    StateOffer offer;
  };
  // Of one pool, in its units.
  struct Kept {
    std::uint64_t evictable = 0;
    std::uint64_t locked = 0;
    std::uint64_t total() const { return evictable + locked; }
  };

  PrefixCache() = default;
  virtual ~PrefixCache() = default;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Whether anything is ever kept. Where not, no match finds anything, and what the chunks of a prefill leave
  // behind their window is for the scheduler to free.
  virtual bool keeps_prefixes() const = 0;

  // Longest usable prefix of the first `limit` tokens of `key`; O(1) where nothing changed at the end of the
  // cursor's last match. A use of what it finds.
  virtual MatchResult match_prefix(const TokenSequence& key, std::uint32_t limit, std::uint32_t extra_key,
                                   MatchCursor& cursor) = 0;
  // Appends the pages from the root to the end of `node`.
  virtual void collect_pages(NodeId node, std::vector<PageRun>& out) const = 0;
  // The state after `node`, a match's last one; kNone where there is none.
  virtual std::uint32_t state_slot(NodeId node) const = 0;

  // Locks, and unlocks, every node from `node` up to the root, and of windows and states what a request with
  // that prefix needs. Unlocking what is not locked throws std::logic_error.
  virtual TreeLock inc_lock_ref(NodeId node) = 0;
  virtual void dec_lock_ref(NodeId node, const TreeLock& lock) = 0;

  // What is kept of `pool`, in its units.
  virtual Kept kept(Pool pool) const = 0;
  // Evicts until at least `units` of `pool` are free or nothing is left. Returns what was evicted.
  virtual std::uint64_t evict(Pool pool, std::uint64_t units) = 0;

  // The request is done: the KV of its first `committed_len` tokens is kept (is_insert) or goes back to the
  // allocator; duplicates and the tail that fills no page are freed; its lock is released. The row is left
  // for the caller to free.
  virtual void cache_finished_req(RequestState& req, const TokenSequence& tokens, std::uint32_t committed_len,
                                  bool is_insert) = 0;
  // The request goes on: the KV of its first `fill_len` tokens becomes reusable; pages that duplicate what
  // is kept are freed and the row is rewritten; the lock moves to the new node. `chunked`: more chunks of its
  // prefill follow. Returns the first page index of the row that changed, or the row's number of pages if
  // none did.
  virtual std::uint32_t cache_unfinished_req(RequestState& req, const TokenSequence& tokens,
                                             std::uint32_t fill_len, bool chunked) = 0;
  // Frees the window parts of the request's own pages that no window reaches any more when the token after
  // the first `pre_len` is computed, less those that an insertion needs so that it ends in a window that can
  // be used. REQUIRES: there is a pool of windows.
  virtual void free_out_of_window(RequestState& req, std::int64_t pre_len) = 0;

  // The tree of prefixes, for policies that walk it. Children in order of insertion, as Python's dictionaries
  // keep it.
  virtual NodeId parent(NodeId node) const = 0;
  virtual std::vector<NodeId> children(NodeId node) const = 0;

  // What is kept, for a checkpoint, and back into an empty cache of the same options.
  virtual void save(StateWriter& state) = 0;
  virtual void load(StateReader& state) = 0;

  // Throws std::logic_error with a description where an invariant is broken. Walks everything.
  virtual void check_invariants() const = 0;
};

}  // namespace tpsim::kvcache
