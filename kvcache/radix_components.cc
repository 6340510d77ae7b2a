// The radix tree's dealings with its components.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {

// Moves the end of a match up to where every component can be used.
void RadixCache::settle(MatchResult& result) const {
  for (bool again = true; again;) {
    again = false;
    for (const TreeComponent* component : components_) {
      const NodeId node = component->usable(*this, result.last_node);
      for (; result.last_node != node; result.last_node = nodes_[result.last_node].parent) {
        result.matched_tokens -= nodes_[result.last_node].length;
        again = true;
      }
    }
    again = again && components_.size() > 1;
  }
}

// Now, and a node after its parent.
void RadixCache::touch_path(NodeId node) {
  std::uint64_t depth = 0;
  for (NodeId up = node; up != kRoot; up = nodes_[up].parent) ++depth;
  clock_ += depth + 1;
  std::uint64_t time = clock_;
  for (NodeId up = node; up != kRoot; up = nodes_[up].parent) touch(up, time--);
  touch(kRoot, time);
}

std::uint64_t RadixCache::evict_component(TreeComponent& component, std::uint64_t units) {
  std::uint64_t evicted = 0;
  NodeId node = component.least_recent();
  while (evicted < units && node != kNoNode) {
    const NodeId next = component.least_recent(node);
    if (is_evictable_leaf(node)) {
      evicted += component.units(*this, node);
      evict_leaf(node);
    } else {
      evicted += component.drop(*this, node);
    }
    node = next == kNoNode || component.has(next) ? next : component.least_recent();
  }
  return evicted;
}

// An insertion passes `node`, whose tokens begin at `start`. Where it is a tombstone and the inserting
// request has the window parts, they become the tree's: with the request's pages in place of the node's, or,
// where other requests use these, moved to them.
void RadixCache::adopt_window(NodeId node, std::uint32_t start, std::span<const PageRun> pages,
                              const Given& given) {
  const std::uint32_t end = start + nodes_[node].length;
  if (given.protected_len >= end || window_->has(node)) return;
  const std::uint32_t live_start = std::max(start, given.window_evicted_len);
  if (live_start >= end) return;
  if (live_start > start) split(node, live_start - start);
  const std::uint32_t first_page = live_start / options_.page_size;
  const std::uint32_t count = (end - live_start) / options_.page_size;
  scratch_.clear();
  append_slice(pages, first_page, count, scratch_);
  Node& kept = nodes_[node];
  if (kept.lock_ref > 0) {
    for (const PageRun& run : scratch_) window_pages_->free(run);
    for (const PageRun& run : kept.pages) window_pages_->alloc(run);
  } else {
    for (const PageRun& run : kept.pages) allocator_->free(run);
    kept.pages.assign(scratch_.begin(), scratch_.end());
    append_run(adopted_, {first_page, count});
  }
  window_->attach(*this, node);
}

// An insertion that ends at `node` hands over the state there.
void RadixCache::take_state(NodeId node, StateOffer* offer) {
  if (offer == nullptr || node == kRoot || offer->slot == StateSlots::kNone) return;
  touch(node, ++clock_);
  if (states_->offer(*this, node, offer->slot)) offer->slot = StateSlots::kNone;
}

// The window parts of a new leaf, whose tokens begin at `start`. What its request has freed already becomes a
// tombstone; the rest is cut so that a lock on the leaf locks one window and not all of it.
void RadixCache::attach_window(NodeId leaf, std::uint32_t start, std::uint32_t evicted_len) {
  const std::uint32_t live_start = std::max(start, evicted_len);
  if (live_start >= start + nodes_[leaf].length) return;
  if (live_start > start) split(leaf, live_start - start);
  const std::uint32_t tail = window_->paged_window();
  if (nodes_[leaf].length > tail) {
    window_->attach(*this, split(leaf, nodes_[leaf].length - tail));
  }
  window_->attach(*this, leaf);
}

// How much of the first `length` tokens an insertion may take.
std::uint32_t RadixCache::cacheable_len(const RequestState& req, std::uint32_t length) const {
  if (states_ != nullptr) return req.offer.slot == StateSlots::kNone ? 0 : std::min(length, req.offer.length);
  const bool branches = req.branching_len > req.cache_protected_len && req.branching_len <= length;
  return branches ? req.branching_len : length;
}

// Frees a request's pages [first_page, end_page) that the tree had already, but for those that it took.
void RadixCache::free_duplicates(std::uint32_t row, std::uint32_t first_page, std::uint32_t end_page) {
  for (const PageRun& taken : adopted_) {
    request_pages_.free(row, first_page, taken.first);
    first_page = taken.first + taken.count;
  }
  request_pages_.free(row, first_page, end_page);
}

void RadixCache::free_out_of_window(RequestState& req, std::int64_t pre_len) {
  const std::int64_t window = options_.window;
  const std::int64_t page = options_.page_size;
  if (pre_len - window <= req.window_evicted_len) return;
  const std::int64_t whole_pages = (std::max(window, page) + page - 1) / page * page;
  request_pages_.free_windows(req, pre_len, whole_pages);
}

const TreeComponent* RadixCache::component(Pool pool) const {
  for (const TreeComponent* component : components_) {
    if (component->pool() == pool) return component;
  }
  return nullptr;
}

PrefixCache::Kept RadixCache::kept(Pool pool) const {
  if (pool == kKvPool) return {evictable_size_, protected_size_};
  const TreeComponent* const found = component(pool);
  if (found == nullptr) return {};
  return {found->evictable_size(), found->protected_size()};
}

std::uint64_t RadixCache::evict(Pool pool, std::uint64_t units) {
  if (pool == kKvPool) return evict_leaves(units);
  if (pool == kHostPool) return host_ != nullptr ? evict_host(units) : 0;
  for (TreeComponent* component : components_) {
    if (component->pool() == pool) return evict_component(*component, units);
  }
  return 0;
}

std::uint32_t RadixCache::state_slot(NodeId node) const {
  return states_ != nullptr && states_->has(node) ? states_->slot(node) : StateSlots::kNone;
}

void RadixCache::check_components(NodeId id) const {
  if (window_pages_ == nullptr || window_ == nullptr) return;
  for (const PageRun& run : nodes_[id].pages) {
    if (window_pages_->count(run) != (window_->has(id) ? run.count : 0)) {
      throw std::logic_error(fmt::format("radix node {}: {} of {} pages have their window part", id,
                                         window_pages_->count(run), run.count));
    }
  }
}

}  // namespace tpsim::kvcache
