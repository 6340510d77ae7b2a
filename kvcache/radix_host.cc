// The radix tree with a host tier: copies of nodes in host memory, made as the write policy says, kept when
// the device's pages are evicted, and loaded back when they are matched again.
//
// Source: SGLang 0.5.12 mem_cache/hiradix_cache.py. That its release 0.5.23 evicts of either pool what is
// short, and not the whole demand, is HostTierOptions::evict_shortfall (mem_cache/unified_radix_cache.py).
// Not as there: what is loaded back is protected while room is made for it on the device (0.5.12 could evict
// its copy by a write back).
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {

// An insertion comes through `node`, whose tokens begin at `start`: where the device has lost them, the
// request's pages, computed anew, become the tree's. Returns the tokens of which that is so.
std::uint32_t RadixCache::pass_host(NodeId id, std::uint32_t start, std::span<const PageRun> pages,
                                    bool counts) {
  if (!host_->evicted(id)) {
    if (counts) count_hit(id);
    return 0;
  }
  Node& node = nodes_[id];
  append_slice(pages, start / options_.page_size, node.length / options_.page_size, node.pages);
  put_on_device(id);
  return node.length;
}

// SGLang's _inc_hit_count.
void RadixCache::count_hit(NodeId id) {
  const WritePolicy policy = options_.host.write_policy;
  if (policy == WritePolicy::kWriteBack) return;
  const std::uint64_t uses = policy == WritePolicy::kWriteThrough ? 1 : 2;
  if (++standings_[id].hit_count >= uses && !host_->has(id)) write_backup(id, /*write_back=*/false);
}

// False where there is no room. Copies written through are a part of the tree from the root on.
bool RadixCache::write_backup(NodeId id, bool write_back) {
  const std::uint32_t length = nodes_[id].length;
  const NodeId parent = nodes_[id].parent;
  if (!write_back && parent != kRoot && !host_->has(parent)) return false;
  if (host_->available() < length)
    evict_host(options_.host.evict_shortfall ? length - host_->available() : length);
  if (host_->available() < length) return false;
  host_->back_up(*this, id);
  if (write_back) {
    transfers_->write_back(id, length);
  } else {
    inc_lock_ref(id);
    transfers_->write_through(id, length);
  }
  return true;
}

// An evictable leaf loses its pages. Returns its tokens; 0, and it is `refused`, where it must be written
// back and the host has no room.
std::uint64_t RadixCache::evict_to_host(NodeId id, std::vector<NodeId>& refused) {
  const std::uint32_t length = nodes_[id].length;
  if (!host_->has(id)) {
    if (options_.host.write_policy != WritePolicy::kWriteBack) {
      evict_leaf(id);
      return length;
    }
    if (!write_backup(id, /*write_back=*/true)) {
      refused.push_back(id);
      return 0;
    }
    host_->protect(*this, id);  // until the eviction is over
    written_back_.push_back(id);
  }
  for (const PageRun& run : nodes_[id].pages) allocator_->free(run);
  nodes_[id].pages.clear();
  evictable_size_ -= length;
  move_leaves(id, /*evicted=*/true);
  offer_host(id);
  return length;
}

void RadixCache::end_write_back() {
  for (const NodeId id : written_back_) unprotect_host(id);
  written_back_.clear();
}

// `id` has pages again.
void RadixCache::put_on_device(NodeId id) {
  evictable_size_ += nodes_[id].length;
  move_leaves(id, /*evicted=*/false);
}

// `id` and its parent may become leaves of the device, or be none any more.
void RadixCache::move_leaves(NodeId id, bool evicted) {
  const NodeId parent = nodes_[id].parent;
  const bool was = is_evictable_leaf(id), parent_was = is_evictable_leaf(parent);
  host_->set_evicted(*this, id, evicted);
  const auto changed = [this](NodeId node, bool before) {
    const bool now = is_evictable_leaf(node);
    if (now == before) return;
    leaves_ += now ? 1 : -1UL;
    if (now) offer(node);
  };
  changed(id, was);
  changed(parent, parent_was);
}

void RadixCache::offer_host(NodeId id) {
  if (!host_->is_host_leaf(id)) return;
  if (host_heap_.size() > 4 * nodes_.size() + 1024) {
    host_heap_.clear();
    for (NodeId node = 1; node < nodes_.size(); ++node) {
      if (nodes_[node].version != 0 && host_->is_host_leaf(node))
        host_heap_.push_back({eviction_key(node), node});
    }
    std::ranges::make_heap(host_heap_, std::ranges::greater(), &HeapEntry::key);
    return;
  }
  host_heap_.push_back({eviction_key(id), id});
  std::ranges::push_heap(host_heap_, std::ranges::greater(), &HeapEntry::key);
}

// As evict_leaves(), of the host's leaves, which leave the tree.
std::uint64_t RadixCache::evict_host(std::uint64_t tokens) {
  std::uint64_t evicted = 0;
  std::vector<NodeId> kept;  // protected
  while (evicted < tokens && !host_heap_.empty()) {
    std::ranges::pop_heap(host_heap_, std::ranges::greater(), &HeapEntry::key);
    const HeapEntry entry = host_heap_.back();
    host_heap_.pop_back();
    const NodeId id = entry.node;
    if (nodes_[id].version == 0 || !host_->is_host_leaf(id)) continue;
    if (eviction_key(id) != entry.key) {
      if (eviction_key(id) > entry.key) offer_host(id);
      continue;
    }
    if (host_->is_protected(id)) {
      kept.push_back(id);
      continue;
    }
    evicted += host_->drop(*this, id);
    const NodeId parent = nodes_[id].parent;
    unlink(id);
    if (parent != kRoot) offer_host(parent);
  }
  for (const NodeId id : kept) offer_host(id);
  return evicted;
}

void RadixCache::clear() {
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    if (node.version == 0) continue;
    for (const PageRun& run : node.pages) allocator_->free(run);
  }
  reset();
}

std::uint32_t RadixCache::load_back(NodeId id) {
  std::vector<NodeId> nodes;  // from the last one up
  std::uint32_t tokens = 0;
  NodeId ancestor = id;
  for (; host_->evicted(ancestor); ancestor = nodes_[ancestor].parent) {
    nodes.push_back(ancestor);
    tokens += nodes_[ancestor].length;
  }
  if (tokens < kLoadBackThreshold) return 0;
  host_->protect(*this, id);
  inc_lock_ref(ancestor);
  const std::uint32_t pages = tokens / options_.page_size;
  if (const std::uint32_t free = allocator_->available_pages(); free < pages)
    evict_leaves(options_.host.evict_shortfall ? std::uint64_t{pages - free} * options_.page_size : tokens);
  dec_lock_ref(ancestor);
  scratch_.clear();
  const bool there = allocator_->alloc(pages, scratch_);
  unprotect_host(id);
  if (!there) return 0;
  std::uint32_t first = 0;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const std::uint32_t count = nodes_[*node].length / options_.page_size;
    append_slice(scratch_, first, count, nodes_[*node].pages);
    first += count;
    put_on_device(*node);
  }
  inc_lock_ref(id);
  return tokens;
}

RadixCache::NodeId RadixCache::last_host_node(NodeId node) const {
  while (node != kRoot && !host_->has(node)) node = nodes_[node].parent;
  return node;
}

void RadixCache::unprotect_host(NodeId node) {
  host_->unprotect(*this, node);
  if (node != kRoot) offer_host(node);
}

std::uint32_t RadixCache::depth(NodeId node) const {
  std::uint32_t tokens = 0;
  for (; node != kRoot; node = nodes_[node].parent) tokens += nodes_[node].length;
  return tokens;
}

void RadixCache::spell_out(NodeId node, TokenSequence& out) const {
  std::vector<NodeId> path;
  for (; node != kRoot; node = nodes_[node].parent) path.push_back(node);
  for (auto id = path.rbegin(); id != path.rend(); ++id) {
    for (const TokenRun& run : nodes_[*id].key) out.append(run);
  }
}

std::uint32_t RadixCache::insert_host(NodeId node, const TokenSequence& key, std::uint32_t extra_key,
                                      std::uint32_t end) {
  const std::uint32_t start = depth(node);
  host_->give_back_reserved(end - start);
  KeyView rest{key.runs(), 0, 0, end};
  rest.advance(start);
  std::uint32_t known = 0;
  touch(node, ++clock_);
  while (rest.left > 0) {
    const auto [child, common] = find_child(node, extra_key, rest);
    if (child == kNoNode) break;
    touch(child, ++clock_);
    known += common;
    rest.advance(common);
    node = common < nodes_[child].length ? split(child, common) : child;
  }
  if (rest.left == 0) return known;
  const NodeId leaf = new_leaf(node, rest, priority(node), extra_key);
  host_->on_link(node, leaf, /*on_device=*/false);
  host_->back_up(*this, leaf);
  offer_host(leaf);
  return known;
}

void RadixCache::check_host(NodeId id) const {
  host_->check_place(id, children(id));
  const Node& node = nodes_[id];
  if (id == kRoot) return;
  if (node.pages.empty() != host_->evicted(id))
    throw std::logic_error(fmt::format("radix node {}: its pages are not where its host tier says", id));
  if (host_->evicted(id) && node.lock_ref > 0)
    throw std::logic_error(fmt::format("radix node {}: is locked and not on the device", id));
}

}  // namespace tpsim::kvcache
