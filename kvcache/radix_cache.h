// The radix pool: prefixes whose KV is kept for reuse (SGLang's RadixCache).
//
// A tree whose edges are sequences of tokens. A node holds a key (runs of token ids, a multiple of the page
// size) and the pages of that key's KV. Looking up splits a node where a match ends inside it. Locked nodes
// (lock_ref > 0) are in use by requests; the others can be evicted, leaves first, in the order of a policy.
//
// Differences from SGLang that cannot be observed: cost and memory follow runs, not tokens; time is a
// counter; touching a path records the time at its deepest node only, and a node's access time is the latest
// in its subtree (children hand theirs to the parent when they go); eviction keeps a heap between calls.
//
// Invariants: children of a node differ in their first page; a node's lock_ref is at least the sum of its
// children's; evictable_size() + protected_size() is the number of tokens in the tree.
//
// With bigram_keys the units of a key are pairs of neighbouring tokens, one less than it spans: two keys have
// a unit in common where both tokens are equal. Lengths count units everywhere, and the KV of a unit is that
// of its first token; a node's key holds the second token of its last unit, too (radix_cache.py, RadixKey).
//
// Beside its pages a node may hold data of other pools, its components (components/tree_component.h); a tree
// without any pays nothing for them. With components nodes go in another order than their times, and a match
// may end above where its walk did: every node of a path gets its own time.
//
// Source of the rules: SGLang 0.5.23 mem_cache/unified_radix_cache.py, unified_cache/unified_tree_core.py and
// evict_policy.py; for older releases radix_cache.py and chunk_cache.py. An insertion counts a hit for each
// node that holds a part of its key, the new one too, but not for what the same request has inserted before
// (older: except an insertion between the chunks of a prefill); a split's upper half starts with the lower's
// count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "kvcache/components/host_component.h"
#include "kvcache/components/state_component.h"
#include "kvcache/components/tree_component.h"
#include "kvcache/components/window_component.h"
#include "kvcache/host_tier.h"
#include "kvcache/node_lists.h"
#include "kvcache/pools/page_allocator.h"
#include "kvcache/pools/page_run.h"
#include "kvcache/pools/pool.h"
#include "kvcache/pools/state_slots.h"
#include "kvcache/pools/window_pages.h"
#include "kvcache/prefix_cache.h"
#include "kvcache/req_to_token_pool.h"
#include "kvcache/request_pages.h"
#include "kvcache/token_runs.h"

namespace tpsim::kvcache {

class RadixCache final : public PrefixCache, public Tree {
 public:
  using NodeId = Tree::NodeId;
  using Tree::kRoot;

  struct Options {
    std::uint32_t page_size = 1;  // tokens
    EvictionPolicy policy = EvictionPolicy::kLru;
    // Rules in which releases of SGLang differ (scheduler/releases/).
    bool split_at_prompt_end = true;
    bool split_keeps_creation_time = true;
    bool request_hits_node_once = true;
    // Keys are pairs of neighbouring tokens (EAGLE: the draft model's KV of a token depends on the next one
    // too): the KV of a sequence's last token is never shared, for nobody knows what it is followed by.
    bool bigram_keys = false;
    // Tokens that sliding-window layers look back, where these have a pool of their own; 0: they have none.
    std::uint32_t window = 0;
    // Copies in host memory of what the device has, or had (kvcache/radix_host.cc). With pages only, and
    // without windows and states.
    HostTierOptions host = {};
  };
  struct InsertResult {
    std::uint32_t prefix_len = 0;  // tokens that were in the tree already, with their pages
    NodeId last_node = kRoot;
  };
  // `allocator` takes back evicted and duplicate pages, `pool` holds the requests' rows; both may be null
  // where the tree is used for matching alone, and `window_pages` where options.window is 0. `states`: the
  // pool of states that nodes hold, of a model that has some. `transfers`: with options.host. They must
  // outlive the cache.
  RadixCache(Options options, PageAllocator* allocator, ReqToTokenPool* pool,
             WindowPages* window_pages = nullptr, StateSlots* states = nullptr,
             HostTransfers* transfers = nullptr);

  bool keeps_prefixes() const override { return true; }
  // Longest cached prefix of the first `limit` tokens of `key` that all components can be used with (with
  // bigram_keys at most limit - 1 tokens). Refreshes access times.
  MatchResult match_prefix(const TokenSequence& key, std::uint32_t limit, std::uint32_t extra_key);
  MatchResult match_prefix(const TokenSequence& key, std::uint32_t limit, std::uint32_t extra_key,
                           MatchCursor& cursor) override;
  void collect_pages(NodeId node, std::vector<PageRun>& out) const override;
  std::uint32_t state_slot(NodeId node) const override;
  // Puts the first `length` tokens (cut to whole pages of units) in the tree. `pages` holds their KV; the
  // pages of what was there already (prefix_len) stay the caller's, the others are the tree's. Nodes that end
  // within the first `counted_len` tokens count no hit. REQUIRES: `pages` covers those whole pages.
  InsertResult insert(const TokenSequence& key, std::uint32_t length, std::span<const PageRun> pages,
                      std::int64_t priority, std::uint32_t extra_key, std::uint32_t counted_len = 0);

  TreeLock inc_lock_ref(NodeId node) override;
  void dec_lock_ref(NodeId node) { dec_lock_ref(node, {}); }
  void dec_lock_ref(NodeId node, const TreeLock& lock) override;
  // Of the KV pool, leaves go, one by one. Of another, its component's data, the least recently used first:
  // whole leaves, and from other nodes the component alone.
  std::uint64_t evict(Pool pool, std::uint64_t units) override;
  Kept kept(Pool pool) const override;
  // What nodes have of `pool` beside their pages; null where there is none.
  const TreeComponent* component(Pool pool) const;

  // ---- the host tier (radix_host.cc); REQUIRES: options.host ----

  // Gives what `node` and those above it have in host memory only pages on the device again, all of it or
  // nothing: where it is fewer than kLoadBackThreshold tokens or there is no room even after eviction it
  // stays as it is. Returns the tokens. The node is locked until end_load().
  std::uint32_t load_back(NodeId node);
  void end_load(NodeId node) { dec_lock_ref(node); }
  // The copy that HostTransfers::write_through() was told of is made.
  void end_write(NodeId node) { dec_lock_ref(node); }
  // The deepest node with a copy, `node` or one above it; the root has one.
  NodeId last_host_node(NodeId node) const;
  HostComponent& host() { return *host_; }
  const HostComponent& host() const { return *host_; }
  // Tokens from the root to the end of `node`, and those themselves.
  std::uint32_t depth(NodeId node) const;
  void spell_out(NodeId node, TokenSequence& out) const;
  std::uint32_t extra_key(NodeId node) const { return nodes_[node].extra_key; }
  // What storage read of `key`, tokens [depth(node), end), becomes copies below `node`. Returns how many
  // tokens of it were there already. REQUIRES: end - depth(node) tokens are reserved.
  std::uint32_t insert_host(NodeId node, const TokenSequence& key, std::uint32_t extra_key,
                            std::uint32_t end);
  // Storage reads or writes the copy of `node`, which therefore stays; and does no more.
  void protect_host(NodeId node) { host_->protect(*this, node); }
  void unprotect_host(NodeId node);
  // Gives everything back to the pools. REQUIRES: nothing is locked.
  void clear();
  // SGLang's load_back_threshold, tokens.
  static constexpr std::uint32_t kLoadBackThreshold = 10;

  void cache_finished_req(RequestState& req, const TokenSequence& tokens, std::uint32_t committed_len,
                          bool is_insert) override;
  std::uint32_t cache_unfinished_req(RequestState& req, const TokenSequence& tokens, std::uint32_t fill_len,
                                     bool chunked) override;
  void free_out_of_window(RequestState& req, std::int64_t pre_len) override;

  // Forgets everything, cursors too. Pages are not given back. REQUIRES: no node id is used afterwards.
  void reset();
  std::vector<NodeId> children(NodeId node) const override;
  NodeId parent(NodeId node) const override { return nodes_[node].parent; }
  std::uint32_t length(NodeId node) const override { return nodes_[node].length; }
  std::span<const PageRun> pages(NodeId node) const override { return nodes_[node].pages; }
  // Of the tree, its counters, its index and its heap, and that every page in it is allocated and in it once.
  void check_invariants() const override;

  void save(StateWriter& state) override;
  void load(StateReader& state) override;

 private:
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(nodes_, standings_, free_nodes_, buckets_, heap_, evicts_, leaves_, clock_, versions_,
            evictable_size_, protected_size_);
    if (window_) archive(*window_);
    if (states_) archive(*states_);
    if (host_) archive(*host_, host_heap_);
  }

  // Tokens of a key after its units.
  std::uint32_t overlap() const { return options_.bigram_keys ? 1 : 0; }
  // Whole pages of units that `tokens` tokens make.
  std::uint32_t whole_pages(std::uint32_t tokens) const {
    return tokens > overlap() ? align(tokens - overlap()) : 0;
  }
  // What an insertion may take over besides its pages.
  struct Given {
    std::uint32_t protected_len = 0;  // leading tokens whose pages are the tree's own
    std::uint32_t window_evicted_len = 0;
    StateOffer* state = nullptr;
    bool stays_locked = false;  // the caller locks where it ends: no leaf that could be evicted
  };
  // A node, and the units of a key that its path is.
  struct Prefix {
    NodeId node = kRoot;
    std::uint32_t length = 0;
  };
  // `length`: units, a multiple of the page size. `known`: what the key is known to begin with; without
  // components only.
  InsertResult insert_units(const TokenSequence& key, std::uint32_t length, std::span<const PageRun> pages,
                            std::int64_t priority, std::uint32_t extra_key, std::uint32_t counted_len,
                            const Given& given, Prefix known);
  void pass_through(Prefix path, std::int64_t priority, std::uint32_t counted_len);
  InsertResult insert_sequence(RequestState& req, const TokenSequence& tokens, std::uint32_t length,
                               bool chunked, bool stays_locked);

  // There are millions: each byte counts.
  struct Node {
    RunList<TokenRun, &TokenRun::length> key;
    RunList<PageRun, &PageRun::count> pages;
    std::uint64_t last_access = 0;
    std::uint32_t length = 0;  // tokens
    std::uint32_t lock_ref = 0;
    NodeId parent = kNoNode;
    NodeId first_child = kNoNode;
    NodeId next_sibling = kNoNode, previous_sibling = kNoNode;  // before the first is the last
    NodeId next_in_bucket = kNoNode;                            // chain of the child index
    std::uint32_t hash = 0;                                     // of parent, namespace and first page
    // Another one whenever it gains a child (losing one, or a split below, changes no match) and for each use
    // of this slot, in 2^32 such events no two the same; 0 = free.
    std::uint32_t version = 0;
    std::uint32_t extra_key = 0;

    auto state() {
      return std::tie(key, pages, last_access, length, lock_ref, parent, first_child, next_sibling,
                      previous_sibling, next_in_bucket, hash, version, extra_key);
    }
  };
  static_assert(sizeof(Node) == 72);
  // What some policies evict by, or copy to the host, of each node.
  struct Standing {
    std::uint64_t creation = 0;
    std::int64_t priority = 0;
    std::uint32_t hit_count = 0;

    auto state() { return std::tie(creation, priority, hit_count); }
  };
  // A position in a key.
  struct KeyView {
    std::span<const TokenRun> runs;
    std::size_t run = 0;
    std::uint32_t offset = 0;  // in the run
    std::uint32_t left = 0;    // units to the limit
    void advance(std::uint32_t units) {
      left -= units;
      skip(units);
    }
    void skip(std::uint32_t units);  // that `left` does not count
  };
  // Smaller is evicted first.
  struct EvictionKey {
    std::int64_t major = 0;
    std::int64_t minor = 0;
    friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;  // NOLINT(*-use-nullptr)
  };
  struct HeapEntry {
    EvictionKey key;
    NodeId node;  // which may be another one by now, with another key
  };

  std::uint32_t align(std::uint32_t tokens) const { return tokens / options_.page_size * options_.page_size; }
  std::uint32_t child_hash(NodeId parent, std::uint32_t extra_key, KeyView key) const;
  // The child that begins with the first page of `key`, and how many tokens of it `key` begins with.
  struct Child {
    NodeId id = kNoNode;
    std::uint32_t common = 0;
  };
  Child find_child(NodeId parent, std::uint32_t extra_key, const KeyView& key) const;
  // Whether the first `length` units of `key` are those from the root to the end of `node`.
  bool is_path(NodeId node, std::uint32_t length, const TokenSequence& key, std::uint32_t extra_key) const;
  // Whether some child of `parent` has this child_hash().
  bool has_child(NodeId parent, std::uint32_t hash) const;
  std::uint32_t common_prefix(const Node& node, KeyView key) const;
  MatchResult walk(NodeId node, std::uint32_t matched, KeyView key, std::uint32_t extra_key);
  NodeId split(NodeId lower, std::uint32_t length);
  NodeId new_node();
  NodeId new_leaf(NodeId parent, KeyView rest, std::int64_t priority, std::uint32_t extra_key);
  void link_last(NodeId parent, NodeId child);
  void index(NodeId child);
  void unindex(NodeId child);
  void grow_index();
  void remove_leaf(NodeId leaf);
  void unlink(NodeId node);
  void evict_leaf(NodeId leaf);
  std::uint64_t evict_leaves(std::uint64_t tokens);
  // With components (radix_components.cc).
  std::uint64_t evict_component(TreeComponent& component, std::uint64_t units);
  void settle(MatchResult& result) const;
  void touch_path(NodeId node);
  void adopt_window(NodeId node, std::uint32_t start, std::span<const PageRun> pages, const Given& given);
  void take_state(NodeId node, StateOffer* offer);
  void attach_window(NodeId leaf, std::uint32_t start, std::uint32_t evicted_len);
  std::uint32_t cacheable_len(const RequestState& req, std::uint32_t length) const;
  void free_duplicates(std::uint32_t row, std::uint32_t first_page, std::uint32_t end_page);
  void check_components(NodeId node) const;
  // With a host tier (radix_host.cc).
  std::uint32_t pass_host(NodeId node, std::uint32_t start, std::span<const PageRun> pages, bool counts);
  void count_hit(NodeId node);
  bool write_backup(NodeId node, bool write_back);
  std::uint64_t evict_to_host(NodeId node, std::vector<NodeId>& refused);
  void end_write_back();
  void put_on_device(NodeId node);
  void move_leaves(NodeId node, bool evicted);
  std::uint64_t evict_host(std::uint64_t tokens);
  void offer_host(NodeId node);
  void check_host(NodeId node) const;
  bool is_leaf(NodeId id) const {
    return host_ == nullptr ? nodes_[id].first_child == kNoNode : host_->is_device_leaf(id);
  }
  bool is_evictable_leaf(NodeId id) const { return nodes_[id].lock_ref == 0 && is_leaf(id); }
  void touch(NodeId node, std::uint64_t time);
  EvictionKey eviction_key(NodeId node) const;
  std::int64_t priority(NodeId node) const { return has_standings_ ? standings_[node].priority : 0; }
  void raise_priority(NodeId node, std::int64_t to) {
    if (has_standings_) standings_[node].priority = std::max(standings_[node].priority, to);
  }
  void count_use(NodeId node) {
    if (has_standings_) ++standings_[node].hit_count;
  }
  std::uint32_t next_version() {
    if (++versions_ == 0) ++versions_;
    return versions_;
  }
  // The links along its siblings that lead to `node`, from before and from behind.
  NodeId& link_to(NodeId node);
  NodeId& link_back_to(NodeId node);
  void offer(NodeId node);
  void rebuild_heap();

  Options options_;
  PageAllocator* allocator_;
  ReqToTokenPool* pool_;
  RequestPages request_pages_;
  const bool has_standings_;  // the policy asks for them
  BlockList<Node> nodes_;
  BlockList<Standing> standings_;
  std::vector<NodeId> free_nodes_;
  std::vector<NodeId> buckets_;  // the child index: by hash of parent, namespace and first page
  // Of evictable leaves, from the first eviction on; entries may be out of date.
  std::vector<HeapEntry> heap_;
  bool evicts_ = false;
  std::size_t leaves_ = 0;  // evictable ones
  std::uint64_t clock_ = 0;
  std::uint32_t versions_ = 0;
  std::uint64_t evictable_size_ = 0;
  std::uint64_t protected_size_ = 0;
  WindowPages* window_pages_;
  std::unique_ptr<WindowComponent> window_;
  std::unique_ptr<StateComponent> states_;
  std::unique_ptr<HostComponent> host_;
  std::vector<TreeComponent*> components_;  // all there are
  HostTransfers* transfers_;
  std::vector<NodeId> written_back_;  // by the eviction that is under way
  std::vector<HeapEntry> host_heap_;  // of host leaves; entries may be out of date
  // Of the request that is inserted: pages, by their place in its row, that became the tree's in place of
  // others. Ascending.
  std::vector<PageRun> adopted_;
  std::vector<PageRun> scratch_;  // of requests; kept, so that steady use does not allocate
  std::vector<PageRun> tail_;
  mutable std::vector<NodeId> path_;  // of collect_pages()
};

}  // namespace tpsim::kvcache
