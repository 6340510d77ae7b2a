#include "kvcache/components/tree_component.h"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace tpsim::kvcache {

TreeComponent::Entry& TreeComponent::entry(NodeId node) {
  if (node >= entries_.size()) entries_.resize(std::size_t{node} + 1);
  return entries_[node];
}

void TreeComponent::link(NodeId node, NodeId newer) {
  Entry& e = entries_[node];
  e.newer = newer;
  NodeId& next = newer == kNoNode ? newest_ : entries_[newer].older;
  e.older = next;
  next = node;
  (e.older == kNoNode ? oldest_ : entries_[e.older].newer) = node;
}

void TreeComponent::unlink(NodeId node) {
  Entry& e = entries_[node];
  (e.newer == kNoNode ? newest_ : entries_[e.newer].older) = e.older;
  (e.older == kNoNode ? oldest_ : entries_[e.older].newer) = e.newer;
  e.newer = e.older = kNoNode;
}

TreeComponent::NodeId TreeComponent::least_recent(NodeId after) const {
  NodeId node = after == kNoNode ? oldest_ : entries_[after].newer;
  while (node != kNoNode && entries_[node].lock_ref > 0) node = entries_[node].newer;
  return node;
}

std::uint64_t TreeComponent::drop(const Tree& tree, NodeId node) {
  if (!has(node)) return 0;
  if (entries_[node].lock_ref > 0) {
    throw std::logic_error(fmt::format("radix node {}: a locked component is dropped", node));
  }
  const std::uint64_t freed = units(tree, node);
  give_back(tree, node);
  unlink(node);
  entries_[node].present = false;
  evictable_size_ -= freed;
  return freed;
}

void TreeComponent::forget(NodeId node) {
  if (node < entries_.size()) entries_[node] = Entry{};
}

void TreeComponent::reset() {
  entries_.clear();
  newest_ = oldest_ = kNoNode;
  evictable_size_ = protected_size_ = 0;
}

void TreeComponent::put(const Tree& tree, NodeId node) {
  Entry& e = entry(node);
  e.present = true;
  (e.lock_ref > 0 ? protected_size_ : evictable_size_) += units(tree, node);
  link(node, kNoNode);
}

void TreeComponent::share(NodeId upper, NodeId lower) {
  if (lower >= entries_.size()) return;
  Entry& up = entry(upper);
  up.lock_ref = entries_[lower].lock_ref;
  up.present = entries_[lower].present;
  if (up.present) link(upper, lower);
}

void TreeComponent::lock_node(const Tree& tree, NodeId node) {
  Entry& e = entry(node);
  if (e.lock_ref++ > 0 || !e.present) return;
  evictable_size_ -= units(tree, node);
  protected_size_ += units(tree, node);
}

void TreeComponent::unlock_node(const Tree& tree, NodeId node) {
  Entry& e = entry(node);
  if (e.lock_ref == 0) {
    throw std::logic_error(fmt::format("radix node {}: a component is unlocked once too often", node));
  }
  if (--e.lock_ref > 0 || !e.present) return;
  evictable_size_ += units(tree, node);
  protected_size_ -= units(tree, node);
}

void TreeComponent::touch(NodeId node, NodeId newer) {
  unlink(node);
  link(node, newer);
}

void TreeComponent::check_invariants(const Tree& tree) const {
  std::uint64_t evictable = 0;
  std::uint64_t locked = 0;
  std::size_t listed = 0;
  NodeId newer = kNoNode;
  for (NodeId node = newest_; node != kNoNode; node = entries_[node].older) {
    const Entry& e = entries_[node];
    if (!e.present || e.newer != newer) {
      throw std::logic_error(fmt::format("radix node {}: a component's list is broken", node));
    }
    (e.lock_ref > 0 ? locked : evictable) += units(tree, node);
    newer = node;
    ++listed;
  }
  std::size_t present = 0;
  for (const Entry& e : entries_) present += e.present ? 1 : 0;
  if (newer != oldest_ || listed != present) {
    throw std::logic_error(
        fmt::format("a component of the radix pool: {} nodes have data, {} are listed", present, listed));
  }
  if (evictable != evictable_size_ || locked != protected_size_) {
    throw std::logic_error(fmt::format("a component of the radix pool: {} + {} units counted, {} + {} found",
                                       evictable_size_, protected_size_, evictable, locked));
  }
}

}  // namespace tpsim::kvcache
