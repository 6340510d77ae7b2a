#include "kvcache/state_component.h"

#include <cstddef>

#include "kvcache/radix_cache.h"

namespace tpsim::kvcache {

bool StateComponent::offer(const RadixCache& tree, NodeId node, std::uint32_t slot) {
  if (has(node)) {
    touch(node);
    return false;
  }
  put(tree, node);
  if (node >= slot_of_.size()) slot_of_.resize(std::size_t{node} + 1, StateSlots::kNone);
  slot_of_[node] = slot;
  return true;
}

TreeComponent::NodeId StateComponent::usable(const RadixCache& tree, NodeId end) const {
  while (end != RadixCache::kRoot && !has(end)) end = tree.parent(end);
  return end;
}

void StateComponent::on_match(const RadixCache&, NodeId node) {
  if (has(node)) touch(node);
}

std::uint32_t StateComponent::lock(const RadixCache& tree, NodeId node) {
  if (node == RadixCache::kRoot) return 0;
  lock_node(tree, node);
  return 1;
}

void StateComponent::unlock(const RadixCache& tree, NodeId node, std::uint32_t receipt) {
  if (receipt > 0) unlock_node(tree, node);
}

void StateComponent::give_back(const RadixCache&, NodeId node) { slots_.free(slot_of_[node]); }

}  // namespace tpsim::kvcache
