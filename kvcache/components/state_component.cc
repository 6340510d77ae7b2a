#include "kvcache/components/state_component.h"

#include <cstddef>

namespace tpsim::kvcache {

bool StateComponent::offer(const Tree& tree, NodeId node, std::uint32_t slot) {
  if (has(node)) {
    touch(node);
    return false;
  }
  put(tree, node);
  if (node >= slot_of_.size()) slot_of_.resize(std::size_t{node} + 1, StateSlots::kNone);
  slot_of_[node] = slot;
  return true;
}

TreeComponent::NodeId StateComponent::usable(const Tree& tree, NodeId end) const {
  while (end != Tree::kRoot && !has(end)) end = tree.parent(end);
  return end;
}

void StateComponent::on_match(const Tree&, NodeId node) {
  if (has(node)) touch(node);
}

std::uint32_t StateComponent::lock(const Tree& tree, NodeId node) {
  if (node == Tree::kRoot) return 0;
  lock_node(tree, node);
  return 1;
}

void StateComponent::unlock(const Tree& tree, NodeId node, std::uint32_t receipt) {
  if (receipt > 0) unlock_node(tree, node);
}

void StateComponent::give_back(const Tree&, NodeId node) { slots_.free(slot_of_[node]); }

}  // namespace tpsim::kvcache
