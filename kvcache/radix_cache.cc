#include "kvcache/radix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <stdexcept>

#include "proto/base/archive.h"

namespace tpsim::kvcache {
namespace {

constexpr std::size_t kFirstBuckets = 64;  // a power of two

std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 32);
}

// Moves what lies after the first `amount` units of `from` into `to`.
template <typename Run, std::uint32_t Run::*Length>
void split_runs(RunList<Run, Length>& from, std::uint32_t amount, RunList<Run, Length>& to) {
  std::size_t i = 0;
  while (amount >= from[i].*Length) amount -= from[i++].*Length;
  to.assign(from.begin() + i, from.end());
  to.front().first += amount;
  to.front().*Length -= amount;
  if (amount > 0) from[i++].*Length = amount;
  from.shrink(i);
}

}  // namespace

void RadixCache::KeyView::skip(std::uint32_t units) {
  while (units > 0) {
    const std::uint32_t step = std::min(units, runs[run].length - offset);
    offset += step;
    units -= step;
    if (offset == runs[run].length) {
      ++run;
      offset = 0;
    }
  }
}

RadixCache::RadixCache(Options options, PageAllocator* allocator, ReqToTokenPool* pool,
                       WindowPages* window_pages, StateSlots* states, HostTransfers* transfers)
    : options_(options),
      allocator_(allocator),
      pool_(pool),
      request_pages_(options.page_size, allocator, pool, window_pages),
      has_standings_((options.policy != EvictionPolicy::kLru && options.policy != EvictionPolicy::kMru) ||
                     options.host.tokens > 0),
      window_pages_(window_pages),
      transfers_(transfers) {
  if (options_.window > 0) {
    window_ = std::make_unique<WindowComponent>(options_.window, options_.page_size, window_pages_);
    components_.push_back(window_.get());
  }
  if (states != nullptr) {
    states_ = std::make_unique<StateComponent>(*states);
    components_.push_back(states_.get());
  }
  if (options_.host.tokens > 0) {
    host_ =
        std::make_unique<HostComponent>(options_.host.tokens, options_.page_size, options_.host.first_page);
    components_.push_back(host_.get());
  }
  reset();
}

void RadixCache::reset() {
  nodes_.clear();
  standings_.clear();
  free_nodes_.clear();
  buckets_.assign(kFirstBuckets, kNoNode);
  heap_.clear();
  evicts_ = false;
  host_heap_.clear();
  leaves_ = 0;
  evictable_size_ = protected_size_ = 0;
  for (TreeComponent* component : components_) component->reset();
  if (host_ != nullptr) host_->forget_all();
  new_node();
  nodes_[kRoot].lock_ref = 1;
  if (has_standings_) standings_[kRoot].priority = std::numeric_limits<std::int64_t>::min();
}

RadixCache::NodeId RadixCache::new_node() {
  NodeId id;
  if (free_nodes_.empty()) {
    id = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
    if (has_standings_) standings_.emplace_back();
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
    Node fresh;
    fresh.key = std::move(nodes_[id].key);
    fresh.pages = std::move(nodes_[id].pages);
    fresh.key.clear();
    fresh.pages.clear();
    nodes_[id] = std::move(fresh);
  }
  // Now, because every living node is in the index and the new one does not live yet.
  if (nodes_.size() - free_nodes_.size() > 2 * buckets_.size()) grow_index();
  Node& node = nodes_[id];
  node.version = next_version();
  node.last_access = ++clock_;
  if (has_standings_) standings_[id] = {.creation = clock_};
  return id;
}

// ---- children ----

std::uint32_t RadixCache::child_hash(NodeId parent, std::uint32_t extra_key, KeyView key) const {
  std::uint64_t h = mix(mix(0, parent), extra_key);
  std::uint32_t left = options_.page_size + overlap();
  while (left > 0) {
    const TokenRun& run = key.runs[key.run];
    const std::uint32_t take = std::min(left, run.length - key.offset);
    h = mix(mix(h, run.first + key.offset), take);
    left -= take;
    ++key.run;
    key.offset = 0;
  }
  return static_cast<std::uint32_t>(h);
}

RadixCache::Child RadixCache::find_child(NodeId parent, std::uint32_t extra_key, const KeyView& key) const {
  const std::uint32_t hash = child_hash(parent, extra_key, key);
  for (NodeId id = buckets_[hash & (buckets_.size() - 1)]; id != kNoNode; id = nodes_[id].next_in_bucket) {
    const Node& node = nodes_[id];
    if (node.hash != hash || node.parent != parent || node.extra_key != extra_key) continue;
    if (const std::uint32_t common = common_prefix(node, key); common > 0) return {id, common};
  }
  return {};
}

bool RadixCache::has_child(NodeId parent, std::uint32_t hash) const {
  NodeId id = buckets_[hash & (buckets_.size() - 1)];
  while (id != kNoNode && (nodes_[id].hash != hash || nodes_[id].parent != parent))
    id = nodes_[id].next_in_bucket;
  return id != kNoNode;
}

void RadixCache::index(NodeId child) {
  Node& node = nodes_[child];
  node.hash = child_hash(node.parent, node.extra_key, KeyView{node.key, 0, 0, node.length});
  NodeId& bucket = buckets_[node.hash & (buckets_.size() - 1)];
  node.next_in_bucket = bucket;
  bucket = child;
}

void RadixCache::unindex(NodeId child) {
  NodeId* link = &buckets_[nodes_[child].hash & (buckets_.size() - 1)];
  while (*link != child) link = &nodes_[*link].next_in_bucket;
  *link = nodes_[child].next_in_bucket;
}

void RadixCache::grow_index() {
  buckets_.assign(buckets_.size() * 2, kNoNode);
  for (NodeId id = kRoot + 1; id < nodes_.size(); ++id) {
    Node& node = nodes_[id];
    if (node.version == 0) continue;
    NodeId& bucket = buckets_[node.hash & (buckets_.size() - 1)];
    node.next_in_bucket = bucket;
    bucket = id;
  }
}

void RadixCache::link_last(NodeId parent, NodeId child) {
  Node& up = nodes_[parent];
  Node& node = nodes_[child];
  node.parent = parent;
  node.next_sibling = kNoNode;
  if (up.first_child == kNoNode) {
    up.first_child = node.previous_sibling = child;
  } else {
    NodeId& last = nodes_[up.first_child].previous_sibling;
    node.previous_sibling = last;
    nodes_[last].next_sibling = child;
    last = child;
  }
  up.version = next_version();
}

RadixCache::NodeId& RadixCache::link_to(NodeId node) {
  NodeId& first = nodes_[nodes_[node].parent].first_child;
  return first == node ? first : nodes_[nodes_[node].previous_sibling].next_sibling;
}

RadixCache::NodeId& RadixCache::link_back_to(NodeId node) {
  const NodeId next = nodes_[node].next_sibling;
  return nodes_[next == kNoNode ? nodes_[nodes_[node].parent].first_child : next].previous_sibling;
}

std::vector<RadixCache::NodeId> RadixCache::children(NodeId node) const {
  std::vector<NodeId> out;
  for (NodeId child = nodes_[node].first_child; child != kNoNode; child = nodes_[child].next_sibling) {
    out.push_back(child);
  }
  return out;
}

// ---- matching and inserting ----

// Units of `node`'s key that `key` begins with, in whole pages. Both are canonical runs, so where the ids at
// the same position are equal, the shorter rest of the two runs is common, and where they differ it ends.
std::uint32_t RadixCache::common_prefix(const Node& node, KeyView key) const {
  std::uint32_t common = 0;
  const std::uint32_t most = std::min(node.length, key.left) + overlap();
  std::size_t run = 0;
  std::uint32_t offset = 0;
  while (common < most) {
    const TokenRun& a = node.key[run];
    const TokenRun& b = key.runs[key.run];
    if (a.first + offset != b.first + key.offset) break;
    const std::uint32_t step = std::min({a.length - offset, b.length - key.offset, most - common});
    common += step;
    offset += step;
    key.offset += step;
    if (offset == a.length) {
      ++run;
      offset = 0;
    }
    if (key.offset == b.length) {
      ++key.run;
      key.offset = 0;
    }
  }
  return whole_pages(common);
}

bool RadixCache::is_path(NodeId node, std::uint32_t length, const TokenSequence& key,
                         std::uint32_t extra_key) const {
  if (node >= nodes_.size() || nodes_[node].version == 0) return false;
  for (; node != kRoot; node = nodes_[node].parent) {
    const Node& here = nodes_[node];
    if (here.extra_key != extra_key || here.length > length) return false;
    length -= here.length;
    KeyView part{key.runs(), 0, 0, here.length};
    part.skip(length);
    if (common_prefix(here, part) != here.length) return false;
  }
  return length == 0;
}

RadixCache::MatchResult RadixCache::match_prefix(const TokenSequence& key, std::uint32_t limit,
                                                 std::uint32_t extra_key) {
  MatchCursor unused;
  return match_prefix(key, limit, extra_key, unused);
}

RadixCache::MatchResult RadixCache::match_prefix(const TokenSequence& key, std::uint32_t limit,
                                                 std::uint32_t extra_key, MatchCursor& cursor) {
  limit = whole_pages(std::min(limit, static_cast<std::uint32_t>(key.size())));
  if (limit == 0) return {};
  // The node may have gained children, or be another one.
  if (cursor.node != kRoot &&
      (cursor.node >= nodes_.size() || nodes_[cursor.node].version != cursor.version) &&
      !is_path(cursor.node, cursor.matched_tokens, key, extra_key))
    cursor = {};
  MatchResult result{cursor.matched_tokens, cursor.node};
  const std::uint64_t access_time = ++clock_;
  if (nodes_[cursor.node].version != cursor.version && cursor.matched_tokens < limit) {
    // Mostly others' children came, none that goes on as the key does.
    if (cursor.next_hash == 0 || has_child(cursor.node, cursor.next_hash)) {
      KeyView rest{key.runs(), 0, 0, limit};
      rest.advance(cursor.matched_tokens);
      result = walk(cursor.node, cursor.matched_tokens, rest, extra_key);
      rest.advance(result.matched_tokens - cursor.matched_tokens);
      cursor.node = result.last_node;
      cursor.matched_tokens = result.matched_tokens;
      cursor.next_hash = rest.left > 0 ? child_hash(cursor.node, extra_key, rest) : 0;
    }
    cursor.version = nodes_[cursor.node].version;
  }
  result.full_matched_tokens = result.matched_tokens;
  if (!components_.empty()) {
    result.full_node = result.last_node;
    settle(result);
    touch_path(host_ != nullptr ? result.full_node : result.last_node);
    for (TreeComponent* component : components_) component->on_match(*this, result.last_node);
  } else if (nodes_[result.last_node].last_access < access_time) {
    // A split's upper half is younger than this access; everything above it is touched through it.
    touch(result.last_node, access_time);
  }
  return result;
}

RadixCache::MatchResult RadixCache::walk(NodeId node, std::uint32_t matched, KeyView key,
                                         std::uint32_t extra_key) {
  while (key.left > 0) {
    const auto [child, common] = find_child(node, extra_key, key);
    if (child == kNoNode) break;
    matched += common;
    if (common < nodes_[child].length) {
      touch(child, clock_);  // SGLang touches the node before it splits it: the lower half keeps this
      return {.matched_tokens = matched, .last_node = split(child, common)};
    }
    node = child;
    key.advance(common);
  }
  return {.matched_tokens = matched, .last_node = node};
}

// Cuts the first `length` units of `lower` off into a new node above it, and returns that.
RadixCache::NodeId RadixCache::split(NodeId lower, std::uint32_t length) {
  const NodeId upper = new_node();
  unindex(lower);
  Node& up = nodes_[upper];
  Node& low = nodes_[lower];
  decltype(low.key) key_rest;
  decltype(low.pages) page_rest;
  split_runs(low.key, length, key_rest);
  if (!low.pages.empty()) split_runs(low.pages, length / options_.page_size, page_rest);
  up.key.assign(low.key.begin(), low.key.end());
  if (options_.bigram_keys) {  // the second token of its last unit is the first of what is below
    const TokenId next = key_rest.front().first;
    if (up.key.back().first + up.key.back().length == next) {
      ++up.key.back().length;
    } else {
      up.key.push_back({next, 1});
    }
  }
  up.pages.assign(low.pages.begin(), low.pages.end());
  low.key = std::move(key_rest);
  low.pages = std::move(page_rest);
  up.length = length;
  low.length -= length;
  up.lock_ref = low.lock_ref;
  if (has_standings_) {
    standings_[upper].priority = standings_[lower].priority;
    standings_[upper].hit_count = standings_[lower].hit_count;
    if (options_.split_keeps_creation_time) standings_[upper].creation = standings_[lower].creation;
  }
  up.extra_key = low.extra_key;
  // The new node takes the old one's place among its siblings.
  up.parent = low.parent;
  up.previous_sibling = low.previous_sibling;
  up.next_sibling = low.next_sibling;
  link_to(lower) = upper;
  link_back_to(lower) = upper;
  up.first_child = low.previous_sibling = lower;
  low.parent = upper;
  low.next_sibling = kNoNode;
  index(upper);
  index(lower);
  if (!components_.empty()) {
    touch(lower, ++clock_);
    for (TreeComponent* component : components_) component->on_split(*this, upper, lower);
  }
  return upper;
}

RadixCache::InsertResult RadixCache::insert(const TokenSequence& key, std::uint32_t length,
                                            std::span<const PageRun> pages, std::int64_t priority,
                                            std::uint32_t extra_key, std::uint32_t counted_len) {
  length = whole_pages(std::min(length, static_cast<std::uint32_t>(key.size())));
  return insert_units(key, length, pages, priority, extra_key, counted_len, {}, {});
}

// What an insertion does to the nodes that it comes through.
void RadixCache::pass_through(Prefix path, std::int64_t priority, std::uint32_t counted_len) {
  for (; path.node != kRoot; path.node = nodes_[path.node].parent) {
    Node& node = nodes_[path.node];
    raise_priority(path.node, priority);
    if (path.length > counted_len) count_use(path.node);
    path.length -= node.length;
  }
}

RadixCache::InsertResult RadixCache::insert_units(const TokenSequence& key, std::uint32_t length,
                                                  std::span<const PageRun> pages, std::int64_t priority,
                                                  std::uint32_t extra_key, std::uint32_t counted_len,
                                                  const Given& given, Prefix known) {
  const std::uint64_t access_time = ++clock_;
  if (known.length > length) known = {};
  KeyView rest{key.runs(), 0, 0, length - known.length};
  if (rest.left > 0) rest.skip(known.length);
  pass_through(known, priority, counted_len);
  NodeId node = known.node;
  std::uint32_t prefix_len = known.length;
  std::uint32_t revived = 0;  // tokens at its end that the device did not have any more
  raise_priority(kRoot, priority);
  while (rest.left > 0) {
    const auto [child, common] = find_child(node, extra_key, rest);
    if (child == kNoNode) break;
    prefix_len += common;
    rest.advance(common);
    if (common < nodes_[child].length) {
      touch(child, access_time);
      node = split(child, common);
    } else {
      node = child;
    }
    raise_priority(node, priority);
    if (window_ != nullptr) adopt_window(node, prefix_len - common, pages, given);
    if (host_ != nullptr) {
      revived += pass_host(node, prefix_len - common, pages, prefix_len > counted_len);
    } else if (prefix_len > counted_len) {
      count_use(node);
    }
  }
  if (!components_.empty()) {
    touch_path(node);
  } else if (nodes_[node].last_access < access_time) {
    touch(node, access_time);
  }
  if (rest.left == 0) {
    take_state(node, given.state);
    for (TreeComponent* component : components_) component->on_insert(*this, node);
    return {prefix_len - revived, node};
  }

  if (is_evictable_leaf(node)) --leaves_;  // it is none any more
  const NodeId leaf = new_leaf(node, rest, priority, extra_key);
  Node& fresh = nodes_[leaf];
  append_slice(pages, prefix_len / options_.page_size, fresh.length / options_.page_size, fresh.pages);
  if (host_ != nullptr) host_->on_link(node, leaf, /*on_device=*/true);
  evictable_size_ += fresh.length;
  ++leaves_;
  if (window_ != nullptr) attach_window(leaf, prefix_len, given.window_evicted_len);
  // As in SGLang, by the length that the leaf has after it was cut at the window.
  const bool counts = prefix_len + nodes_[leaf].length > counted_len;
  if (host_ == nullptr && counts) count_use(leaf);
  if (!given.stays_locked) offer(leaf);
  if (host_ != nullptr && counts) count_hit(leaf);
  take_state(leaf, given.state);
  for (TreeComponent* component : components_) component->on_insert(*this, leaf);
  return {prefix_len - revived, leaf};
}

// What is left of a key becomes a node, without pages, below `parent`.
RadixCache::NodeId RadixCache::new_leaf(NodeId parent, KeyView rest, std::int64_t priority,
                                        std::uint32_t extra_key) {
  const NodeId leaf = new_node();
  Node& fresh = nodes_[leaf];
  fresh.length = rest.left;
  if (has_standings_) standings_[leaf].priority = priority;
  fresh.extra_key = extra_key;
  rest.left += overlap();  // tokens from here on
  while (rest.left > 0) {
    const TokenRun& run = rest.runs[rest.run];
    const std::uint32_t take = std::min(rest.left, run.length - rest.offset);
    fresh.key.push_back({run.first + rest.offset, take});
    rest.advance(take);
  }
  link_last(parent, leaf);
  index(leaf);
  return leaf;
}

void RadixCache::collect_pages(NodeId node, std::vector<PageRun>& out) const {
  path_.clear();
  for (; node != kRoot; node = nodes_[node].parent) path_.push_back(node);
  for (; !path_.empty(); path_.pop_back()) {
    for (const PageRun& run : nodes_[path_.back()].pages) append_run(out, run);
  }
}

// ---- locks and eviction ----

TreeLock RadixCache::inc_lock_ref(NodeId id) {
  TreeLock lock;
  for (std::size_t i = 0; i < components_.size(); ++i) lock.receipts[i] = components_[i]->lock(*this, id);
  for (; id != kRoot; id = nodes_[id].parent) {
    Node& node = nodes_[id];
    if (node.lock_ref++ > 0) continue;
    evictable_size_ -= node.length;
    protected_size_ += node.length;
    if (is_leaf(id)) --leaves_;
  }
  return lock;
}

void RadixCache::dec_lock_ref(NodeId id, const TreeLock& lock) {
  for (std::size_t i = 0; i < components_.size(); ++i) components_[i]->unlock(*this, id, lock.receipts[i]);
  for (; id != kRoot; id = nodes_[id].parent) {
    Node& node = nodes_[id];
    if (node.lock_ref == 0)
      throw std::logic_error(fmt::format("radix node {} is unlocked once too often", id));
    if (--node.lock_ref > 0) continue;
    evictable_size_ += node.length;
    protected_size_ -= node.length;
    if (is_leaf(id)) {
      ++leaves_;
      offer(id);
    }
  }
}

RadixCache::EvictionKey RadixCache::eviction_key(NodeId id) const {
  const Node& node = nodes_[id];
  const auto access = static_cast<std::int64_t>(node.last_access);
  const auto creation = static_cast<std::int64_t>(has_standings_ ? standings_[id].creation : 0);
  switch (options_.policy) {
    case EvictionPolicy::kLru:
      return {access, 0};
    case EvictionPolicy::kLfu:
      return {static_cast<std::int64_t>(standings_[id].hit_count), access};
    case EvictionPolicy::kFifo:
      return {creation, 0};
    case EvictionPolicy::kMru:
      return {-access, 0};
    case EvictionPolicy::kFilo:
      return {-creation, 0};
    case EvictionPolicy::kSlru:
      return {standings_[id].hit_count >= kSlruProtectedHits ? 1 : 0, access};
    case EvictionPolicy::kPriority:
      return {priority(id), access};
  }
  return {};
}

// A leaf's key only grows while it waits in the heap, so that an outdated entry is met too early and can be
// put back; with mru it shrinks, and the leaf is offered again.
void RadixCache::touch(NodeId id, std::uint64_t time) {
  Node& node = nodes_[id];
  node.last_access = time;
  if (options_.policy != EvictionPolicy::kMru || id == kRoot) return;
  if (is_evictable_leaf(id)) offer(id);
  if (host_ != nullptr) offer_host(id);
}

void RadixCache::offer(NodeId id) {
  if (!evicts_) return;
  if (heap_.size() > 4 * leaves_ + 1024) {
    rebuild_heap();
    return;  // `id` is a leaf and is in it
  }
  heap_.push_back({eviction_key(id), id});
  std::ranges::push_heap(heap_, std::ranges::greater(), &HeapEntry::key);
}

void RadixCache::rebuild_heap() {
  heap_.clear();
  for (NodeId id = 1; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    if (node.version != 0 && is_evictable_leaf(id)) heap_.push_back({eviction_key(id), id});
  }
  std::ranges::make_heap(heap_, std::ranges::greater(), &HeapEntry::key);
}

std::uint64_t RadixCache::evict_leaves(std::uint64_t num_tokens) {
  std::uint64_t evicted = 0;
  std::vector<NodeId> refused;  // by a full host
  if (!std::exchange(evicts_, true)) rebuild_heap();
  while (evicted < num_tokens && !heap_.empty()) {
    std::ranges::pop_heap(heap_, std::ranges::greater(), &HeapEntry::key);
    const HeapEntry entry = heap_.back();
    heap_.pop_back();
    const Node& node = nodes_[entry.node];
    if (node.version == 0 || !is_evictable_leaf(entry.node)) continue;
    if (eviction_key(entry.node) != entry.key) {
      if (eviction_key(entry.node) > entry.key) offer(entry.node);
      continue;
    }
    if (host_ != nullptr) {
      evicted += evict_to_host(entry.node, refused);
    } else {
      evicted += node.length;
      evict_leaf(entry.node);
    }
  }
  for (const NodeId node : refused) offer(node);
  if (host_ != nullptr) end_write_back();
  return evicted;
}

void RadixCache::evict_leaf(NodeId id) {
  for (TreeComponent* component : components_) component->drop(*this, id);
  if (allocator_ != nullptr) {
    for (const PageRun& run : nodes_[id].pages) allocator_->free(run);
  }
  remove_leaf(id);
}

void RadixCache::remove_leaf(NodeId id) {
  evictable_size_ -= nodes_[id].length;
  --leaves_;
  const NodeId parent = nodes_[id].parent;
  unlink(id);
  if (parent != kRoot && is_evictable_leaf(parent)) {
    ++leaves_;
    offer(parent);
  }
}

// A node without children leaves the tree.
void RadixCache::unlink(NodeId id) {
  unindex(id);
  Node& node = nodes_[id];
  Node& up = nodes_[node.parent];
  link_to(id) = node.next_sibling;
  if (up.first_child != kNoNode) link_back_to(id) = node.previous_sibling;
  if (host_ != nullptr) host_->on_unlink(node.parent, id);
  // Touches of the leaf were touches of the whole path.
  if (components_.empty()) up.last_access = std::max(up.last_access, node.last_access);
  node.version = 0;
  for (TreeComponent* component : components_) component->forget(id);
  free_nodes_.push_back(id);
}

// ---- checks ----

void RadixCache::check_invariants() const {
  const auto fail = [](NodeId id, const char* what) {
    throw std::logic_error(fmt::format("radix node {}: {}", id, what));
  };
  // A leaf is evicted in its turn if the heap has an entry that is due no later.
  std::vector<bool> offered(nodes_.size(), false);
  for (const HeapEntry& entry : heap_) {
    if (nodes_[entry.node].version != 0 && entry.key <= eviction_key(entry.node)) offered[entry.node] = true;
  }
  std::uint64_t evictable = 0;
  std::uint64_t locked = 0;
  std::size_t leaves = 0;
  std::size_t living = 0;
  std::vector<PageRun> all_pages;
  std::vector<NodeId> todo = {kRoot};
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    ++living;
    const Node& node = nodes_[id];
    if (node.version == 0) fail(id, "is in the tree but free");
    std::uint64_t child_locks = 0;
    NodeId before = node.first_child != kNoNode ? nodes_[node.first_child].previous_sibling : kNoNode;
    for (const NodeId child : children(id)) {
      if (nodes_[child].parent != id) fail(child, "does not know its parent");
      if (nodes_[child].previous_sibling != before) fail(child, "does not know the sibling before it");
      before = child;
      child_locks += nodes_[child].lock_ref;
      todo.push_back(child);
    }
    if (node.first_child != kNoNode && nodes_[node.first_child].previous_sibling != before)
      fail(id, "does not know its last child");
    if (id == kRoot) continue;
    if (node.lock_ref < child_locks) fail(id, "is locked less often than its children");
    std::uint64_t tokens = 0;
    std::uint64_t pages = 0;
    for (const TokenRun& run : node.key) tokens += run.length;
    for (const PageRun& run : node.pages) pages += run.count;
    if (tokens != node.length + overlap() || node.length == 0) fail(id, "has a key of another length");
    if (node.length % options_.page_size != 0) fail(id, "holds a part of a page");
    if (!node.pages.empty() && pages * options_.page_size != node.length)
      fail(id, "has another number of pages");
    if (find_child(node.parent, node.extra_key, KeyView{node.key, 0, 0, node.length}).id != id) {
      fail(id, "is not found under its first page");
    }
    if (evicts_ && is_evictable_leaf(id) && !offered[id]) fail(id, "can be evicted but is not in the heap");
    check_components(id);
    if (host_ != nullptr) check_host(id);
    if (host_ != nullptr && host_->evicted(id)) continue;
    all_pages.insert(all_pages.end(), node.pages.begin(), node.pages.end());
    (node.lock_ref > 0 ? locked : evictable) += node.length;
    leaves += is_evictable_leaf(id) ? 1 : 0;
  }
  if (evictable != evictable_size_ || locked != protected_size_ || leaves != leaves_) {
    throw std::logic_error(
        fmt::format("radix pool: {} + {} tokens counted, {} + {} found; {} leaves counted, {} found",
                    evictable_size_, protected_size_, evictable, locked, leaves_, leaves));
  }
  if (living + free_nodes_.size() != nodes_.size()) {
    throw std::logic_error(fmt::format("radix pool: {} nodes in the tree and {} free, of {}", living,
                                       free_nodes_.size(), nodes_.size()));
  }
  for (const TreeComponent* component : components_) component->check_invariants(*this);
  if (allocator_ == nullptr) return;
  std::ranges::sort(all_pages, {}, &PageRun::first);
  for (std::size_t i = 0; i < all_pages.size(); ++i) {
    const PageRun& run = all_pages[i];
    if (i > 0 && all_pages[i - 1].first + all_pages[i - 1].count > run.first) {
      throw std::logic_error(fmt::format("radix pool: page {} is in it twice", run.first));
    }
    for (std::uint32_t page = run.first; page < run.first + run.count; ++page) {
      if (!allocator_->is_allocated(page)) {
        throw std::logic_error(fmt::format("radix pool: page {} is in it but free", page));
      }
    }
  }
}

void RadixCache::save(StateWriter& state) { serialize(state); }

void RadixCache::load(StateReader& state) { serialize(state); }

}  // namespace tpsim::kvcache
