#include "kvcache/components/window_component.h"

#include "kvcache/pools/page_run.h"

namespace tpsim::kvcache {

// SGLang asks from the root down how far the last tombstone is; from the end up few nodes are looked at.
TreeComponent::NodeId WindowComponent::usable(const Tree& tree, NodeId end) const {
  NodeId candidate = end;
  std::uint64_t covered = 0;
  for (NodeId node = end; node != Tree::kRoot; node = tree.parent(node)) {
    if (has(node)) {
      covered += tree.length(node);
      if (covered >= window_) break;
    } else {
      candidate = tree.parent(node);
      covered = 0;
    }
  }
  return candidate;
}

void WindowComponent::refresh(const Tree& tree, NodeId node) {
  NodeId newer = kNoNode;
  for (std::uint64_t covered = 0; node != Tree::kRoot && covered < std::uint64_t{window_} + page_size_;
       node = tree.parent(node)) {
    if (has(node)) {
      touch(node, newer);
      newer = node;
    }
    covered += tree.length(node);
  }
}

std::uint32_t WindowComponent::lock(const Tree& tree, NodeId node) {
  std::uint32_t covered = 0;
  for (; node != Tree::kRoot && covered < window_; node = tree.parent(node)) {
    lock_node(tree, node);
    covered += tree.length(node);
  }
  return covered;
}

// A split leaves the sum of the lengths, so the walk ends with the node that the locked ones ended with.
void WindowComponent::unlock(const Tree& tree, NodeId node, std::uint32_t receipt) {
  for (std::uint32_t left = receipt; left > 0; node = tree.parent(node)) {
    unlock_node(tree, node);
    left -= tree.length(node);
  }
}

std::uint64_t WindowComponent::units(const Tree& tree, NodeId node) const { return tree.length(node); }

void WindowComponent::give_back(const Tree& tree, NodeId node) {
  if (pages_ == nullptr) return;
  for (const PageRun& run : tree.pages(node)) pages_->free(run);
}

}  // namespace tpsim::kvcache
